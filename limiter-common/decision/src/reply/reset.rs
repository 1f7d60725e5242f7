//! The reset of a TCP connection (RFC 9293, 3.10.7.1): what a host answers to a segment for which
//! it has no connection.
//!
//! | the segment has | sequence number | acknowledgement | flags |
//! |---|---|---|---|
//! | ACK | its acknowledgement number | 0 | RST |
//! | no ACK | 0 | its sequence number + its length | RST, ACK |
//!
//! A peer takes the first as the next byte that it waits for (RFC 5961, 3.2), and the second as the
//! answer to its SYN. A segment with RST is never answered: [`super::eligible`] sees to that.
//!
//! The length of a segment is that of its data, SYN and FIN counted as one each. The data is what
//! the length field of IP leaves behind the headers; where headers claim more than there is, none.

use limiter_common::header::{ACK, FIN, RST, SYN};
use network_types::ip::IpProto;

use super::bytes::{join, part};
use super::ip::{self, V4_HEADER, V6_HEADER};
use crate::checksum::Sum;

const TCP: u8 = IpProto::Tcp as u8;

/// The length of a TCP header without options, in bytes: of every reset.
const HEADER: u16 = 20;
/// The data offset of such a header: five words, in the upper four bits.
const DATA_OFFSET: u8 = 0x50;

/// The length of an IPv4 header without options, in bytes.
const V4_BYTES: u16 = 20;

/// The answer to a segment over IPv4. `original` is its IP header, without options, and the fixed
/// part of its TCP header.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn reset_v4(original: &[u8; 40]) -> [u8; 40] {
    let [_, _, l0, l1, ..] = *original;
    let carried = u16::from_be_bytes([l0, l1]).saturating_sub(V4_BYTES);
    // The answer goes the other way.
    let (destination, source) = ip::v4_addresses(original);
    let sum = ip::pseudo(HEADER, TCP, &source, &destination);
    join(
        &ip::v4(V4_BYTES + HEADER, TCP, source, destination),
        &reset(&part::<V4_HEADER, _, _>(original), carried, sum),
    )
}

/// The answer to a segment over IPv6. `original` is its IP header and the fixed part of its TCP
/// header, nothing between them.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn reset_v6(original: &[u8; 60]) -> [u8; 60] {
    let [_, _, _, _, l0, l1, ..] = *original;
    let carried = u16::from_be_bytes([l0, l1]);
    // The answer goes the other way.
    let (destination, source) = ip::v6_addresses(original);
    let sum = ip::pseudo(HEADER, TCP, &source, &destination);
    join(
        &ip::v6(HEADER, TCP, &source, &destination),
        &reset(&part::<V6_HEADER, _, _>(original), carried, sum),
    )
}

/// The TCP header of the answer. `carried` is what IP carries in bytes: the segment with its
/// header. `pseudo` is the sum of the answer's pseudo-header.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn reset(segment: &[u8; 20], carried: u16, pseudo: Sum) -> [u8; 20] {
    let source: [u8; 2] = part::<0, _, _>(segment);
    let destination: [u8; 2] = part::<2, _, _>(segment);
    let [offset, flags] = part::<12, _, _>(segment);
    let (sequence, acknowledgement, answer) = if flags & ACK != 0 {
        (u32::from_be_bytes(part::<8, _, _>(segment)), 0, RST)
    } else {
        let data = carried.saturating_sub(header_length(offset));
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let sequence = u32::from_be_bytes(part::<4, _, _>(segment));
        (0, sequence.wrapping_add(u32::from(data) + controls), RST | ACK)
    };
    // The answer goes the other way.
    let ports: [u8; 4] = join(&destination, &source);
    let numbers: [u8; 8] = join(&sequence.to_be_bytes(), &acknowledgement.to_be_bytes());
    let control = [DATA_OFFSET, answer];
    let checksum = pseudo.bytes(&ports).bytes(&numbers).bytes(&control).checksum();
    let head: [u8; 12] = join(&ports, &numbers);
    // No window, no urgent pointer.
    let tail: [u8; 8] =
        join(&join::<2, 2, 4>(&control, &[0; 2]), &join::<2, 2, 4>(&checksum, &[0; 2]));
    join(&head, &tail)
}

/// The length of a TCP header in bytes, from the byte with its data offset.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn header_length(offset: u8) -> u16 {
    u16::from(offset >> 4) * 4
}
