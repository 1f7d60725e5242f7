//! The outcome of a packet, and of an insert.

use limiter_common::bucket::Generation;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Limit, RULE_NONE, RuleSetHeader};

use crate::register::{Register, variants};

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The bucket was made.
    Made,
    /// Another CPU made it first.
    Exists,
    /// There is no space for it, or there are too many new ones.
    Refused,
}

/// The outcome of a packet: its reason, and the rule of the source table ([`RULE_NONE`] for none),
/// or for a dropped packet the rule that dropped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The reason; the verdict follows from it.
    pub reason: Reason,
    /// Number of the rule that decided, as in `RULE_STATS`.
    pub rule: u32,
    /// The reason that the rule counts.
    pub counted: Reason,
    /// The action that follows: an index into `ACTIONS`.
    pub action: u16,
}

impl Outcome {
    /// The outcome of a packet that left under a rule.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(reason: Reason, rule: u32) -> Self {
        Self { reason, rule, counted: reason, action: 0 }
    }

    /// The outcome of a packet that was judged without a rule.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn without_rule(reason: Reason) -> Self {
        Self::new(reason, RULE_NONE)
    }

    /// The outcome of a packet over a limit of the source table; in shadow mode it passes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn over(limit: &Limit) -> Self {
        let reason = limit.over();
        let action = if matches!(reason, Reason::OverLimit) { limit.action } else { 0 };
        Self { action, ..Self::new(reason, limit.rule) }
    }

    /// True if the packet is over a limit whose action is still to be carried out.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_deferred(&self) -> bool {
        matches!(self.reason, Reason::OverLimit) && self.action != 0
    }

    /// The outcome in one word.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn pack(self) -> Packed {
        let drops = matches!(self.reason.verdict(), Verdict::Drop);
        Packed(
            (self.rule as u64) << 32
                | (self.action as u64) << 16
                | (self.counted.index() as u64) << 9
                | (drops as u64) << 8
                | self.reason.index() as u64,
        )
    }
}

/// An [`Outcome`] in one word: `rule:32 | action:16 | counted:7 | drops:1 | reason:8`. The verifier
/// walks both sides of every branch on a reason, so it is unpacked as late as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed(u64);

limiter_common::raw_word!(Packed);

impl Packed {
    /// True if the packet is dropped.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn drops(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// True if events report the packet: it is dropped, or would be if its rule were not in shadow
    /// mode.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_reported(self) -> bool {
        self.drops() || self.is(Reason::Shadow)
    }

    /// True if the packet is over a limit whose action is still to be carried out:
    /// [`Outcome::is_deferred`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_deferred(self) -> bool {
        self.0 & 0xff == Reason::OverLimit as u64 && self.0 >> 16 & 0xffff != 0
    }

    /// The action that follows: an index into `ACTIONS`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn action(self) -> u32 {
        (self.0 >> 16 & 0xffff) as u32
    }

    /// The outcome of a packet after which no action follows.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn without_action(self) -> Self {
        Self(self.0 & !0xffff_0000)
    }

    /// Number of the rule that decided, as in `RULE_STATS`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn rule(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// True if the packet left with this reason.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is(self, reason: Reason) -> bool {
        self.0 & 0xff == reason as u64
    }

    /// The number of the reason.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn reason_index(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// The outcome of the packet if it passes instead, with the number of a reason, and an action.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn passed_as(self, reason: u32, action: u32) -> Self {
        let reason = (reason & 0xff) as u64;
        let action = ((action & 0xffff) as u64) << 16;
        Self(self.0 & !0xffff_01ff | action | reason)
    }

    /// The outcome of the packet if its sender was notified of the drop.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn rejected(self) -> Self {
        let rejected = Reason::Rejected as u64;
        Self(self.0 & !0xfeff | rejected << 9 | rejected)
    }

    /// The outcome in parts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn unpack(self) -> Outcome {
        Outcome {
            reason: Reason::from_index((self.0 & 0xff) as u32),
            rule: (self.0 >> 32) as u32,
            counted: Reason::from_index((self.0 >> 9 & 0x7f) as u32),
            action: (self.0 >> 16 & 0xffff) as u16,
        }
    }
}

variants!(Insert: Made Exists, else Refused; lost Refused);

impl Register for Packed {
    const LOST: Self = Outcome::without_rule(Reason::Contended).pack();

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        self.0
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self(register)
    }
}

/// The reason number that stands for no outcome.
pub(crate) const NO_REASON: u64 = 0xff;

impl Register for Option<Packed> {
    const LOST: Self = None;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(outcome) => outcome.0,
            None => NO_REASON,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register & 0xff == NO_REASON { None } else { Some(Packed(register)) }
    }
}

/// The result of everything before the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeTables {
    /// The packet needs no table: its outcome.
    Judged(Packed),
    /// The packet goes through the tables of a rule set.
    Tables(InForce),
}

/// The rule set that judges a packet, in one word: `generation:32 | header:24 | reason:8`. The
/// reason is `NO_REASON`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce(u64);

impl InForce {
    /// Packs the number of a rule set, and its header.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(generation: Generation, header: RuleSetHeader) -> Self {
        let header = header.raw() & RuleSetHeader::BITS;
        Self((generation.get() as u64) << 32 | header << 8 | NO_REASON)
    }

    /// The number of the rule set.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn generation(self) -> Generation {
        Generation::new(self.0 >> 32)
    }

    /// The header of the rule set.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn header(self) -> RuleSetHeader {
        RuleSetHeader::from_raw(self.0 >> 8 & RuleSetHeader::BITS)
    }
}

impl Register for InForce {
    const LOST: Self = Self(NO_REASON);

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        self.0
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self(register)
    }
}

impl Register for BeforeTables {
    const LOST: Self = Self::Judged(Outcome::without_rule(Reason::Contended).pack());

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Self::Judged(outcome) => outcome.0,
            Self::Tables(in_force) => in_force.0,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register & 0xff == NO_REASON {
            Self::Tables(InForce(register))
        } else {
            Self::Judged(Packed(register))
        }
    }
}
