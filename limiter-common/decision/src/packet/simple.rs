//! Packets as most are, in a few reads. The source of one without a tag, as
//! [`super::walk_to_source`] finds it; and the facts of one that has neither options, extension
//! headers nor fragments, and TCP or UDP behind the IP header, as [`super::walk`] finds them.

use limiter_common::header::{Ports, TCP, Version};
use limiter_common::source::Source;

use super::ether::ETHER_TYPE_OFFSET;
use super::facts::Facts;
use super::ip::{FRAGMENTED, V4_HEADER, V6_HEADER, fixed_length, mapped};
use super::transport::{BEHIND_V4, BEHIND_V6, TCP_FLAGS};
use super::{Bytes, ether, protocol};

/// The first byte of an IPv4 header without options.
const V4_WITHOUT_OPTIONS: u8 = 0x45;

/// The source of a packet whose fixed header can be read in place, without a tag before it; none of
/// others, and of those that may be exempt.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn source<B: Bytes>(frame: &B) -> Option<Source> {
    if B::LAYER_3 {
        return match frame.in_place::<0, 2>()? {
            [start, _] if start >> 4 == 4 => v4_source::<0, B>(frame),
            [start, _] if start >> 4 == 6 => v6_source::<0, B>(frame),
            _ => None,
        };
    }
    match ether::ip(u16::from_be_bytes(frame.in_place::<ETHER_TYPE_OFFSET, 2>()?))? {
        ether::Network::V4 => v4_source::<{ ether::HEADER }, B>(frame),
        ether::Network::V6 => v6_source::<{ ether::HEADER }, B>(frame),
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn v4_source<const NETWORK: usize, B: Bytes>(frame: &B) -> Option<Source> {
    let header = frame.in_place::<NETWORK, V4_HEADER>()?;
    let [_, _, _, source, destination]: [[u8; 4]; 5] = bytemuck::cast(header);
    let source = if frame.is_out() { destination } else { source };
    let [start, ..] = header;
    if start >> 4 == 4 { Some(Source::V4(source)) } else { None }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn v6_source<const NETWORK: usize, B: Bytes>(frame: &B) -> Option<Source> {
    let [start, _, _, _, _, _, next, _, rest @ ..] = frame.in_place::<NETWORK, V6_HEADER>()?;
    let [source, _, destination, _]: [[u8; 8]; 4] = bytemuck::cast(rest);
    let source = if frame.is_out() { destination } else { source };
    // Neighbour discovery is exempt.
    if start >> 4 == 6 && next != protocol::ICMPV6 { Some(Source::V6(source)) } else { None }
}

/// Reads the facts of a simple packet. False for others, and where not all of its headers can be
/// read in place: `facts` is unchanged then.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn read_simple<B: Bytes>(frame: &B, facts: &mut Facts) -> bool {
    if B::LAYER_3 {
        return match frame.in_place::<0, 2>() {
            Some([V4_WITHOUT_OPTIONS, _]) => v4::<0, V4_HEADER, B>(frame, facts),
            Some([start, _]) if start >> 4 == 6 => v6::<0, V6_HEADER, B>(frame, facts),
            _ => false,
        };
    }
    let Some(ether_type) = frame.in_place::<ETHER_TYPE_OFFSET, 2>() else {
        return false;
    };
    match ether::ip(u16::from_be_bytes(ether_type)) {
        Some(ether::Network::V4) => v4::<{ ether::HEADER }, BEHIND_V4, B>(frame, facts),
        Some(ether::Network::V6) => v6::<{ ether::HEADER }, BEHIND_V6, B>(frame, facts),
        None => false,
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn v4<const NETWORK: usize, const TRANSPORT: usize, B: Bytes>(
    frame: &B,
    facts: &mut Facts,
) -> bool {
    let Some(header) = frame.in_place::<NETWORK, V4_HEADER>() else {
        return false;
    };
    let [start, service, more, less, _, _, high, low, ttl, next, _, _, rest @ ..] = header;
    if start != V4_WITHOUT_OPTIONS || u16::from_be_bytes([high, low]) & FRAGMENTED != 0 {
        return false;
    }
    let Some(carried) = carried::<TRANSPORT, B>(frame, next) else {
        return false;
    };
    let [source, destination]: [[u8; 4]; 2] = bytemuck::cast(rest);
    facts.clear();
    facts.set_network(Version::V4, service);
    facts.set_size(u16::from_be_bytes([more, less]), ttl);
    facts.set_addresses(mapped(source), mapped(destination));
    set(frame, (NETWORK, TRANSPORT), next, &carried, facts);
    true
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn v6<const NETWORK: usize, const TRANSPORT: usize, B: Bytes>(
    frame: &B,
    facts: &mut Facts,
) -> bool {
    let Some(header) = frame.in_place::<NETWORK, V6_HEADER>() else {
        return false;
    };
    let [high, low, _, _, more, less, next, hops, rest @ ..] = header;
    if high >> 4 != 6 {
        return false;
    }
    let Some(carried) = carried::<TRANSPORT, B>(frame, next) else {
        return false;
    };
    let [s0, s1, d0, d1]: [u64; 4] = bytemuck::cast(rest);
    facts.clear();
    facts.set_network(Version::V6, high << 4 | low >> 4);
    facts.set_size(fixed_length([more, less]), hops);
    facts.set_addresses([s0, s1], [d0, d1]);
    set(frame, (NETWORK, TRANSPORT), next, &carried, facts);
    true
}

/// The part of a transport header that facts are read from.
struct Carried {
    ports: Ports,
    flags: u8,
}

/// Reads the header of TCP or UDP; none of another protocol.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn carried<const TRANSPORT: usize, B: Bytes>(frame: &B, next: u8) -> Option<Carried> {
    let (bytes, flags) = if next == TCP {
        let [a, b, c, d, .., flags] = frame.in_place::<TRANSPORT, { TCP_FLAGS + 1 }>()?;
        ([a, b, c, d], flags)
    } else if next == protocol::UDP {
        (frame.in_place::<TRANSPORT, 4>()?, 0)
    } else {
        return None;
    };
    let [a, b, c, d] = bytes;
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some(Carried { ports: Ports { source, destination }, flags })
}

/// Sets what is alike in both families. Nothing says that there is no fragment, and that the
/// transport header was reached.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn set(
    frame: &impl Bytes,
    (network, transport): (usize, usize),
    next: u8,
    carried: &Carried,
    facts: &mut Facts,
) {
    facts.set_link(ether::taken_off(frame), network);
    facts.set_protocol(next);
    facts.set_ports(carried.ports);
    if next == TCP {
        facts.set_tcp_flags(carried.flags);
    }
    facts.set_transport_offset(transport);
    if frame.is_out() {
        facts.turn_out();
    }
}
