//! The first bytes of what an IP packet carries.

use limiter_common::header::{Icmp, Ports, Reach, TCP, Version};

use super::ether;
use super::facts::Facts;
use super::ip::{V4_HEADER, V6_HEADER};
use super::{Bytes, protocol};

pub(super) const BEHIND_V4: usize = ether::HEADER + V4_HEADER;
pub(super) const BEHIND_V6: usize = ether::HEADER + V6_HEADER;

/// The flags of a TCP header, behind ports, sequence numbers and data offset.
pub(super) const TCP_FLAGS: usize = 13;

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn read(
    frame: &impl Bytes,
    version: Version,
    kind: u8,
    offset: usize,
    facts: &mut Facts,
) {
    if read_whole(frame, version, kind, offset, facts) {
        return facts.set_transport_offset(offset);
    }
    // A header whose options end behind the frame has nothing behind it.
    if frame.read::<0>(offset).is_none() {
        return facts.set_reach(Reach::Cut);
    }
    facts.set_transport_offset(offset);
    match (version, kind) {
        // Ports may be there without flags.
        (_, TCP) => {
            ports(frame, offset, facts);
        }
        (_, protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP)
        | (Version::V4, protocol::ICMP)
        | (Version::V6, protocol::ICMPV6) => {}
        _ => return,
    }
    facts.set_reach(Reach::Cut);
}

/// Reads all that is asked of a transport header, at once; false where the frame ends before, or
/// nothing is asked of it.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn read_whole(
    frame: &impl Bytes,
    version: Version,
    kind: u8,
    offset: usize,
    facts: &mut Facts,
) -> bool {
    match (version, kind) {
        (_, TCP) => tcp(frame, offset, facts),
        (_, protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP) => {
            ports(frame, offset, facts)
        }
        (Version::V4, protocol::ICMP) | (Version::V6, protocol::ICMPV6) => {
            icmp(frame, offset, facts)
        }
        _ => false,
    }
}

/// The `N` bytes at the start of a transport header: read in place if it is where it mostly is,
/// right behind an IP header without options.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn header<const N: usize, B: Bytes>(frame: &B, offset: usize) -> Option<[u8; N]> {
    match (B::LAYER_3, offset) {
        (false, BEHIND_V4) => frame.read_at::<BEHIND_V4, N>(),
        (false, BEHIND_V6) => frame.read_at::<BEHIND_V6, N>(),
        (true, V4_HEADER) => frame.read_at::<V4_HEADER, N>(),
        (true, V6_HEADER) => frame.read_at::<V6_HEADER, N>(),
        _ => frame.read(offset),
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn tcp(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> bool {
    let Some([a, b, c, d, .., flags]) = header::<{ TCP_FLAGS + 1 }, _>(frame, offset) else {
        return false;
    };
    set_ports([a, b, c, d], facts);
    facts.set_tcp_flags(flags);
    true
}

/// Reads the ports: in all of these protocols they are the first four bytes.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn ports(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> bool {
    let Some(bytes) = header::<4, _>(frame, offset) else {
        return false;
    };
    set_ports(bytes, facts);
    true
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn set_ports([a, b, c, d]: [u8; 4], facts: &mut Facts) {
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    facts.set_ports(Ports { source, destination });
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn icmp(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> bool {
    let Some([kind, code]) = header::<2, _>(frame, offset) else {
        return false;
    };
    facts.set_icmp(Icmp { kind, code });
    true
}
