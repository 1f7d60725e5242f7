//! Answers to a packet that is not let through, sent back where it came from: "communication
//! administratively prohibited" by ICMP, and a reset for TCP.
//!
//! The steps, in this order:
//!
//! 1. [`eligible`] says whether the packet may be answered at all, and how.
//! 2. [`ReplyKind::length_within`] says how long the answer is, and that it is no longer than its
//!    cause: anybody who forges a source gets no amplifier.
//! 3. [`is_intact_v4`] says of an IPv4 header that it arrived as it was sent: of others, nobody
//!    knows whom the answer would reach.
//! 4. [`unreachable_v4`], [`unreachable_v6`], [`reset_v4`] or [`reset_v6`] builds it, from the
//!    network header on.
//! 5. [`link`] turns the addresses of the link around. VLAN tags stay as they are.
//!
//! A limit on the answers themselves is left to the caller (RFC 1812, 4.3.2.8; RFC 4443, 2.4 (f)
//! demands it), because a forged source gets an answer that it never asked for.
//!
//! The answer's source is the destination of its cause, as if the host there had answered. Of a
//! packet that was only to be forwarded, RFC 1812, 4.3.2.4 and RFC 4443, 2.2 would have the
//! router's own address there in ICMP: the XDP program does not know it, and what it sends does not
//! show that there is a limiter on the way. Two limiters never answer each other: neither errors of
//! ICMP nor resets are answered.
//!
//! The checksum of the cause's transport header is not verified. It covers the whole packet, and on
//! virtual links it may not be there yet (checksum offload).

mod bytes;
mod eligible;
mod icmp;
mod ip;
mod kind;
mod reset;

pub use eligible::eligible;
pub use icmp::{unreachable_v4, unreachable_v4_head, unreachable_v6, unreachable_v6_head};
pub use ip::is_intact_v4;
pub use kind::ReplyKind;
pub use reset::{reset_v4, reset_v6};

use bytes::{join, part};

/// The link addresses of the answer, from those of its cause: the first twelve bytes of Ethernet,
/// destination and source, swapped.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn link(addresses: &[u8; 12]) -> [u8; 12] {
    join(&part::<6, 6, _>(addresses), &part::<0, 6, _>(addresses))
}
