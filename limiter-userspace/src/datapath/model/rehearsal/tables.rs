//! The tables of a rehearsal.

use std::cell::Cell;

use limiter_common::algorithm::window::WallOffset;
use limiter_common::bucket::{Generation, Slot};
use limiter_common::outcome::Insert;
use limiter_common::table::Scratch;
use limiter_common::table::flow::FlowKey;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Action, Control, KeyedBucket, Lane, OwnBudget, Record, Shape, Table, TableKey, TrieValue,
    is_daemon_lost,
};
use limiter_common::world::Tables;

use super::super::tables::ModelKeyed;
use super::Rehearsal;

impl Tables for Rehearsal<'_> {
    type Keyed = ModelKeyed;

    fn table(&self, generation: Generation, index: u32) -> Option<&Table> {
        self.seen.table(generation, index)
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape> {
        self.seen.shape(generation, table, shape)
    }

    fn table_rule(&self, generation: Generation, key: &Cell<TableKey>) -> TrieValue {
        self.seen.table_rule(generation, key.get())
    }

    fn record(&self, slot: Slot) -> Option<&Record> {
        self.seen.record(slot)
    }

    fn daemon_lost(&self, now: Ticks) -> bool {
        is_daemon_lost(self.seen.control(Control::DaemonLost), now)
    }

    fn own_budget(&self, generation: Generation, budget: OwnBudget) -> Option<Slot> {
        OwnBudget::slot(self.seen.control(match (budget, generation.buffer()) {
            (OwnBudget::Replies, 0) => Control::EvenReplies,
            (OwnBudget::Replies, _) => Control::OddReplies,
            (OwnBudget::Bans, 0) => Control::EvenBans,
            (OwnBudget::Bans, _) => Control::OddBans,
        }))
    }

    fn action(&self, index: u32) -> Option<&Action> {
        self.seen.action(index)
    }

    fn keyed(&self, key: &Cell<TableKey>) -> Option<ModelKeyed> {
        let mut keyed = self.keyed.borrow_mut();
        if let Some(bucket) = keyed.get(&key.get()) {
            return Some(bucket.clone());
        }
        let bucket = ModelKeyed::of(self.seen.keyed(key.get())?);
        keyed.insert(key.get(), bucket.clone());
        Some(bucket)
    }

    fn insert_keyed(
        &self,
        scratch: &Scratch,
        key: &Cell<TableKey>,
        _made: &Cell<KeyedBucket>,
        resolved: u64,
    ) -> Insert {
        let made = self.admits(Lane::Keyed, scratch.now());
        if made == Insert::Made {
            self.keyed.borrow_mut().insert(key.get(), ModelKeyed::begun(resolved));
        }
        made
    }

    fn budget(&self, index: u32) -> Option<ModelKeyed> {
        let mut budgets = self.budgets.borrow_mut();
        if let Some(budget) = budgets.get(&index) {
            return Some(budget.clone());
        }
        let budget = ModelKeyed::of(self.seen.budget(index)?);
        budgets.insert(index, budget.clone());
        Some(budget)
    }

    fn flow(&self, flow: &FlowKey) -> Option<Ticks> {
        self.seen.flow(flow).map(Ticks::new)
    }

    fn set_flow(&self, _flow: &FlowKey, _now: Ticks) {
        // There is no second packet.
    }

    fn wall_offset(&self) -> WallOffset {
        WallOffset::from_raw(self.seen.control(Control::WallOffset))
    }

    fn count_rule(&self, _rule: u32, _reason: Reason, _length: u64, _add: bool) {
        // The counters are of packets that came.
    }
}
