//! "Communication administratively prohibited", by ICMP (RFC 792, RFC 1812, 5.2.7.1) and `ICMPv6`
//! (RFC 4443, 3.1).
//!
//! Both quote the fixed IP header of their cause and eight bytes of what follows: the ports, or the
//! identifier of an echo request, by which the peer finds the socket. RFC 792 asks for no more. RFC
//! 1812, 4.3.2.3 and RFC 4443, 2.4 (c) would have more quoted, up to 576 and 1280 bytes in all.
//! Then an answer would be longer than its cause, which it never is here, and there would be a
//! checksum over many bytes to compute for every packet of a flood.
//!
//! The quote is how the packet began, and it stands behind a head. So where there is room before
//! the packet, the head can be written in front of it, and nothing has to be moved. Make that room
//! first, and read the original then: read before, every byte of it would wait on the stack.

use network_types::ip::IpProto;

use super::ReplyKind;
use super::bytes::join;
use super::ip;
use crate::checksum::Sum;

const UNREACHABLE_V4: [u8; 2] = [3, 13];
const UNREACHABLE_V6: [u8; 2] = [1, 1];

const ICMP: u8 = IpProto::Icmp as u8;
const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;

const V4_LENGTH: u16 = 56;
const _: () = assert!(V4_LENGTH as u32 == ReplyKind::UnreachableV4.length());

/// The length without the IP header.
const V6_PAYLOAD: u16 = 56;
const _: () = assert!(V6_PAYLOAD as u32 + 40 == ReplyKind::UnreachableV6.length());

/// The whole answer to a packet whose IPv4 header without options and first eight bytes behind it
/// are `original`: IP header, ICMP header and quote.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn unreachable_v4(original: &[u8; 28]) -> [u8; 56] {
    join(&unreachable_v4_head(original), original)
}

/// The first 28 bytes of [`unreachable_v4`]; `original` follows them.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn unreachable_v4_head(original: &[u8; 28]) -> [u8; 28] {
    // The answer goes the other way.
    let (destination, source) = ip::v4_addresses(original);
    let header = ip::v4(V4_LENGTH, ICMP, source, destination);
    let [kind, code] = UNREACHABLE_V4;
    let [c0, c1] = Sum::ZERO.bytes(&UNREACHABLE_V4).bytes(original).checksum();
    join(&header, &[kind, code, c0, c1, 0, 0, 0, 0])
}

/// The whole answer to a packet whose IPv6 header and first eight bytes behind it are `original`:
/// IP header, `ICMPv6` header and quote.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn unreachable_v6(original: &[u8; 48]) -> [u8; 96] {
    join(&unreachable_v6_head(original), original)
}

/// The first 48 bytes of [`unreachable_v6`]; `original` follows them.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn unreachable_v6_head(original: &[u8; 48]) -> [u8; 48] {
    // The answer goes the other way.
    let (destination, source) = ip::v6_addresses(original);
    let header = ip::v6(V6_PAYLOAD, ICMPV6, &source, &destination);
    let [kind, code] = UNREACHABLE_V6;
    let [c0, c1] = ip::pseudo(V6_PAYLOAD, ICMPV6, &source, &destination)
        .bytes(&UNREACHABLE_V6)
        .bytes(original)
        .checksum();
    join(&header, &[kind, code, c0, c1, 0, 0, 0, 0])
}
