//! What is known of the packet under way. It lives in a per-CPU map: the stack of the XDP program
//! is too small, and its parts are verified one by one and share nothing else.

use bytemuck::{Pod, Zeroable};

use crate::bucket::{Generation, Slot};
use crate::meter::Undo;
use crate::packet::Facts;
use crate::time::Ticks;
use crate::wire::{Count, KeyedBucket, MAX_LIMITS, MAX_TABLES, TableKey};

/// Room for steps: one a table, and one for a class that the source table sends the packet to. A
/// power of two, so that a masked index is within it.
pub const STEPS: usize = 2 * MAX_TABLES as usize;

/// The step of the source table's class.
pub const SOURCE_CLASS: u32 = MAX_TABLES;

/// No budget is to be brought up to date.
pub(super) const REPAIR_KEY: u32 = u32::MAX;

/// What became of a packet in one table.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Step {
    /// A [`Planned`].
    pub(super) planned: u32,
    /// The slot of the record when it needs no bucket to be known, otherwise [`Slot::NONE`].
    pub(super) fixed: u32,
    /// What is stale: the slot whose budget is, or [`REPAIR_KEY`].
    pub(super) repair: u32,
    /// One more than the budget that was charged, 0 for the key's own bucket.
    pub(super) budget: u32,
    /// The rule that it fell under.
    pub(super) rule: u32,
    /// The action of that rule that follows.
    pub(super) action: u32,
    /// The number of the reason that the rule counts.
    pub(super) reason: u32,
    /// Charges made.
    pub(super) charges: u32,
    /// How to take them back.
    pub(super) undos: [Undo; MAX_LIMITS],
}

/// What the look at a table says is to be done in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Planned {
    /// The packet is not in the table, or no rule is for it.
    Nothing = 0,
    /// The rule's limits are to be charged.
    Charge = 1,
    /// The rule lets it pass uncharged: it counts only.
    Count = 2,
    /// It is over the rule's limits, and charged to the class that the action names.
    Class = 3,
}

impl Planned {
    #[inline(always)]
    pub(super) const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Charge,
            2 => Self::Count,
            3 => Self::Class,
            _ => Self::Nothing,
        }
    }
}

/// The packet under way.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Scratch {
    /// What it says about itself.
    pub facts: Facts,
    /// By table, the key of the packet.
    pub(super) keys: [TableKey; MAX_TABLES as usize],
    /// The key that is looked for in the rule trie.
    pub(super) probe: TableKey,
    /// A bucket that is being made or converted.
    pub(super) fresh: KeyedBucket,
    /// When it came, in ticks.
    pub(super) now: u64,
    /// Its length in bytes.
    pub(super) length: u64,
    /// The rule set that it is judged by.
    pub(super) generation: u64,
    /// The word of its source before the source table charged it, and after.
    pub(super) source_undo: [u64; 2],
    /// 1 when it is the first of its flow.
    pub(super) new_flow: u32,
    /// The flow that it belongs to is remembered once it passes.
    pub(super) flows: u32,
    /// By table.
    pub(super) steps: [Step; STEPS],
}

impl Scratch {
    /// Begins a packet whose facts are there already.
    #[inline(always)]
    pub fn begin(&mut self, now: Ticks, length: u64, generation: Generation) {
        self.now = now.get();
        self.length = length;
        self.generation = u64::from(generation.get());
        self.flows = 0;
        self.new_flow = 0;
    }

    /// When the packet came.
    #[inline(always)]
    pub const fn now(&self) -> Ticks {
        Ticks::new(self.now)
    }

    /// Its length in bytes.
    #[inline(always)]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The rule set that it is judged by.
    #[inline(always)]
    pub const fn generation(&self) -> Generation {
        Generation::new(self.generation)
    }

    /// What it counts as.
    #[inline(always)]
    pub(super) fn units(&self, count: Count) -> u64 {
        match count {
            Count::Packets => 1,
            Count::Bytes => self.length,
            Count::Syns => u64::from(!matches!(self.facts.opens_connection(), Some(false))),
            Count::Flows => self.new_flow as u64,
        }
    }

    /// A step.
    #[inline(always)]
    pub(super) fn step(&self, index: u32) -> Option<&Step> {
        self.steps.get(index as usize & (STEPS - 1))
    }

    /// A step, to be changed.
    #[inline(always)]
    pub(super) fn step_mut(&mut self, index: u32) -> Option<&mut Step> {
        self.steps.get_mut(index as usize & (STEPS - 1))
    }

    /// The key of the packet in a table.
    #[inline(always)]
    pub fn key(&self, index: u32) -> Option<&TableKey> {
        self.keys.get(index as usize & (MAX_TABLES as usize - 1))
    }

    /// The key of the packet in a table, to be changed.
    #[inline(always)]
    pub(super) fn key_mut(&mut self, index: u32) -> Option<&mut TableKey> {
        self.keys.get_mut(index as usize & (MAX_TABLES as usize - 1))
    }

    /// The slot of a step whose record is known without a bucket.
    #[inline(always)]
    pub(super) fn fixed(&self, index: u32) -> Option<Slot> {
        let step = self.step(index)?;
        if step.fixed == Slot::NONE.index() { None } else { Some(Slot::new(step.fixed)) }
    }
}
