//! The first bytes of what an IP packet carries.

use super::facts::Facts;
use super::words::{Icmp, Ports, Reach, Version};
use super::{Bytes, protocol};

/// The flags of a TCP header, behind ports, sequence numbers and data offset.
const TCP_FLAGS: usize = 13;

/// Reads the transport header at `offset` into the facts.
#[inline(always)]
pub(super) fn read(
    frame: &impl Bytes,
    version: Version,
    kind: u8,
    offset: usize,
    facts: &mut Facts,
) {
    // A header whose options end behind the frame has nothing behind it.
    if frame.read::<0>(offset).is_none() {
        return facts.set_reach(Reach::Cut);
    }
    facts.set_transport_offset(offset);
    let whole = match (version, kind) {
        (_, protocol::TCP) => ports(frame, offset, facts) && tcp_flags(frame, offset, facts),
        (_, protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP) => {
            ports(frame, offset, facts)
        }
        (Version::V4, protocol::ICMP) | (Version::V6, protocol::ICMPV6) => {
            icmp(frame, offset, facts)
        }
        _ => true,
    };
    if !whole {
        facts.set_reach(Reach::Cut);
    }
}

/// Reads the ports: in all of these protocols they are the first four bytes.
#[inline(always)]
fn ports(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> bool {
    let Some([a, b, c, d]) = frame.read::<4>(offset) else {
        return false;
    };
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    facts.set_ports(Ports { source, destination });
    true
}

#[inline(always)]
fn tcp_flags(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> bool {
    let Some([flags]) = frame.read::<1>(offset + TCP_FLAGS) else {
        return false;
    };
    facts.set_tcp_flags(flags);
    true
}

#[inline(always)]
fn icmp(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> bool {
    let Some([kind, code]) = frame.read::<2>(offset) else {
        return false;
    };
    facts.set_icmp(Icmp { kind, code });
    true
}
