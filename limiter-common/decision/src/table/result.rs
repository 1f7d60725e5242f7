//! The result of a subprogram of a table, and values that the subprograms share.

use limiter_common::bucket::Slot;
use limiter_common::verdict::Reason;
use limiter_common::wire::{MAX_BUDGETS, MAX_LIMITS, MAX_RECORDS, Record, WORDS};

use crate::register::number;

/// The result of a subprogram. A number instead of an enum: converting a register to an enum takes
/// a branch for each variant, and the verifier walks everything that follows for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct TableResult(u32);

impl TableResult {
    /// Nothing prevents the next step.
    pub const READY: Self = Self(0);
    /// The packet is over the limit.
    pub const OVER: Self = Self(1);
    /// A bucket must be refreshed first.
    pub const STALE: Self = Self(2);
    /// Other CPUs interfered.
    pub const CONTENDED: Self = Self(3);
}

/// The position of a packet in a table: a number, like [`TableResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Begun(u32);

impl Begun {
    /// The packet is not in the table.
    pub const ABSENT: Self = Self(0);
    /// The packet has a key, which is in the scratch.
    pub const KEYED: Self = Self(1);
    /// The rule of the table is known without a key.
    pub const FIXED: Self = Self(2);
}

number! {
    TableResult: |result| u64::from(result.0), |raw| Self((raw & 0xffff_ffff) as u32),
        lost Self::CONTENDED;
    Begun: |begun| u64::from(begun.0), |raw| Self((raw & 0xffff_ffff) as u32), lost Self::ABSENT;
}

/// [`MAX_LIMITS`], as places are counted.
pub(super) const PLACES: u64 = 4;

/// [`WORDS`], as words are counted.
pub(super) const WORD_COUNT: u64 = 32;

const _: () = assert!(PLACES == MAX_LIMITS as u64 && WORD_COUNT == WORDS as u64);

/// A slot other than [`Slot::NONE`] that never holds a record, because `RECORDS` is never that
/// large.
pub(super) const NO_RECORD: Slot = Slot::new(MAX_RECORDS);

/// A bucket that must be brought up to the rules in force before a packet can be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Stale(u32);

impl Stale {
    /// The bucket of the packet's key. It is made if there is none.
    pub(super) const KEY: Self = Self(u32::MAX);

    /// The budget to which the record in a slot is charged.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn budget_of(slot: Slot) -> Self {
        Self(slot.index())
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn is_key(self) -> bool {
        self.0 == Self::KEY.0
    }

    /// The slot of [`Stale::budget_of`]; [`Slot::NONE`] for [`Stale::KEY`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn slot(self) -> Slot {
        Slot::new(self.0)
    }
}

impl Default for Stale {
    fn default() -> Self {
        Self::KEY
    }
}

/// The bucket to which the limits of a record are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct BudgetRef(u32);

impl BudgetRef {
    /// The bucket of the packet's key.
    pub(super) const OWN: Self = Self(0);

    /// The shared budget of a record; without one, the overflow bucket of its rule, which keys
    /// without a bucket share.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn of(record: &Record) -> Self {
        let overflow = (MAX_BUDGETS + 1).wrapping_add(record.rule);
        Self(if record.budget == 0 { overflow } else { record.budget })
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn is_own(self) -> bool {
        self.0 == 0
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn is_overflow(self) -> bool {
        self.0 > MAX_BUDGETS
    }

    /// The index into `BUDGETS`; meaningless for [`BudgetRef::OWN`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn index(self) -> u32 {
        self.0.wrapping_sub(1)
    }
}

/// A record and the bucket to which its limits are charged.
pub(super) struct ChargeTarget<'m, K> {
    pub(super) record: &'m Record,
    pub(super) slot: Slot,
    pub(super) bucket: K,
    /// The scale bit of the bucket's words.
    pub(super) scale: bool,
    pub(super) budget: BudgetRef,
    /// The bucket to refresh if the words turn out to belong to another rule.
    pub(super) stale: Stale,
}

impl<K> ChargeTarget<'_, K> {
    /// The reason for counting a packet within the limits.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn within(&self) -> Reason {
        if self.budget.is_overflow() { Reason::Aggregate } else { Reason::Conforming }
    }
}

/// Whether the current key wants leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Wish {
    /// The key has leases, or has asked for them, or its limits belong to this node alone.
    #[default]
    Settled = 0,
    /// The key has no leases, and needs none so far.
    Free = 1,
    Asks = 2,
}
