//! Tables: limits by any facts of a packet, several to a rule, of any algorithm.
//!
//! A table is a list of facts and of masks; they make the key of the bucket, so the bucket is found
//! before any rule is asked. Which rule holds for a key is remembered in the bucket, as in the
//! source table. A packet goes through [`drive`]: it is looked at in every table, then judged by
//! the source table, then charged in every table.
//!
//! [`Steps`] are the parts of that. On the host each is a function call; in the kernel each is a
//! function that the verifier proves by itself, so that its work does not multiply.

#[cfg(not(target_arch = "bpf"))]
mod direct;
mod drive;
mod evict;
pub mod flow;
mod held;
mod judge;
mod key;
pub mod limit;
mod lookup;
mod over;
mod ready;
mod scratch;
mod spend;

#[cfg(not(target_arch = "bpf"))]
pub use direct::Direct;
pub use drive::{Steps, begin_packet, drive, dropped, finish, judge_source, undo_source};
pub use evict::retire;
pub use judge::{Paid, Prepared, Sight, give_back, passed, pay, prepare, sight};
pub use key::{Described, flag_class, locate};
pub use lookup::{most_specific, of_shape};
pub use over::{count_class, over_source};
pub use ready::{clear_fresh, freeze, is_used, limit_words, store_fresh, update};
pub use scratch::{BANS, REPLIES, SOURCE_CLASS, STEPS, Scratch, Step};
pub use spend::spend;

use core::cell::Cell;

use crate::algorithm::Words;
use crate::algorithm::window::WallOffset;
use crate::bucket::{Generation, Slot};
use crate::cell::Cell as SharedWord;
use crate::change::Changes;
use crate::engine::{Insert, Maps, Packed};
use crate::meter::{Charged, Peek};
use crate::rounds::Rounds;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{
    Action, KeyedBucket, MAX_LIMITS, MAX_RECORDS, MAX_TABLES, Record, Shape, Table, TableKey,
    TrieValue, WORDS,
};

/// The state of one key or budget, in place.
pub trait Keyed: Words + Clone {
    /// The first word.
    fn first(&self) -> impl SharedWord;

    /// Where [`crate::bucket::Resolved`] lives.
    fn resolved(&self) -> impl SharedWord;

    /// Counts one packet that passed or was dropped; takes it back when `add` is false.
    fn count(&self, passed: bool, add: bool);

    /// Notes when a packet came.
    fn touch(&self, now: Ticks);

    /// When one came last, in ticks.
    fn used(&self) -> u64;

    /// How many were counted.
    fn packets(&self) -> u64;
}

/// The maps of the tables, as the decision sees them. The methods with a body are parts of the
/// decision; the kernel makes a function of each.
pub trait Tables: Changes + Sized {
    /// A bucket in place.
    type Keyed: Keyed;

    /// A table of a rule set.
    fn table(&self, generation: Generation, index: u32) -> Option<&Table>;

    /// A shape of a table.
    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape>;

    /// The rule with the longest source prefix among those that have all the rest of the key;
    /// [`TrieValue::default`] when there is none.
    fn table_rule(&self, generation: Generation, key: &Cell<TableKey>) -> TrieValue;

    /// The record in a slot.
    fn record(&self, slot: Slot) -> Option<&Record>;

    /// Whether the daemon is lost: [`crate::wire::Control::DaemonLost`]. Asked only where the header says that
    /// a rule wants to know.
    fn daemon_lost(&self, now: Ticks) -> bool;

    /// An action. Index 0 is a plain drop.
    fn action(&self, index: u32) -> Option<&Action>;

    /// The bucket of a key.
    fn keyed(&self, key: &Cell<TableKey>) -> Option<Self::Keyed>;

    /// Makes a bucket of zeros but for `resolved`, only if there is none and there is room:
    /// [`crate::room::insert`]. `made` is for its value.
    fn insert_keyed(
        &self,
        scratch: &Scratch,
        key: &Cell<TableKey>,
        made: &Cell<KeyedBucket>,
        resolved: u64,
    ) -> Insert;

    /// A shared budget; behind the [`crate::wire::MAX_BUDGETS`] of them, what keys without a bucket share,
    /// by the number of their rule.
    fn budget(&self, index: u32) -> Option<Self::Keyed>;

    /// When a packet of a flow passed last.
    fn flow(&self, flow: &flow::FlowKey) -> Option<Ticks>;

    /// Remembers that one passed.
    fn set_flow(&self, flow: &flow::FlowKey, now: Ticks);

    /// Where the windows of the wall clock begin.
    fn wall_offset(&self) -> WallOffset;

    /// Counts one frame of `length` bytes under a rule; takes it back when `add` is false.
    fn count_rule(&self, rule: u32, reason: Reason, length: u64, add: bool);

    /// [`count_class`].
    fn count_class(&self, scratch: &Scratch, index: u32, passed: bool, add: bool) {
        count_class(self, scratch, index, passed, add);
    }

    /// [`limit::peek`].
    fn peek_limit(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        slot: Slot,
        place: u32,
        scale: bool,
    ) -> Peek {
        limit::peek(self, scratch, bucket, slot, place, scale)
    }

    /// [`limit::charge`].
    fn charge_limit(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        slot: Slot,
        place: u32,
        scale: bool,
        index: u32,
    ) -> Charged {
        limit::charge(self, scratch, bucket, slot, place, scale, index)
    }

    /// [`most_specific`].
    fn most_specific(&self, scratch: &Scratch, index: u32) -> Slot {
        most_specific(self, scratch, index)
    }

    /// [`undo_step`].
    fn undo_step(&self, scratch: &Scratch, index: u32) {
        undo_step(self, scratch, index);
    }

    /// [`limit::attempt`].
    fn try_limit(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        slot: Slot,
        place: u32,
        scale: bool,
        index: u32,
    ) -> Charged {
        limit::attempt(self, scratch, bucket, slot, place, scale, index)
    }

    /// [`sight`].
    fn sight(&self, scratch: &Scratch, bucket: &Self::Keyed, slot: Slot, scale: bool) -> Sight {
        sight(self, scratch, bucket, slot, scale)
    }

    /// [`pay`].
    fn pay(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        slot: Slot,
        scale: bool,
        index: u32,
    ) -> Paid {
        pay(self, scratch, bucket, slot, scale, index)
    }

    /// [`prepare`].
    fn prepare(&self, scratch: &Scratch, bucket: Option<&Self::Keyed>, index: u32) -> Prepared {
        prepare(self, scratch, bucket, index)
    }

    /// [`give_back`].
    fn give_back(&self, scratch: &Scratch, bucket: Option<&Self::Keyed>, index: u32) {
        give_back(self, scratch, bucket, index);
    }

    /// [`passed`].
    fn passed(&self, scratch: &Scratch, bucket: Option<&Self::Keyed>, index: u32, soft: bool) {
        passed(self, scratch, bucket, index, soft);
    }

    /// [`of_shape`].
    fn of_shape(&self, scratch: &Scratch, index: u32, number: u32) -> u64 {
        of_shape(self, scratch, index, number)
    }

    /// [`is_used`].
    fn is_used(&self, scratch: &Scratch, bucket: &Self::Keyed) -> bool {
        is_used(scratch, bucket)
    }

    /// [`limit_words`].
    fn limit_words(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        slots: (Slot, Slot),
        place: u32,
        used: u64,
    ) {
        limit_words(self, scratch, bucket, slots, place, used);
    }

    /// [`update`].
    fn update(&self, scratch: &Scratch, bucket: &Self::Keyed, target: Slot, shared: bool) {
        update(self, scratch, bucket, target, shared);
    }

    /// [`freeze`].
    fn freeze(&self, scratch: &Scratch, bucket: &Self::Keyed, scale: bool) {
        freeze(scratch, bucket, scale);
    }

    /// [`clear_fresh`].
    fn clear_fresh(&self, scratch: &Scratch) {
        clear_fresh(scratch);
    }

    /// [`store_fresh`].
    fn store_fresh(&self, scratch: &Scratch, bucket: &Self::Keyed, scale: bool) {
        store_fresh(scratch, bucket, scale);
    }

    /// [`limit::used`].
    fn limit_used(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        before: Slot,
        after: Slot,
        place: u32,
    ) -> u64 {
        limit::used(self, scratch, bucket, before, after, place)
    }

    /// [`limit::fill`].
    fn limit_fill(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        slot: Slot,
        place: u32,
        at: Ticks,
    ) -> u64 {
        limit::fill(self, scratch, bucket, slot, place, at)
    }

    /// [`limit::converted`].
    fn limit_converted(&self, before: Slot, after: Slot, place: u32, used: u64) -> u64 {
        limit::converted(self, before, after, place, used)
    }

    /// [`limit::word`].
    fn limit_word(
        &self,
        scratch: &Scratch,
        bucket: &Self::Keyed,
        slots: (Slot, Slot),
        at: (u32, u32),
        used: u64,
    ) {
        limit::word(self, scratch, bucket, slots, at, used);
    }
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// Go on.
    Ready = 0,
    /// The packet is over the limit.
    Over = 1,
    /// Something is to be repaired first.
    Stale = 2,
    /// Other CPUs were in the way.
    Contended = 3,
}

impl Code {
    /// Takes the number that a step returned.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Ready,
            1 => Self::Over,
            2 => Self::Stale,
            _ => Self::Contended,
        }
    }
}

/// [`MAX_LIMITS`], as places are counted.
const PLACES: u64 = 4;

/// [`WORDS`], as words are counted.
const WORD_COUNT: u64 = 32;

const _: () = assert!(PLACES == MAX_LIMITS as u64 && WORD_COUNT == WORDS as u64);

/// A slot that is not [`Slot::NONE`] and never holds a record: `RECORDS` is not made that large.
const NO_RECORD: Slot = Slot::new(MAX_RECORDS);

/// Begins the look at a table: its key is left in `scratch`. False when it has none, because the
/// packet is not in the table or the table's rule is known without.
#[inline(always)]
pub fn begin<T: Tables>(maps: &T, scratch: &Scratch, index: u32) -> bool {
    let generation = scratch.generation();
    let mut fixed = NO_RECORD.index();
    let mut keyed = false;
    if let Some(table) = maps.table(generation, index)
        && let Some(place) = scratch.key(index)
        && let Some(key) = locate(table, &scratch.facts, &scratch.described.get())
    {
        place.set(key);
        fixed = table.fixed;
        keyed = fixed == Slot::NONE.index();
    }
    if let Some(step) = scratch.step(index) {
        step.fixed.set(fixed);
    }
    keyed
}

/// Looks at the packet in one table.
#[inline(always)]
pub fn peek<T: Tables>(maps: &T, bucket: Option<T::Keyed>, scratch: &Scratch, index: u32) -> Code {
    judge::peek(maps, bucket, scratch, index)
}

/// Repairs of one look before the packet is dropped as contended: of the key's bucket, of the
/// rule's budget, and of the budget of the class that it sends the packet to.
const MAX_REPAIRS: u64 = 3;

/// Makes ready what a look found missing. The caller looks again.
#[inline(always)]
pub fn repair<T: Tables>(maps: &T, scratch: &Scratch, index: u32) {
    ready::repair(maps, scratch, index);
}

/// After a look that found something stale: brings it up to the rules in force and looks again. `peek` and `repair` are
/// those of this module.
#[inline(always)]
pub fn look_again(peek: impl Fn() -> Code, repair: impl Fn()) -> Code {
    let mut code = Code::Stale;
    let mut rounds = Rounds::new();
    while matches!(code, Code::Stale) && rounds.more(MAX_REPAIRS) {
        repair();
        code = peek();
    }
    code
}

/// The bucket of the packet in a table, if it has one.
#[inline(always)]
pub fn bucket<T: Tables>(maps: &T, scratch: &Scratch, index: u32) -> Option<T::Keyed> {
    if index >= MAX_TABLES || scratch.fixed(index).is_some() {
        return None;
    }
    maps.keyed(scratch.key(index)?)
}

/// Charges the packet in one table. A bucket that was made meanwhile is looked up.
#[inline(always)]
pub fn charge<T: Tables>(
    maps: &T,
    bucket: Option<T::Keyed>,
    scratch: &Scratch,
    index: u32,
) -> Code {
    let bucket = bucket.or_else(|| self::bucket(maps, scratch, index));
    judge::charge(maps, bucket.as_ref(), scratch, index)
}

/// Takes back everything that was charged before table `index`, and counts the drop there: `drop`
/// is [`dropped`].
#[inline(always)]
pub fn fail<M: Maps + Tables>(
    maps: &M,
    scratch: &Scratch,
    index: u32,
    drop: impl FnOnce() -> Packed,
) -> Packed {
    let outcome = drop();
    let mut rounds = Rounds::new();
    while let Some(before) = rounds.next(u64::from(MAX_TABLES)) {
        // The class of the source table is charged before all tables.
        if before >= index || index == SOURCE_CLASS {
            break;
        }
        maps.undo_step(scratch, before);
    }
    if index != SOURCE_CLASS {
        maps.undo_step(scratch, SOURCE_CLASS);
    }
    undo_source(maps, scratch);
    outcome
}

/// Takes back a whole step: its charges and its counts.
#[inline(always)]
pub fn undo_step<T: Tables>(maps: &T, scratch: &Scratch, index: u32) {
    // The class of the source table has no bucket of its own.
    judge::undo(maps, bucket(maps, scratch, index).as_ref(), scratch, index);
}
