//! The memory of the current packet. It is in a per-CPU map, because the stack of the XDP program
//! is too small, and the program's parts are verified separately and share nothing else.

use core::cell::Cell;
use core::hint::black_box;

use limiter_common::bucket::{Change, Generation, Slot};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Count, KeyLeases, KeyedEntry, MAX_LIMITS, MAX_TABLES, RULE_NONE, TableKey, WORDS,
};

use super::keys::key::KeyFacts;
use super::keys::key_cell::KeyCell;
use super::limits::weight::passed;
use super::result::{BudgetRef, ChargeTarget, Stale, Wish};
use crate::maps::Maps;
use crate::outcome::Packed;
use crate::packet::Facts;
use crate::register::OutParameter;

/// Number of accounts: one per table, one for a class to which the source table sends the packet,
/// and those of limiter's own budgets. A power of two, so that a masked index is within bounds.
pub const ACCOUNTS: usize = 2 * MAX_TABLES as usize;

/// The account of the source table's class.
pub const SOURCE_CLASS: u32 = MAX_TABLES;

/// The account of the budget of answers.
pub const REPLIES: u32 = SOURCE_CLASS + 1;

/// The account of the budget of new bans.
pub const BANS: u32 = SOURCE_CLASS + 2;

/// The account of a packet in one table: the plan, and the charges made.
#[derive(Default)]
#[repr(C)]
pub struct Account {
    pub(super) plan: Cell<u32>,
    /// The slot of the record if it is known without a bucket, otherwise [`Slot::NONE`].
    pub(super) fixed: Cell<u32>,
    /// The bucket that must be refreshed before the packet can be charged.
    pub(super) stale: Cell<Stale>,
    /// The bucket that was charged.
    pub(super) budget: Cell<BudgetRef>,
    /// The slot of the record whose limits are charged, and below it the scale bit of its words.
    pub(super) slot: Cell<u32>,
    pub(super) rule: Cell<u32>,
    /// The action of that rule to carry out.
    pub(super) action: Cell<u32>,
    /// The number of the reason that the rule counts.
    pub(super) reason: Cell<u32>,
    /// The weight of that reason, more than 0 if anything is planned.
    pub(super) weight: Cell<u32>,
    pub(super) leases: Cell<KeyLeases>,
    pub(super) charges: Cell<u32>,
    /// Number of limits to charge, for a packet in plain tables.
    pub(super) limits: Cell<u32>,
    pub(super) undos: [UndoCells; MAX_LIMITS],
}

impl Account {
    /// Sets what to charge, with nothing charged yet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_target<K>(&self, target: &ChargeTarget<'_, K>) {
        self.charges.set(0);
        self.budget.set(target.budget);
        self.slot.set(target.slot.index() << 1 | u32::from(target.scale));
    }

    /// The slot set by [`Account::set_target`], and the scale bit of the words.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn target(&self) -> (Slot, bool) {
        let slot = self.slot.get();
        (Slot::new(slot >> 1), slot & 1 != 0)
    }
}

/// The exchange that undoes a charge: a [`Charge`], from `new` to `old`.
#[derive(Default)]
#[repr(C)]
pub(super) struct UndoCells {
    charge: Cell<u64>,
    old: Cell<u64>,
    new: Cell<u64>,
}

impl UndoCells {
    /// The charge, with the word before and after it.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn get(&self) -> (Charge, u64, u64) {
        (Charge::from_raw(self.charge.get()), self.old.get(), self.new.get())
    }
}

/// The charge of a packet in a table where its key is compact.
#[derive(Clone, Copy)]
pub(super) struct CompactCharge {
    pub(super) change: Change,
    /// The line slot of a bucket in lines, as the register of an `Option<LineSlot>`.
    pub(super) line_slot: u64,
    pub(super) rule: u32,
    /// The number of the reason that the rule counts.
    pub(super) reason: u32,
}

impl CompactCharge {
    /// No charge. The compiler would turn plain zeros into a call of memset, as in `Facts::clear`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn none() -> Self {
        let none = black_box(0);
        let change = Change { old: none, new: none };
        Self { change, line_slot: none, rule: RULE_NONE, reason: Reason::Conforming.index() }
    }
}

/// The word that a charge changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// A word of the bucket, by its index.
    Word(u32),
    /// The used units of a lease, by its index.
    Lease(u32),
}

impl Charge {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn raw(self) -> u64 {
        match self {
            Self::Word(index) => u64::from(index),
            Self::Lease(index) => 1 << 32 | u64::from(index),
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn from_raw(raw: u64) -> Self {
        let index = (raw & 0xffff_ffff) as u32;
        if raw >> 32 == 0 { Self::Word(index) } else { Self::Lease(index) }
    }
}

/// The plan for a packet in one table, made by the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Plan {
    /// Nothing: the packet is not in the table, or has no rule.
    Nothing = 0,
    /// The rule's limits are to be charged.
    Charge = 1,
    /// The rule passes it uncharged and only counts it.
    Count = 2,
    /// The packet is over the rule's limits, and is charged to the class that the action names.
    Class = 3,
}

impl Plan {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Charge,
            2 => Self::Count,
            3 => Self::Class,
            _ => Self::Nothing,
        }
    }
}

/// The current packet. Every field except the facts is a cell, because a subprogram may call
/// another one that changes them.
#[repr(C)]
pub struct Scratch {
    /// The facts of the packet. Written before there is a shared reference.
    pub facts: Facts,
    pub(super) key_facts: Cell<KeyFacts>,
    keys: [KeyCell; MAX_TABLES as usize],
    /// The key of an entry to be evicted.
    pub(super) leaving: KeyCell,
    /// The key to look up in the rule trie.
    pub(super) probe: Cell<TableKey>,
    /// Words of a bucket that is being converted.
    pub(super) fresh: [Cell<u64>; WORDS],
    /// The instant of the change for the conversion, in ticks.
    pub(super) changed_at: Cell<u64>,
    /// A bucket that is being made.
    pub(super) made: Cell<KeyedEntry>,
    now: Cell<u64>,
    /// The earliest departure of the packet, in ticks; 0 for at once.
    departure: Cell<u64>,
    /// When the packet conforms in the current table, in ticks.
    pub(super) conforms_at: Cell<u64>,
    size: Cell<u64>,
    generation: Cell<u64>,
    /// The part of a subprogram's answer that does not fit into a register.
    pub out_parameter: OutParameter,
    /// A word of the tables of sources before and after the last charge there.
    change: [Cell<u64>; 2],
    /// The word of its source before the source table charged it.
    pub(super) source_old: Cell<u64>,
    /// The word after that.
    pub(super) source_new: Cell<u64>,
    /// The outcome of the source table: [`crate::outcome::Packed::raw`].
    pub(super) source_outcome: Cell<u64>,
    pub(super) leases: Cell<KeyLeases>,
    /// Whether the current key wants leases.
    pub(super) wish: Cell<Wish>,
    /// Memory for [`Scratch::unknown`].
    cursor: Cell<u32>,
    /// 1 if the daemon is lost and some rule depends on that.
    pub(super) daemon_lost: Cell<u32>,
    /// 1 if the packet is the first of its flow.
    pub(super) new_flow: Cell<u32>,
    /// 1 if the packet's flow must be recorded once it passes.
    pub(super) flows: Cell<u32>,
    /// 1 if the source table may have a rule.
    pub(super) sources: Cell<u32>,
    /// The tables where the packet's key is compact: bit n for table n.
    pub(super) compact: Cell<u32>,
    accounts: [Account; ACCOUNTS],
    /// Number of full keys of a packet in plain tables.
    pub(super) full_keys: Cell<u32>,
    /// Number of compact keys in the row.
    pub(super) compact_keys: Cell<u32>,
    /// 1 if the time of arrival is exact, 0 if it may be up to [`crate::clock::SLACK`] early.
    is_exact: Cell<u32>,
    /// The compact keys of the packet ([`limiter_common::bucket_key::BucketKey::word`]), in
    /// sequence.
    compact_words: [Cell<u64>; MAX_TABLES as usize],
    /// The charges in tables where the packet's key is compact.
    compact_charges: [Cell<CompactCharge>; MAX_TABLES as usize],
    /// The account that dropped the packet. Only set on the host.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) stopped: Cell<Option<u32>>,
}

impl Scratch {
    /// The memory before a packet.
    #[cfg(not(target_arch = "bpf"))]
    pub fn empty() -> Self {
        use bytemuck::Zeroable as _;
        Self {
            facts: Facts::EMPTY,
            key_facts: Cell::new(KeyFacts::EMPTY),
            keys: core::array::from_fn(|_| KeyCell::new(TableKey::EMPTY)),
            leaving: KeyCell::new(TableKey::EMPTY),
            probe: Cell::new(TableKey::EMPTY),
            fresh: [const { Cell::new(0) }; WORDS],
            changed_at: Cell::new(0),
            made: Cell::new(KeyedEntry::zeroed()),
            now: Cell::new(0),
            departure: Cell::new(0),
            conforms_at: Cell::new(0),
            size: Cell::new(0),
            generation: Cell::new(0),
            out_parameter: OutParameter::default(),
            change: [const { Cell::new(0) }; 2],
            source_old: Cell::new(0),
            source_new: Cell::new(0),
            source_outcome: Cell::new(0),
            leases: Cell::default(),
            wish: Cell::default(),
            cursor: Cell::new(0),
            daemon_lost: Cell::new(0),
            new_flow: Cell::new(0),
            flows: Cell::new(0),
            sources: Cell::new(0),
            compact: Cell::new(0),
            accounts: core::array::from_fn(|_| Account::default()),
            full_keys: Cell::new(0),
            compact_keys: Cell::new(0),
            is_exact: Cell::new(1),
            compact_words: [const { Cell::new(0) }; MAX_TABLES as usize],
            compact_charges: core::array::from_fn(|_| Cell::new(CompactCharge::none())),
            stopped: Cell::new(None),
        }
    }

    /// Sets the memory of a packet whose facts are there already.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn begin(&self, now: Ticks, size: FrameSize, generation: Generation) {
        self.key_facts.set(KeyFacts::of(&self.facts));
        self.now.set(now.get());
        self.departure.set(0);
        self.size.set(size.raw());
        self.generation.set(u64::from(generation.get()));
        self.flows.set(0);
        self.new_flow.set(0);
        self.daemon_lost.set(0);
    }

    /// True if the daemon is lost and some rule depends on that: such rules only count.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn daemon_lost(&self) -> bool {
        self.daemon_lost.get() != 0
    }

    /// Time of arrival.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn now(&self) -> Ticks {
        Ticks::new_within(self.now.get())
    }

    /// Sets the exact time of arrival.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_now(&self, now: Ticks) {
        self.now.set(now.get());
        self.is_exact.set(1);
    }

    /// The earliest departure of the packet, if it passes; `None` for at once.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn departure(&self) -> Option<Ticks> {
        let departure = self.departure.get();
        if departure == 0 { None } else { Some(Ticks::new_within(departure)) }
    }

    /// Delays the packet until an instant, or a later one that was set before.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn depart_at(&self, instant: Ticks) {
        if instant.get() > self.departure.get() {
            self.departure.set(instant.get());
        }
    }

    /// True if the time of arrival is exact.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact.get() != 0
    }

    /// Records that the time of arrival may be up to [`crate::clock::SLACK`] early.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn is_recent(&self) {
        self.is_exact.set(0);
    }

    /// Records that the table with the compact key at a place of the row drops the packet.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn stop_in_row(&self, place: u32) {
        let compact = self.compact.get();
        let mut tables = (0..MAX_TABLES).filter(|index| compact >> index & 1 != 0);
        self.stopped.set(tables.nth(place as usize));
    }

    /// The size of the frame.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn size<W: Maps>(&self) -> FrameSize {
        FrameSize::from_raw(self.size.get()).at_hook(W::SUPER_FRAMES)
    }

    /// Bytes of the frame: [`FrameSize::bytes`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn bytes(&self) -> u64 {
        FrameSize::from_raw(self.size.get()).bytes()
    }

    /// The rule set by which it is judged.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn generation(&self) -> Generation {
        Generation::new(self.generation.get())
    }

    /// The index in a form that is opaque to the verifier. Without `CAP_PERFMON` it does not allow
    /// an index with different known values on different paths, but allows an unknown one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn unknown(&self, index: u32) -> u32 {
        self.cursor.set(index);
        // Of nothing instead of the pointer, which would be left on the stack: there the verifier
        // then allows no smaller value without `CAP_PERFMON`.
        black_box(());
        self.cursor.get()
    }

    /// The last change of a word in the tables of sources.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn change(&self) -> Change {
        let [old, new] = &self.change;
        Change { old: old.get(), new: new.get() }
    }

    /// Sets the last change of a word in the tables of sources.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_change(&self, change: Change) {
        let [old, new] = &self.change;
        old.set(change.old);
        // As in `judge_source`.
        new.set(black_box(change.new));
    }

    /// Records that the packet conforms in a table, unless something more specific was recorded.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn conforms(&self) {
        let outcome = passed(Packed::from_raw(self.source_outcome.get()));
        self.source_outcome.set(outcome.raw());
    }

    /// The word of the packet's compact key at a place of its row.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn compact_key(&self, place: u32) -> Option<&Cell<u64>> {
        self.compact_words.get(place as usize & (MAX_TABLES as usize - 1))
    }

    /// The charge of the packet in a table where its key is compact.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn compact_charge(&self, index: u32) -> Option<&Cell<CompactCharge>> {
        self.compact_charges.get(index as usize & (MAX_TABLES as usize - 1))
    }

    /// Records that the current key has no leases, and wants none.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn forget_leases(&self) {
        self.leases.set(KeyLeases::ASKED);
        self.wish.set(Wish::Settled);
    }

    /// The leases of the packet's key in a table, as found by the check.
    #[cfg(not(target_arch = "bpf"))]
    pub fn leases(&self, index: u32) -> KeyLeases {
        self.account(index).map_or(KeyLeases::ASKED, |account| account.leases.get())
    }

    /// The units of the packet for a limit that counts `count`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn units<W: Maps>(&self, count: Count) -> u64 {
        match count {
            Count::Packets => self.size::<W>().packets(),
            Count::Bytes => self.size::<W>().bytes(),
            Count::Syns => u64::from(!matches!(self.facts.opens_connection(), Some(false))),
            Count::Flows => u64::from(self.new_flow.get()),
        }
    }

    /// The reason from the last check or charge in a table, and the number of its rule.
    #[cfg(not(target_arch = "bpf"))]
    pub fn last_reason(&self, index: u32) -> Option<(Reason, u32)> {
        let account = self.account(index)?;
        (account.rule.get() != RULE_NONE || account.plan.get() != Plan::Nothing as u32)
            .then(|| (Reason::from_index(account.reason.get()), account.rule.get()))
    }

    /// The table that dropped the packet, or [`SOURCE_CLASS`]; `None` if the source table did, or
    /// something before the rules.
    #[cfg(not(target_arch = "bpf"))]
    pub fn stopped(&self) -> Option<u32> {
        self.stopped.get()
    }

    /// The part of a subprogram's answer that does not fit into a register:
    /// [`crate::maps::Maps::out_parameter`].
    #[cfg(target_arch = "bpf")]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn out_parameter(&self) -> Option<&OutParameter> {
        Some(&self.out_parameter)
    }

    /// The account of the packet in a table, or of a class or budget.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn account(&self, index: u32) -> Option<&Account> {
        self.accounts.get(index as usize & (ACCOUNTS - 1))
    }

    /// Records in account `index` how to undo a charge.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn note(&self, index: u32, charge: Charge, old: u64, new: u64) {
        if let Some(account) = self.account(index)
            && let Some(undo) = account.undos.get(account.charges.get() as usize & (MAX_LIMITS - 1))
        {
            undo.charge.set(charge.raw());
            undo.old.set(old);
            undo.new.set(new);
            account.charges.set(account.charges.get() + 1);
        }
    }

    /// The key that [`super::begin`] has written for a table; `None` past the last one.
    #[cfg(not(target_arch = "bpf"))]
    pub fn located(&self, index: u32) -> Option<TableKey> {
        self.key(index).map(KeyCell::get)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn key(&self, index: u32) -> Option<&KeyCell> {
        self.keys.get(index as usize & (MAX_TABLES as usize - 1))
    }

    /// The slot of an account whose record is known without a bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn fixed(&self, index: u32) -> Option<Slot> {
        let account = self.account(index)?;
        let fixed = account.fixed.get();
        if fixed == Slot::NONE.index() { None } else { Some(Slot::new(fixed)) }
    }
}
