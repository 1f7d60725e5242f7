//! The network headers of the answers.

use network_types::ip::{Ipv4Hdr, Ipv6Hdr};

use super::bytes::{join, part};
use crate::checksum::Sum;

/// The lengths of the fixed headers, in bytes.
pub(super) const V4_HEADER: usize = Ipv4Hdr::LEN;
pub(super) const V6_HEADER: usize = Ipv6Hdr::LEN;

/// Hops until an answer is discarded.
const HOPS: u8 = 64;

/// RFC 791: version 4, five words.
const V4_START: u8 = 0x45;
/// Bit 1 of the flags, in the first byte of flags and fragment offset.
const DONT_FRAGMENT: u8 = 0x40;

/// RFC 8200: version 6, class and flow label zero.
const V6_START: u8 = 0x60;

/// True if the checksum of an IPv4 header without options is right. A wrong one forbids any answer
/// (RFC 1122, 3.2.1.2; RFC 1812, 4.3.2.7 and 5.2.2). The other tests of 5.2.2 are made by
/// [`super::eligible`] and [`super::ReplyKind::length_within`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_intact_v4(header: &[u8; V4_HEADER]) -> bool {
    Sum::ZERO.bytes(header).checksum() == [0, 0]
}

/// An IPv4 header without options. `length` is the total length in bytes.
///
/// The class is zero (RFC 1122, 3.2.2): answers to a flood get no priority. The id is zero because
/// a packet that is never fragmented needs none (RFC 6864, 4.1).
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn v4(
    length: u16,
    protocol: u8,
    source: [u8; 4],
    destination: [u8; 4],
) -> [u8; V4_HEADER] {
    let [l0, l1] = length.to_be_bytes();
    let start = [V4_START, 0, l0, l1, 0, 0, DONT_FRAGMENT, 0];
    let life = [HOPS, protocol];
    let checksum =
        Sum::ZERO.bytes(&start).bytes(&life).bytes(&source).bytes(&destination).checksum();
    let head: [u8; 12] = join(&start, &join::<2, 2, 4>(&life, &checksum));
    join(&head, &join::<4, 4, 8>(&source, &destination))
}

/// An IPv6 header. `payload` is the length of what follows it, in bytes. Class and flow label are
/// zero: no priority, as for [`v4`], and no flow (RFC 6437, 2).
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn v6(
    payload: u16,
    next: u8,
    source: &[u8; 16],
    destination: &[u8; 16],
) -> [u8; V6_HEADER] {
    let [l0, l1] = payload.to_be_bytes();
    let head: [u8; 24] = join(&[V6_START, 0, 0, 0, l0, l1, next, HOPS], source);
    join(&head, destination)
}

/// Source and destination of a packet, from its IPv4 header on.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn v4_addresses<const N: usize>(packet: &[u8; N]) -> ([u8; 4], [u8; 4]) {
    (part::<12, _, _>(packet), part::<16, _, _>(packet))
}

/// Source and destination of a packet, from its IPv6 header on.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn v6_addresses<const N: usize>(packet: &[u8; N]) -> ([u8; 16], [u8; 16]) {
    (part::<8, _, _>(packet), part::<24, _, _>(packet))
}

/// The sum of a pseudo-header: for IPv4 that of RFC 9293, 3.1, with addresses of four bytes, and
/// for IPv6 that of RFC 8200, 8.1, with sixteen. Its sum is the same whichever address comes first.
/// `length` is that of the transport header and what it carries, in bytes.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn pseudo<const N: usize>(
    length: u16,
    protocol: u8,
    source: &[u8; N],
    destination: &[u8; N],
) -> Sum {
    Sum::ZERO.bytes(source).bytes(destination).word(length).word(u16::from(protocol))
}
