//! Actions on packets that are over a limit.

use bytemuck::{Pod, Zeroable};

/// The most different actions of a rule set and the previous one together.
pub const MAX_ACTIONS: u32 = 256;

/// The kind of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ActionKind {
    /// The packet is dropped.
    Drop = 0,
    /// The packet is dropped and its sender is notified, if `limiter_decision::reply` allows it and
    /// there is a budget.
    Reject = 1,
    /// The packet passes, with another DSCP or with ECN's congestion mark.
    Mark = 2,
    /// The packet is charged to a shared budget, and passes if that has room.
    Class = 3,
    /// The packet leaves by another interface.
    Interface = 4,
    /// Another CPU processes the packet.
    Cpu = 5,
    /// The packet is dropped, and its source may be banned for a time.
    Ban = 6,
    /// The packet passes.
    Pass = 7,
    /// The packet passes once it conforms, and may get ECN's congestion mark.
    Delay = 8,
}

/// [`Action::dscp`] of an action that sets ECN's congestion mark instead.
pub const MARK_ECN: u8 = 64;

/// Evidence that a ban needs: the source address is not forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Evidence {
    /// None: anybody who forges a source gets it banned.
    None = 0,
    /// The packet belongs to an established TCP connection of this host: the source has answered a
    /// SYN-ACK that only it could see.
    Established = 1,
}

/// One action: the value of `ACTIONS`. Index 0 is a plain drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Action {
    /// The kind of action: an [`ActionKind`].
    pub kind: u8,
    /// [`ActionKind::Mark`]: a DSCP of 0 to 63, or [`MARK_ECN`].
    pub dscp: u8,
    /// [`ActionKind::Ban`]: which strikes count, as an [`Evidence`].
    pub evidence: u8,
    /// Padding; zero.
    pub reserved: u8,
    /// [`ActionKind::Class`]: a slot of `RECORDS` whose rule has a shared budget.
    /// [`ActionKind::Interface`] and [`ActionKind::Cpu`]: the index of an interface or of a CPU.
    /// [`ActionKind::Ban`]: packets over the limit within [`Action::ban_memory`] that lead to a
    /// ban.
    pub target: u32,
    /// [`ActionKind::Ban`]: the length of the first ban in ticks. It doubles with each further ban.
    pub ban_first: u64,
    /// [`ActionKind::Ban`]: the longest ban in ticks.
    pub ban_longest: u64,
    /// [`ActionKind::Ban`]: ticks after which strikes and earlier bans are forgotten.
    pub ban_memory: u64,
}

const _: () = assert!(size_of::<Action>() == 32);

impl Action {
    /// The kind of the action.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn kind(&self) -> ActionKind {
        match self.kind {
            1 => ActionKind::Reject,
            2 => ActionKind::Mark,
            3 => ActionKind::Class,
            4 => ActionKind::Interface,
            5 => ActionKind::Cpu,
            6 => ActionKind::Ban,
            7 => ActionKind::Pass,
            8 => ActionKind::Delay,
            _ => ActionKind::Drop,
        }
    }
}

/// A source that was over a limit with the action [`ActionKind::Ban`]: the value of `BANS`. Changed
/// by compare-and-exchange only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Ban {
    /// The instant at which the ban ends, in ticks; 0 before the first ban. The program checks it.
    pub until: u64,
    /// `level:8 | strikes:16 | since:40`: the number of bans, the number of packets over the limit
    /// since the last one, and the time of the first of these packets, in units of 2^23 ticks. See
    /// `limiter_decision::ban`.
    pub history: u64,
    /// The rule that last banned it.
    pub rule: u64,
}
