//! The fixed headers of IPv4 (RFC 791) and IPv6 (RFC 8200).

use core::ops::RangeInclusive;

use super::{Bytes, Packet};
use crate::source::Source;
use crate::verdict::Reason;

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

const ICMPV6: u8 = 58;
/// RFC 4861: router solicitation 133 to redirect 137.
const DISCOVERY: RangeInclusive<u8> = 133..=137;
const HOP_LIMIT_THIS_LINK: u8 = 255;

/// Charges the source even when the header length or the total length is wrong: such a packet
/// costs the machine as much as a good one, so it is no way around the limit.
#[inline(always)]
pub(super) fn v4(frame: &impl Bytes, offset: usize) -> Packet {
    let Some(header) = frame.read::<V4_HEADER>(offset) else {
        return Packet::Exempt(Reason::Truncated);
    };
    let [version, .., a, b, c, d, _, _, _, _] = header;
    if version >> 4 != 4 {
        return Packet::Exempt(Reason::Malformed);
    }
    Packet::From(Source::V4([a, b, c, d]))
}

#[inline(always)]
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
pub(super) fn v6(frame: &impl Bytes, offset: usize) -> Packet {
    let Some(header) = frame.read::<16>(offset) else {
        return Packet::Exempt(Reason::Truncated);
    };
    // The destination is not needed, but a header cut short is no header.
    let Some(_) = frame.read::<1>(offset + V6_HEADER - 1) else {
        return Packet::Exempt(Reason::Truncated);
    };
    let [version, _, _, _, _, _, next, hops, a, b, c, d, e, f, g, h] = header;
    if version >> 4 != 6 {
        return Packet::Exempt(Reason::Malformed);
    }
    if next == ICMPV6
        && hops == HOP_LIMIT_THIS_LINK
        && let Some([kind]) = frame.read::<1>(offset + V6_HEADER)
        && DISCOVERY.contains(&kind)
    {
        return Packet::Exempt(Reason::NeighbourDiscovery);
    }
    Packet::From(Source::V6([a, b, c, d, e, f, g, h]))
}
