//! Answers to a packet that is not let through, sent back where it came from: "communication
//! administratively prohibited" by ICMP, and a reset for TCP.
//!
//! The steps, in this order:
//!
//! 1. [`eligible`] says whether the packet may be answered at all, and how.
//! 2. [`ReplyKind::length_within`] says how long the answer is, and that it is no longer than its
//!    cause: whoever forges a source gets no amplifier.
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
//! tell that there is a limiter on the way. Two limiters never answer each other: neither errors of
//! ICMP nor resets are answered.
//!
//! The checksum of the cause's transport header is not verified. It covers the whole packet, and on
//! virtual links it may not be there yet (checksum offload).

mod bytes;
mod eligible;
mod icmp;
mod ip;
mod reset;

pub use eligible::eligible;
pub use icmp::{unreachable_v4, unreachable_v4_head, unreachable_v6, unreachable_v6_head};
pub use ip::is_intact_v4;
pub use reset::{reset_v4, reset_v6};

use crate::register::{Register, answer};

use bytes::{join, part};

/// The kind of an answer to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyKind {
    /// ICMP, type 3 and code 13 (RFC 1812, 5.2.7.1), by [`unreachable_v4`].
    UnreachableV4,
    /// `ICMPv6`, type 1 and code 1 (RFC 4443, 3.1), by [`unreachable_v6`].
    UnreachableV6,
    /// A reset of a TCP connection over IPv4, by [`reset_v4`].
    ResetV4,
    /// A reset of a TCP connection over IPv6, by [`reset_v6`].
    ResetV6,
}

answer!(Option<ReplyKind>, None);

impl Register for Option<ReplyKind> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            None => 0,
            Some(ReplyKind::UnreachableV4) => 1,
            Some(ReplyKind::UnreachableV6) => 2,
            Some(ReplyKind::ResetV4) => 3,
            Some(ReplyKind::ResetV6) => 4,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        match register {
            1 => Some(ReplyKind::UnreachableV4),
            2 => Some(ReplyKind::UnreachableV6),
            3 => Some(ReplyKind::ResetV4),
            4 => Some(ReplyKind::ResetV6),
            _ => None,
        }
    }
}

impl ReplyKind {
    /// The length of the answer in bytes, from the network header on.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn length(self) -> u32 {
        match self {
            Self::UnreachableV4 => 56,
            Self::UnreachableV6 => 96,
            Self::ResetV4 => 40,
            Self::ResetV6 => 60,
        }
    }

    /// The length of the answer in bytes, `None` when the packet must stay without an answer
    /// because
    ///
    /// * the answer would be longer than `packet`, or
    /// * the frame holds less than the packet claims. Its receiver discards such a packet, and what
    ///   would be quoted or counted is not there.
    ///
    /// `packet` is the length that IP gives: the total length of IPv4, or 40 + the payload length
    /// of IPv6. `received` is the length of the frame from the network header on, padding included.
    /// Both are in bytes. A packet that offloads left without a length, or with 0 for a
    /// jumbogram, has none here and is not answered.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn length_within(self, packet: u32, received: u32) -> Option<u32> {
        let length = self.length();
        if length > packet || packet > received { None } else { Some(length) }
    }
}

/// The link addresses of the answer, from those of its cause: the first twelve bytes of Ethernet,
/// destination and source, swapped.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn link(addresses: &[u8; 12]) -> [u8; 12] {
    join(&part::<6, 6, _>(addresses), &part::<0, 6, _>(addresses))
}
