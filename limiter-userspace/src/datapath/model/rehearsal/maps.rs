//! The maps of a rehearsal, as the decision sees them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::cell::Cell as SharedWord;
use limiter_common::line::{Lines, NoLine};
use limiter_common::outcome::Insert;
use limiter_common::packet::Facts;
use limiter_common::register::Aside;
use limiter_common::room::{AdmissionCells, EMPTY, HostSpace, SpaceWords, admission};
use limiter_common::source::Source;
use limiter_common::table::flow::FlowKey;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Action, Admission, Bucket, Control, KeyedBucket, Lane, Limit, ListEntry, Moment, Record, Shape,
    Table, TableKey, TrieValue, Uncounted,
};
use limiter_common::world::World;

use super::super::actions::{ModelBanRef, Surroundings};
use super::super::tables::ModelKeyed;
use super::super::{ModelMeter, ModelMeterRef};
use super::{Rehearsal, Seen};

/// The budget of new entries of one table: that of a CPU which has room, if there is one. Which
/// CPU will take the packet is not known.
pub(super) struct Budget {
    /// None without a CPU.
    cells: Option<AdmissionCells>,
    /// Whether CPUs differ, or the table turned entries away and is more than half full.
    doubtful: bool,
}

impl Budget {
    /// As it is at `now`.
    pub(super) fn of(seen: &Seen<'_>, lane: Lane, now: Ticks) -> Self {
        let space = seen.space(lane);
        let host = HostSpace::new(space);
        let cpus = seen.admissions(lane);
        let admits =
            |cpu: &&Admission| admission::charge(&&host, Ticks::new(cpu.tat), now).is_some();
        let mut sum = Admission::default();
        for cpu in cpus {
            sum.merge(*cpu);
        }
        let entries = sum.made.saturating_sub(sum.evicted);
        let chosen = cpus.iter().find(admits).or(cpus.first());
        let cells = chosen
            .map(|cpu| AdmissionCells { tat: Cell::new(cpu.tat), ..AdmissionCells::default() });
        let doubtful = cpus.iter().filter(admits).count() < cpus.len()
            || sum.full != 0 && entries.saturating_mul(2) >= space.entries;
        Self { cells, doubtful }
    }
}

impl Rehearsal<'_> {
    /// An entry is made where that is not sure.
    fn note_doubt(&self, lane: Lane) {
        if self.budgets_of_new.get(lane.index() as usize).is_some_and(|budget| budget.doubtful) {
            self.doubts.borrow_mut().insert(lane.index());
        }
    }
}

impl World for Rehearsal<'_> {
    type Meter = ModelMeterRef;
    type Line = NoLine;
    type Keyed = ModelKeyed;
    type Ban = ModelBanRef;

    fn control(&self, word: Control) -> u64 {
        self.seen.control(word)
    }

    fn now(&self, recent: Ticks) -> Ticks {
        recent
    }

    fn moment(&self, generation: u32) -> Moment {
        self.seen.moment(generation)
    }

    fn aside(&self) -> Option<&Aside> {
        None
    }

    fn listed(&self, source: &Source) -> Option<&ListEntry> {
        self.seen.listed(source, false)
    }

    fn listed_prefix(&self, source: &Source) -> Option<&ListEntry> {
        self.seen.listed(source, true)
    }

    fn ban(&self, source: &Source) -> Option<ModelBanRef> {
        let mut bans = self.bans.borrow_mut();
        if let Some(ban) = bans.get(source) {
            return Some(ban.clone());
        }
        let ban = ModelBanRef::of(self.seen.ban(source)?);
        bans.insert(*source, ban.clone());
        Some(ban)
    }

    fn insert_ban(&self, source: &Source) -> Insert {
        self.bans.borrow_mut().entry(*source).or_default();
        Insert::Made
    }

    fn source_rule(&self, generation: Generation, source: &Source) -> Option<Slot> {
        self.seen.slot(generation, source)
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.seen.limit(slot)
    }

    /// In either home, the bucket is known by its source.
    fn lines(&self, _lane: Lane) -> Option<Lines> {
        None
    }

    fn line(&self, _lane: Lane, _index: u32) -> Option<NoLine> {
        None
    }

    fn meter(&self, source: &Source) -> Option<ModelMeterRef> {
        let mut meters = self.meters.borrow_mut();
        if let Some(meter) = meters.get(source) {
            return Some(meter.clone());
        }
        let meter = ModelMeterRef(Arc::new(ModelMeter::new(self.seen.bucket(source)?)));
        meters.insert(*source, meter.clone());
        Some(meter)
    }

    fn insert(&self, source: &Source, bucket: &Bucket) -> Insert {
        self.note_doubt(limiter_common::room::source::lane(source));
        let meter = ModelMeterRef(Arc::new(ModelMeter::new(bucket)));
        self.meters.borrow_mut().insert(*source, meter);
        Insert::Made
    }

    fn remove(&self, source: &Source) {
        self.meters.borrow_mut().remove(source);
    }

    fn uncounted(&self) -> Option<&Cell<Uncounted>> {
        None
    }

    fn aggregate(&self, index: u32) -> Option<impl SharedWord> {
        let mut words = self.aggregates.borrow_mut();
        let word = if let Some(word) = words.get(&index) {
            Arc::clone(word)
        } else {
            let word = Arc::new(AtomicU64::new(self.seen.aggregate(index)?));
            words.insert(index, Arc::clone(&word));
            word
        };
        Some(Shared(word))
    }

    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        self.spaces.get(lane.index() as usize)
    }

    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        self.budgets_of_new.get(lane.index() as usize)?.cells.as_ref()
    }

    /// Each is empty: which entries may leave is not asked.
    fn frame(&self, _lane: Lane, _index: u32) -> Option<impl SharedWord> {
        Some(Shared(Arc::new(AtomicU64::new(EMPTY))))
    }

    fn frame_key(&self, _index: u32, _key: &Cell<TableKey>) {}

    fn set_frame_key(&self, _index: u32, _key: &Cell<TableKey>) {}

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
        key: &Cell<TableKey>,
        _made: &Cell<KeyedBucket>,
        resolved: u64,
    ) -> Insert {
        self.note_doubt(Lane::Keyed);
        self.keyed.borrow_mut().insert(key.get(), ModelKeyed::begun(resolved));
        Insert::Made
    }

    fn remove_keyed(&self, key: &Cell<TableKey>) {
        self.keyed.borrow_mut().remove(&key.get());
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

    fn count_rule(&self, _rule: u32, _reason: Reason, _length: u64, _add: bool) {
        // The counters are of packets that came.
    }
}

/// A word that several may hold.
struct Shared(Arc<AtomicU64>);

impl SharedWord for Shared {
    fn load(&self) -> u64 {
        SharedWord::load(&*self.0)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        SharedWord::compare_exchange(&*self.0, current, new)
    }
}

impl Surroundings for Rehearsal<'_> {
    /// Only the kernel knows. It decides about a ban, and not about the packet.
    fn is_established(&self, _facts: &Facts) -> bool {
        false
    }

    /// The daemon has put it there before the rules that say so.
    fn leads(&self, _action: &Action) -> bool {
        true
    }
}
