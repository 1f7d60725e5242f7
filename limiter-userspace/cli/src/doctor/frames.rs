//! Frames that a card or another program changes before the program sees them, and queues.

use limiter_api::status::Status;
use limiter_common::header::Direction;
use limiter_daemon::delays_warning;
use limiter_datapath::machine::Queues;
use limiter_datapath::{DatapathError, Hook, Offloads, Queueing, STRIPS_TAGS, keep_tags};

use super::finding::Finding;

/// Name of the kernel for `tx-vlan-offload` of `ethtool`.
const TAKES_TAGS: &str = "tx-vlan-hw-insert";

/// Names of the kernel for offloads of a card that join frames.
const JOINS: [&str; 2] = ["rx-lro", "rx-gro-hw"];

/// Name of the kernel for joining frames in software.
const GRO: &str = "rx-gro";

/// The other end of a veth pair.
#[derive(Debug)]
pub(super) enum Peer {
    /// None: the interface is of another kind.
    None,
    Elsewhere,
    /// In this network namespace, with this name and these offloads.
    Here(String, Result<Offloads, DatapathError>),
}

/// Judges whether VLAN tags are seen.
pub(super) fn tags(name: &str, offloads: &Result<Offloads, DatapathError>, peer: &Peer) -> Finding {
    let check = "vlan-tags";
    let hidden = "rules with the key `vlan` may match nothing";
    let finding = match (offloads, peer) {
        (Err(error), _) | (Ok(_), Peer::Here(_, Err(error))) => Finding::unseen(check, error),
        (Ok(own), _) if own.is_on(STRIPS_TAGS) => Finding::note(
            check,
            format!("{name} takes VLAN tags off before they are seen: {hidden}"),
        )
        .remedy(format!(
            "if rules have that key: {}; or --hook tc, which sees them",
            keep_tags(name)
        ))
        .command(format!("ethtool -K {name} rxvlan off")),
        (Ok(_), Peer::Here(peer, Ok(theirs))) if theirs.is_on(TAKES_TAGS) => Finding::note(
            check,
            format!("the other end, {peer}, keeps VLAN tags beside the frame: {hidden}"),
        )
        .remedy("if rules have that key, switch it off there")
        .command(format!("ethtool -K {peer} txvlan off")),
        (Ok(_), Peer::Elsewhere) => Finding::unknown(
            check,
            format!(
                "whether the other end keeps VLAN tags beside the frame: it is in another network \
                 namespace. If it does, {hidden}"
            ),
        )
        .remedy("there: ethtool -K PEER txvlan off"),
        (Ok(_), _) => Finding::ok(check, "VLAN tags are seen"),
    };
    finding.on(name)
}

/// Judges whether the card joins frames, or the kernel does, before the program in generic mode.
pub(super) fn joined(
    name: &str,
    offloads: &Result<Offloads, DatapathError>,
    is_generic: bool,
) -> Finding {
    let check = "joined-frames";
    let offloads = match offloads {
        Ok(offloads) => offloads,
        Err(error) => return Finding::unseen(check, error).on(name),
    };
    let on: Vec<&str> = JOINS.into_iter().filter(|name| offloads.is_on(name)).collect();
    if on.is_empty() && is_generic && offloads.is_on(GRO) {
        let seen = "in generic mode the kernel may join frames (GRO) before they are seen: joined \
                    ones count as one packet";
        return Finding::note(check, seen)
            .remedy("limit bytes, or switch it off")
            .command(format!("ethtool -K {name} gro off"))
            .on(name);
    }
    if on.is_empty() {
        return Finding::ok(check, "frames are not joined before they are seen").on(name);
    }
    let fixed = on.iter().all(|name| !offloads.is_switchable(name));
    Finding::warning(
        check,
        format!(
            "the card joins frames ({}{}): its driver may refuse a program in native mode",
            on.join(", "),
            if fixed { ", which it does not let be switched off" } else { "" }
        ),
    )
    .remedy(if fixed {
        "allow generic mode with --mode auto, and limit bytes: joined frames count as one packet"
    } else {
        "allow generic mode with --mode auto: the kernel switches it off there"
    })
    .command(format!("limiter run --iface {name} --mode auto --rules FILE"))
    .on(name)
}

pub(super) fn queues(
    name: &str,
    queues: &Result<Option<Queues>, DatapathError>,
    cpus: u32,
) -> Finding {
    let check = "queues";
    let finding = match queues {
        Err(error) => Finding::unseen(check, error),
        // A tap of which nobody has the other end has none.
        Ok(None | Some(Queues { used: 0, .. })) => {
            Finding::ok(check, "its driver has no queues to set")
        }
        Ok(Some(Queues { used, most, .. })) if *used >= cpus.min(*most) => {
            Finding::ok(check, format!("{used} of {most} receive queues are in use"))
        }
        Ok(Some(Queues { used, most, is_combined })) => {
            let which = if *is_combined { "combined" } else { "rx" };
            let wanted = cpus.min(*most);
            Finding::note(
                check,
                format!(
                    "{used} of {most} receive queues are in use, on {cpus} CPUs: others judge no \
                     packets"
                ),
            )
            .remedy("use a queue for each CPU, if one CPU is not enough")
            .command(format!("ethtool -L {name} {which} {wanted}"))
        }
    };
    finding.on(name)
}

/// Judges whether outgoing packets can wait, as the rules in force want it. `None` if the daemon
/// already reports that they do not.
pub(super) fn waiting(
    name: &str,
    queueing: &Result<Queueing, DatapathError>,
    status: Option<&Status>,
) -> Option<Finding> {
    let check = "waiting";
    let delays = status.and_then(|status| status.delays.as_ref());
    let outgoing = Hook::Tc(Direction::Out).name();
    let is_limited =
        |status: &Status| status.interfaces.iter().any(|at| at.name == name && at.mode == outgoing);
    let warning = delays.filter(|_| status.is_some_and(is_limited));
    let warning = warning.and_then(|delays| delays_warning(delays, name, queueing));
    let finding = match (warning, queueing) {
        (Some(warning), _) if status.is_some_and(|status| status.warnings.contains(&warning)) => {
            return None;
        }
        (Some(warning), _) => Finding::warning(check, warning),
        (None, Ok(Queueing::Fq(fq))) => Finding::ok(
            check,
            format!("packets of `action: delay` wait in fq, {} of each flow", fq.flow_packets),
        ),
        // How much room it takes follows from the rules.
        (None, Ok(Queueing::Other(kind) | Queueing::NoFq(kind))) => Finding::ok(
            check,
            format!(
                "packets of `action: delay` would not wait: it has {kind}, not fq; with such rules \
                 in force here, the command is given"
            ),
        ),
        (None, Err(error)) => Finding::unseen(check, error),
    };
    Some(finding.on(name))
}
