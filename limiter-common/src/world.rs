//! The maps, as the decision sees them: look-ups, inserts and counts. Nothing here decides.

use core::cell::Cell;

use crate::algorithm::Words;
use crate::algorithm::window::WallOffset;
use crate::bucket::{Generation, Slot};
use crate::cell::{Cell as SharedWord, Meter};
use crate::change::Changes;
use crate::outcome::Insert;
use crate::register::{Aside, Crosses};
use crate::room::Spaces;
use crate::source::Source;
use crate::table::Scratch;
use crate::table::flow::FlowKey;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{
    Action, Bucket, KeyedBucket, Limit, Listed, OwnBudget, Record, RuleSetHeader, Shape, Table,
    TableKey, TrieValue,
};

/// The maps, as the decision sees them.
pub trait Maps: Spaces + Changes + Sized {
    /// A bucket in place.
    type Meter: Meter + Crosses;

    /// Whether `limiter off` is in force.
    fn brake(&self) -> bool;

    /// The time now, when the packet came with one that may be up to [`crate::clock::SLACK`]
    /// before. What is charged is charged by this.
    fn exact(&self, recent: Ticks) -> Ticks {
        recent
    }

    /// What a step says beside a register. Asked in the XDP program alone.
    fn aside(&self) -> Option<&Aside> {
        None
    }

    /// What the lists say of a source at `now`: of the source itself, else of the longest prefix.
    fn listed(&self, source: &Source, now: Ticks) -> Option<Listed>;

    /// Whether a source is banned at the exact time of `now`.
    fn banned(&self, _source: &Source, _now: Ticks) -> bool {
        false
    }

    /// The rule set in force.
    fn generation(&self) -> Generation;

    /// What there is in a rule set beside the source table.
    fn header(&self, _generation: Generation) -> RuleSetHeader {
        RuleSetHeader::default()
    }

    /// Whether a rule set on trial has ended at the exact time of `now`: CPUs that disagree on the
    /// rule set would convert buckets to and fro. Asked only where the header says that the one in
    /// force is.
    fn trial_ended(&self, _now: Ticks) -> bool {
        false
    }

    /// The bucket of a source.
    fn meter(&self, source: &Source) -> Option<Self::Meter>;

    /// Counts a packet of a source that was dropped.
    fn count_drop(&self, _source: &Source, meter: &Self::Meter) {
        meter.count(false);
    }

    /// Makes a bucket, only if there is none and there is room: [`crate::room::insert`].
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert;

    /// A bucket that sources without one of their own share, by an index below
    /// [`crate::wire::AGGREGATES`].
    fn aggregate(&self, index: u32) -> Option<impl SharedWord>;

    /// The longest matching prefix of the rule set.
    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot>;

    /// The limit in a slot.
    fn limit(&self, slot: Slot) -> Option<&Limit>;
}

/// The state of one key or budget, in place.
pub trait Keyed: Words + Clone + Crosses {
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

/// The maps of the tables, as the decision sees them.
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

    /// Whether the daemon is lost: [`crate::wire::Control::DaemonLost`]. Asked only where the
    /// header says that a rule wants to know.
    fn daemon_lost(&self, now: Ticks) -> bool;

    /// The slot of the record of a budget of the limiter itself, if there is one.
    fn own_budget(&self, generation: Generation, budget: OwnBudget) -> Option<Slot>;

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

    /// A shared budget; behind the [`crate::wire::MAX_BUDGETS`] of them, what keys without a bucket
    /// share, by the number of their rule.
    fn budget(&self, index: u32) -> Option<Self::Keyed>;

    /// When a packet of a flow passed last.
    fn flow(&self, flow: &FlowKey) -> Option<Ticks>;

    /// Remembers that one passed.
    fn set_flow(&self, flow: &FlowKey, now: Ticks);

    /// Where the windows of the wall clock begin.
    fn wall_offset(&self) -> WallOffset;

    /// Counts one frame of `length` bytes under a rule; takes it back when `add` is false.
    fn count_rule(&self, rule: u32, reason: Reason, length: u64, add: bool);
}
