//! The unit that a limit counts: packets, or only those that begin something.

use limiter_common::header::TCP;
use limiter_common::wire::Count;
use limiter_rules::model::{Meter, Quota, RateLimit};

use super::difference::Difference;
use super::packets::{Packets, state};

const ICMP: [u8; 2] = [1, 58];

/// The meter with the unit that `packets` and the chain ask for. Removes the conditions that the
/// unit stands for from `packets`.
pub(super) fn counted(
    packets: &mut Packets,
    meter: Meter,
    established: bool,
    differences: &mut Vec<Difference>,
) -> Result<Meter, String> {
    let states = packets.states.take().unwrap_or(state::ALL);
    let all = states & state::ALL == state::ALL;
    let opens = std::mem::take(&mut packets.opens);
    if !all && states & state::NEW == 0 {
        return Err("counts by a state of connections that limiter does not see".to_owned());
    }
    let known = states & (state::ESTABLISHED | state::RELATED) != 0 && !established;
    if !all && known {
        return Err("counts by a mix of states of connections".to_owned());
    }
    let new = !all || established;
    if !new && !opens {
        return Ok(meter);
    }
    let protocols = packets.protocols.as_deref();
    let tcp = protocols == Some(&[TCP]);
    let icmp = protocols.is_some_and(|protocols| protocols.iter().all(|one| ICMP.contains(one)));
    let count = if tcp {
        // Everything that opens a connection is new, except connections that were open before.
        differences.push(if opens { Difference::Syn } else { Difference::NewSyn });
        Count::Syns
    } else if opens {
        return Err("asks for flags of TCP without naming it".to_owned());
    } else if icmp {
        differences.push(Difference::NewIcmp);
        return Ok(meter);
    } else if protocols.is_none_or(|all| all.iter().any(|one| *one == TCP || ICMP.contains(one))) {
        // For ICMP, a flow is two addresses, so a flood of pings would be one flow; for TCP, a flow
        // is anything with its ports, not a connection.
        return Err("counts new connections of more than one protocol in one bucket, and limiter \
             counts those of TCP, of ICMP and of others each in its own way: write a rule for \
             each protocol"
            .to_owned());
    } else {
        differences.push(Difference::NewFlow);
        Count::Flows
    };
    if meter.quota().count != Count::Packets {
        return Err(
            "counts bytes where only packets that begin a connection come as far".to_owned()
        );
    }
    let quota = |quota: Quota| Quota { count, ..quota };
    Ok(match meter {
        Meter::TokenBucket(rate) => Meter::TokenBucket(RateLimit { count, ..rate }),
        Meter::SlidingLog(own) => Meter::SlidingLog(quota(own)),
        other => other,
    })
}
