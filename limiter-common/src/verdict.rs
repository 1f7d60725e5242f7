//! Verdicts on packets, and their reasons. Every packet leaves with exactly one [`Reason`], and
//! every reason has a counter, so the counters add up to all packets seen.

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes on to the network stack.
    Pass,
    /// The packet is dropped.
    Drop,
}

/// The reason of a verdict. The numbers are the indices of the `REASONS` map and part of the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// Within its limit.
    Conforming = 0,
    /// A rule says `unlimited`.
    Unlimited = 1,
    /// No rule matches.
    NoRule = 2,
    /// Neither IPv4 nor IPv6: ARP, LLDP, STP and the like.
    NotIp = 3,
    /// Neighbour or router discovery from this link (RFC 4861; hop limit 255 proves the link).
    NeighbourDiscovery = 4,
    /// It has more than two VLAN tags.
    DeepVlan = 5,
    /// It is too short for the header that its type announces.
    Truncated = 6,
    /// The IP version does not fit the type.
    Malformed = 7,
    /// The bypass is on: `limiter off`.
    Bypass = 8,
    /// It has no bucket and cannot get one now, by a rule that says `pass`; or the clock is past
    /// its range.
    Untracked = 9,
    /// Dropped: over a limit of its rule.
    OverLimit = 10,
    /// Other CPUs changed the bucket at every attempt.
    Contended = 11,
    /// Over its limit, but the rule is in shadow mode.
    Shadow = 12,
    /// The source is on the allow list.
    Allowed = 13,
    /// The source is on the deny list.
    Denied = 14,
    /// Over its limit, and marked: DSCP or ECN.
    Marked = 15,
    /// Over its limit, and its sender was notified.
    Rejected = 16,
    /// Over its limit, within the budget of a slower class, and not delayed there.
    Class = 17,
    /// Over its limit, and sent to another interface or CPU.
    Redirected = 18,
    /// The source is banned.
    Banned = 19,
    /// The source has no bucket of its own and cannot get one now: within the shared bucket.
    Aggregate = 20,
    /// The source has no bucket of its own and cannot get one now: over the shared bucket.
    OverAggregate = 21,
    /// The source has no bucket of its own and cannot get one now: the rule says `drop`.
    TableFull = 22,
    /// No host can have the source, and the rule file says `martians: drop`.
    Martian = 23,
    /// A rule blocks it: `action: drop` without a limit.
    Blocked = 24,
    /// Over its limit, and delayed until it conforms to that limit or to one of its class.
    Delayed = 25,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 26] = [
        Self::Conforming,
        Self::Unlimited,
        Self::NoRule,
        Self::NotIp,
        Self::NeighbourDiscovery,
        Self::DeepVlan,
        Self::Truncated,
        Self::Malformed,
        Self::Bypass,
        Self::Untracked,
        Self::OverLimit,
        Self::Contended,
        Self::Shadow,
        Self::Allowed,
        Self::Denied,
        Self::Marked,
        Self::Rejected,
        Self::Class,
        Self::Redirected,
        Self::Banned,
        Self::Aggregate,
        Self::OverAggregate,
        Self::TableFull,
        Self::Martian,
        Self::Blocked,
        Self::Delayed,
    ];

    /// The size of the `REASONS` map.
    pub const COUNT: usize = Self::ALL.len();

    /// The reason with a number; [`Reason::Contended`] if it does not exist.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_index(index: u32) -> Self {
        match index {
            0 => Self::Conforming,
            1 => Self::Unlimited,
            2 => Self::NoRule,
            3 => Self::NotIp,
            4 => Self::NeighbourDiscovery,
            5 => Self::DeepVlan,
            6 => Self::Truncated,
            7 => Self::Malformed,
            8 => Self::Bypass,
            9 => Self::Untracked,
            10 => Self::OverLimit,
            12 => Self::Shadow,
            13 => Self::Allowed,
            14 => Self::Denied,
            15 => Self::Marked,
            16 => Self::Rejected,
            17 => Self::Class,
            18 => Self::Redirected,
            19 => Self::Banned,
            20 => Self::Aggregate,
            21 => Self::OverAggregate,
            22 => Self::TableFull,
            23 => Self::Martian,
            24 => Self::Blocked,
            25 => Self::Delayed,
            _ => Self::Contended,
        }
    }

    /// The index of the counter.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn index(self) -> u32 {
        self as u32
    }

    /// The verdict that follows from the reason.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::OverLimit
            | Self::Contended
            | Self::Denied
            | Self::Rejected
            | Self::Banned
            | Self::OverAggregate
            | Self::TableFull
            | Self::Martian
            | Self::Blocked => Verdict::Drop,
            Self::Conforming
            | Self::Unlimited
            | Self::NoRule
            | Self::NotIp
            | Self::NeighbourDiscovery
            | Self::DeepVlan
            | Self::Truncated
            | Self::Malformed
            | Self::Bypass
            | Self::Untracked
            | Self::Shadow
            | Self::Allowed
            | Self::Marked
            | Self::Class
            | Self::Redirected
            | Self::Aggregate
            | Self::Delayed => Verdict::Pass,
        }
    }

    /// The name in output, metrics and documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conforming => "conforming",
            Self::Unlimited => "unlimited",
            Self::NoRule => "no-rule",
            Self::NotIp => "not-ip",
            Self::NeighbourDiscovery => "neighbour-discovery",
            Self::DeepVlan => "deep-vlan",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            // Labels of metrics and answers still use this name.
            Self::Bypass => "bypass",
            Self::Untracked => "untracked",
            Self::OverLimit => "over-limit",
            Self::Contended => "contended",
            Self::Shadow => "shadow",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Marked => "marked",
            Self::Rejected => "rejected",
            Self::Class => "class",
            Self::Redirected => "redirected",
            Self::Banned => "banned",
            Self::Aggregate => "aggregate",
            Self::OverAggregate => "over-aggregate",
            Self::TableFull => "table-full",
            Self::Martian => "martian",
            Self::Blocked => "blocked",
            Self::Delayed => "delayed",
        }
    }
}
