//! Enums and constants for header fields.

/// The IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Version {
    /// IPv4.
    V4 = 4,
    /// IPv6.
    V6 = 6,
}

/// The direction of a packet through an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// It came in.
    #[default]
    In = 0,
    /// It goes out.
    Out = 1,
}

impl Direction {
    /// The name in rule files and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// The kind of fragment that a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Fragment {
    /// Not fragmented. Also an IPv6 "atomic" fragment (RFC 6946), which is both first and last.
    Whole = 0,
    /// The first fragment, which has the transport header.
    First = 1,
    /// A later fragment, without transport header and ports.
    Later = 2,
}

impl Fragment {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Whole, Self::First, Self::Later];

    /// The name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::First => "first",
            Self::Later => "later",
        }
    }
}

/// How far the facts of a packet could be read. A fact that was not reached is absent, so it never
/// matches a rule that asks for it; the reach is the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reach {
    /// All facts are known.
    Transport = 0,
    /// A fragment other than the first, which has no ports.
    LaterFragment = 1,
    /// More than `limiter_decision::packet::MAX_EXTENSIONS` extension headers, or they extend past
    /// `limiter_decision::packet::MAX_TRANSPORT_OFFSET`. The protocol is unknown.
    TooDeep = 2,
    /// The frame ends within a header, or IPv4's header length is below its minimum. Fields before
    /// that point are known: a TCP header cut after eight bytes (a "tiny fragment", RFC 1858) has
    /// ports but no flags.
    Cut = 3,
}

/// The ports of TCP, UDP, UDP-Lite, SCTP or DCCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The sender's port, in host byte order.
    pub source: u16,
    /// The receiver's port, in host byte order.
    pub destination: u16,
}

/// The beginning of an ICMP message in IPv4, or of an `ICMPv6` message in IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// ICMP code, which refines the type.
    pub code: u8,
}

impl Icmp {
    /// The type as keys contain it: one number, that of ICMP, for messages with the same meaning in
    /// both families (RFC 792, 4443, 4861). Other types are unchanged, so a number that only one
    /// family has assigned means that family's message in both.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn message(self, version: Version) -> u8 {
        match (version, self.kind) {
            // Destination unreachable.
            (_, 1) => 3,
            // Echo request and reply.
            (_, 128) => 8,
            (_, 129) => 0,
            // Router solicitation and advertisement, redirect.
            (_, 133) => 10,
            (_, 134) => 9,
            (_, 137) => 5,
            // Time exceeded, parameter problem. ICMP uses both numbers for other messages.
            (Version::V6, 3) => 11,
            (Version::V6, 4) => 12,
            (_, kind) => kind,
        }
    }
}

/// TCP flag: no more data from the sender.
pub const FIN: u8 = 0x01;
/// TCP flag: synchronise.
pub const SYN: u8 = 0x02;
/// TCP flag: reset.
pub const RST: u8 = 0x04;
/// TCP flag: acknowledgement.
pub const ACK: u8 = 0x10;

/// The protocol number of TCP (IANA "Assigned Internet Protocol Numbers").
pub const TCP: u8 = 6;

/// The protocol number of UDP.
pub const UDP: u8 = 17;
