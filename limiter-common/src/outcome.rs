//! What became of a packet, and of a new entry.

use crate::register::{Register, answer, variants};
use crate::verdict::{Reason, Verdict};
use crate::wire::{Limit, RULE_NONE};

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The bucket was made.
    Made,
    /// Another CPU made it first.
    Exists,
    /// There is no room for it, or there are more new ones than may be.
    Refused,
}

/// What happened to a packet, and under which rule of the source table ([`RULE_NONE`] for none). Of
/// a packet that was dropped: under which rule at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The reason; the verdict follows from it.
    pub reason: Reason,
    /// The rule number.
    pub rule: u32,
    /// What the rule counts.
    pub counted: Reason,
    /// What else to do: an index into `ACTIONS`.
    pub action: u16,
}

impl Outcome {
    /// A packet that left under a rule.
    #[inline(always)]
    pub const fn new(reason: Reason, rule: u32) -> Self {
        Self { reason, rule, counted: reason, action: 0 }
    }

    /// A packet that no rule was asked for.
    #[inline(always)]
    pub const fn without_rule(reason: Reason) -> Self {
        Self::new(reason, RULE_NONE)
    }

    /// A packet that is over a limit of the source table, or would be if its rule were not in
    /// shadow mode.
    #[inline(always)]
    pub const fn over(limit: &Limit) -> Self {
        let reason = limit.over();
        let action = if matches!(reason, Reason::OverLimit) { limit.action } else { 0 };
        Self { action, ..Self::new(reason, limit.rule) }
    }

    /// Whether it is over a limit whose action is still to be asked.
    #[inline(always)]
    pub const fn is_deferred(&self) -> bool {
        matches!(self.reason, Reason::OverLimit) && self.action != 0
    }

    /// In one word.
    #[inline(always)]
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
/// walks both sides of every branch over a reason, so it is unpacked as late as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed(u64);

impl Packed {
    /// Takes what [`Packed::raw`] gave.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The word.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether the packet is dropped.
    #[inline(always)]
    pub const fn drops(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// Whether the packet is one that events tell of: dropped, or it would be if its rule were not
    /// in shadow mode.
    #[inline(always)]
    pub const fn is_reported(self) -> bool {
        self.drops() || self.is(Reason::Shadow)
    }

    /// [`Outcome::is_deferred`].
    #[inline(always)]
    pub const fn is_deferred(self) -> bool {
        self.0 & 0xff == Reason::OverLimit as u64 && self.0 >> 16 & 0xffff != 0
    }

    /// What else to do: an index into `ACTIONS`.
    #[inline(always)]
    pub const fn action(self) -> u32 {
        (self.0 >> 16 & 0xffff) as u32
    }

    /// The rule number.
    #[inline(always)]
    pub const fn rule(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether the packet left with this reason.
    #[inline(always)]
    pub const fn is(self, reason: Reason) -> bool {
        self.0 & 0xff == reason as u64
    }

    /// The number of its reason.
    #[inline(always)]
    pub const fn reason_index(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// The same packet, passed with another reason, by its number, and with another action.
    #[inline(always)]
    #[must_use]
    pub const fn passed_as(self, reason: u32, action: u32) -> Self {
        let reason = (reason & 0xff) as u64;
        let action = ((action & 0xffff) as u64) << 16;
        Self(self.0 & !0xffff_01ff | action | reason)
    }

    /// The same packet, its sender told that it was dropped.
    #[inline(always)]
    #[must_use]
    pub const fn rejected(self) -> Self {
        let rejected = Reason::Rejected as u64;
        Self(self.0 & !0xfeff | rejected << 9 | rejected)
    }

    /// The outcome.
    #[inline(always)]
    pub const fn unpack(self) -> Outcome {
        Outcome {
            reason: Reason::from_index((self.0 & 0xff) as u32),
            rule: (self.0 >> 32) as u32,
            counted: Reason::from_index((self.0 >> 9 & 0x7f) as u32),
            action: (self.0 >> 16 & 0xffff) as u16,
        }
    }
}

answer!(Packed, Outcome::without_rule(Reason::Contended).pack());
variants!(Insert: Made Exists, else Refused; lost Refused);

impl Register for Packed {
    #[inline(always)]
    fn to_register(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        Self(register)
    }
}

/// The number of no reason.
const NO_REASON: u64 = 0xff;

impl Register for Option<Packed> {
    #[inline(always)]
    fn to_register(self) -> u64 {
        match self {
            Some(outcome) => outcome.0,
            None => NO_REASON,
        }
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        if register & 0xff == NO_REASON { None } else { Some(Packed(register)) }
    }
}

/// What a packet has come to before the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeTables {
    /// It is judged.
    Judged(Packed),
    /// It goes through so many tables.
    Tables(u32),
}

answer!(BeforeTables, Self::Judged(Outcome::without_rule(Reason::Contended).pack()));

impl Register for BeforeTables {
    #[inline(always)]
    fn to_register(self) -> u64 {
        match self {
            Self::Judged(outcome) => outcome.0,
            Self::Tables(tables) => u64::from(tables) << 32 | NO_REASON,
        }
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        if register & 0xff == NO_REASON {
            Self::Tables((register >> 32) as u32)
        } else {
            Self::Judged(Packed(register))
        }
    }
}
