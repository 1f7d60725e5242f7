//! The fixed headers of IPv4 (RFC 791) and IPv6 (RFC 8200).

use core::ops::RangeInclusive;

use limiter_common::header::{Fragment, Version};
use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use network_types::ip::{Ipv4Hdr, Ipv6Hdr};

use super::facts::Facts;
use super::{Bytes, ether, protocol};

pub(super) const V4_HEADER: usize = Ipv4Hdr::LEN;
pub(super) const V6_HEADER: usize = Ipv6Hdr::LEN;
const FIXED_V6: u16 = 40;

const _: () = assert!(FIXED_V6 as usize == V6_HEADER);

/// The smallest IPv4 header length, in words of four bytes.
const MIN_WORDS: u8 = 5;

const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Bits of which one is set in any fragment.
pub(super) const FRAGMENTED: u16 = MORE_FRAGMENTS | FRAGMENT_OFFSET;

/// RFC 4861: router solicitation 133 to redirect 137.
const DISCOVERY: RangeInclusive<u8> = 133..=137;
const HOP_LIMIT_THIS_LINK: u8 = 255;

/// The fields of a fixed header that the walk of the chain needs.
pub(super) struct Header {
    pub(super) version: Version,
    /// The protocol or next header field.
    pub(super) next: u8,
    pub(super) fragment: Fragment,
    /// The end of the header with its options, 0 when its length field cannot be right.
    pub(super) end: usize,
}

/// The other end of an IPv4 packet: its source, or the destination of one on its way out. It is
/// charged even when the header length or the total length is wrong: such a packet costs the
/// machine as much as a good one, so it is no way around the limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn v4_source(frame: &impl Bytes, offset: usize) -> Result<Source, Reason> {
    let [.., a, b, c, d, _, _, _, _] = v4_bytes(frame, offset)?;
    if frame.is_out() {
        return destination(frame, offset + 16).map(Source::V4);
    }
    Ok(Source::V4([a, b, c, d]))
}

/// The other end of an IPv6 packet, likewise.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
pub(super) fn v6_source(frame: &impl Bytes, offset: usize) -> Result<Source, Reason> {
    let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = v6_bytes(frame, offset)?;
    if frame.is_out() {
        return destination(frame, offset + 24).map(Source::V6);
    }
    Ok(Source::V6([a, b, c, d, e, f, g, h]))
}

/// The destination address in a header that is there, or the first half of one. Read by itself: of
/// the header that was read before, it would take as much of the stack again.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn destination<const N: usize>(frame: &impl Bytes, offset: usize) -> Result<[u8; N], Reason> {
    frame.read(offset).ok_or(Reason::Truncated)
}

/// The whole of an IPv4 header, options left out.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
pub(super) fn v4(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> Result<Header, Reason> {
    let header = v4_bytes(frame, offset)?;
    let [start, service, more, less, _, _, high, low, ttl, next, _, _, rest @ ..] = header;
    let [a, b, c, d, e, f, g, h] = rest;
    facts.clear();
    facts.set_network(Version::V4, service);
    facts.set_size(u16::from_be_bytes([more, less]), ttl);
    facts.set_addresses(mapped([a, b, c, d]), mapped([e, f, g, h]));
    let words = start & 0x0f;
    let position = u16::from_be_bytes([high, low]);
    let fragment = if position & FRAGMENT_OFFSET != 0 {
        Fragment::Later
    } else if position & MORE_FRAGMENTS != 0 {
        Fragment::First
    } else {
        Fragment::Whole
    };
    // Four bits: at most 60 bytes.
    let end = if words < MIN_WORDS { 0 } else { offset + usize::from(words) * 4 };
    Ok(Header { version: Version::V4, next, fragment, end })
}

/// The whole of an IPv6 header.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn v6(frame: &impl Bytes, offset: usize, facts: &mut Facts) -> Result<Header, Reason> {
    let [high, low, _, _, more, less, next, hops, ..] = v6_bytes(frame, offset)?;
    // Read here and not with the rest: so they go through one register, and not through forty.
    let Some(source) = frame.read(offset + 8) else {
        return Err(Reason::Truncated);
    };
    let Some(destination) = frame.read(offset + 24) else {
        return Err(Reason::Truncated);
    };
    facts.clear();
    facts.set_network(Version::V6, high << 4 | low >> 4);
    facts.set_size(fixed_length([more, less]), hops);
    facts.set_addresses(
        bytemuck::cast::<[u8; 16], _>(source),
        bytemuck::cast::<[u8; 16], _>(destination),
    );
    let end = offset + V6_HEADER;
    Ok(Header { version: Version::V6, next, fragment: Fragment::Whole, end })
}

/// The length of an IPv6 packet: the field is without the fixed header, and 0 in a jumbogram (RFC
/// 2675).
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn fixed_length(field: [u8; 2]) -> u16 {
    u16::from_be_bytes(field).saturating_add(FIXED_V6)
}

/// An IPv4 address as IPv4-mapped IPv6.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn mapped([a, b, c, d]: [u8; 4]) -> [u64; 2] {
    [0, u64::from_ne_bytes([0, 0, 0xff, 0xff, a, b, c, d])]
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn v4_bytes(frame: &impl Bytes, offset: usize) -> Result<[u8; V4_HEADER], Reason> {
    let Some(header) = ether::header::<V4_HEADER, _>(frame, offset) else {
        return Err(Reason::Truncated);
    };
    let [version, ..] = header;
    if version >> 4 != 4 {
        return Err(Reason::Malformed);
    }
    Ok(header)
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn v6_bytes(frame: &impl Bytes, offset: usize) -> Result<[u8; V6_HEADER], Reason> {
    let Some(header) = ether::header::<V6_HEADER, _>(frame, offset) else {
        return Err(Reason::Truncated);
    };
    let [version, _, _, _, _, _, next, hops, ..] = header;
    if version >> 4 != 6 {
        return Err(Reason::Malformed);
    }
    if next == protocol::ICMPV6
        && hops == HOP_LIMIT_THIS_LINK
        && let Some([kind]) = frame.read::<1>(offset + V6_HEADER)
        && DISCOVERY.contains(&kind)
    {
        return Err(Reason::NeighbourDiscovery);
    }
    Ok(header)
}
