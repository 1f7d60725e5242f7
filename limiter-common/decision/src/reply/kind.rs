//! Kinds of answers, and how long they are.

use crate::register::Register;

/// The kind of an answer to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyKind {
    /// ICMP, type 3 and code 13 (RFC 1812, 5.2.7.1), by [`super::unreachable_v4`].
    UnreachableV4,
    /// `ICMPv6`, type 1 and code 1 (RFC 4443, 3.1), by [`super::unreachable_v6`].
    UnreachableV6,
    /// A reset of a TCP connection over IPv4, by [`super::reset_v4`].
    ResetV4,
    /// A reset of a TCP connection over IPv6, by [`super::reset_v6`].
    ResetV6,
}

impl Register for Option<ReplyKind> {
    const LOST: Self = None;

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
