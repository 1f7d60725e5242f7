//! The maps of the model, as the decision sees them.

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use limiter_common::bucket::{Generation, Slot};
use limiter_common::cell::Cell as SharedWord;
use limiter_common::line::Lines;
use limiter_common::outcome::Insert;
use limiter_common::register::Aside;
use limiter_common::room::{AdmissionCells, SpaceWords};
use limiter_common::source::Source;
use limiter_common::table::flow::FlowKey;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    ABI_VERSION, Action, Bucket, Control, KeyedBucket, LISTS_EXACT, LISTS_PREFIXES, Lane, Limit,
    ListEntry, MAX_BUDGETS, Moment, OwnBudget, Record, Shape, TRIE_FIXED_BITS, Table, TableKey,
    TrieValue, Uncounted,
};
use limiter_common::world::World;

use super::actions::ModelBanRef;
use super::lines::{Bucketed, ModelLine, ModelLines, ModelSource};
use super::tables::{ModelKeyed, bits, same_prefix};
use super::{Model, ModelMeter, ModelMeterRef, longest};
use crate::rules::model::TriePrefix;

/// Of the generation with the lowest bit `buffer`.
fn of_buffer(buffer: u64) -> Generation {
    Generation::new(buffer)
}

impl World for Model {
    type Meter = ModelSource;
    type Line = ModelLine;
    type Keyed = ModelKeyed;
    type Ban = ModelBanRef;

    fn control(&self, word: Control) -> u64 {
        let own = |budget, buffer| self.tables.own_budget(of_buffer(buffer), budget);
        match word {
            Control::Abi => ABI_VERSION,
            Control::Generation => self.generation,
            Control::Brake => self.brake.into(),
            Control::Lists => LISTS_EXACT | LISTS_PREFIXES,
            Control::EvenRuleSet => self.tables.header(of_buffer(0)).raw(),
            Control::OddRuleSet => self.tables.header(of_buffer(1)).raw(),
            Control::WallOffset => self.tables.offset.nanos(),
            Control::EvenReplies => own(OwnBudget::Replies, 0),
            Control::OddReplies => own(OwnBudget::Replies, 1),
            Control::EvenBans => own(OwnBudget::Bans, 0),
            Control::OddBans => own(OwnBudget::Bans, 1),
            Control::BansKept => 1,
            Control::TrialEnd => self.trial_end.get(),
            Control::DaemonLost => self.daemon_lost.get(),
            Control::EventCost | Control::EventCredit => 0,
        }
    }

    fn now(&self, recent: Ticks) -> Ticks {
        recent.plus(self.lag)
    }

    fn moment(&self, generation: u32) -> Moment {
        self.moments.of(generation)
    }

    fn aside(&self) -> Option<&Aside> {
        None
    }

    /// Not one that has ended: with old readings of the clock, too, entries end in time here.
    fn listed(&self, source: &Source) -> Option<&ListEntry> {
        let entry = self.lists.get(&TriePrefix::of_source(source.trie_key()));
        entry.filter(|entry| entry.at(self.judged_at).is_some())
    }

    fn listed_prefix(&self, source: &Source) -> Option<&ListEntry> {
        let own = TriePrefix::of_source(source.trie_key());
        let around = self.lists.iter().filter(|(prefix, _)| **prefix != own);
        longest(around, source).filter(|entry| entry.at(self.judged_at).is_some())
    }

    fn ban(&self, source: &Source) -> Option<ModelBanRef> {
        self.bans.get(source)
    }

    fn insert_ban(&self, source: &Source) -> Insert {
        self.bans.insert(source);
        Insert::Made
    }

    fn source_rule(&self, generation: Generation, source: &Source) -> Option<Slot> {
        let trie = self.tries.get(usize::try_from(generation.buffer()).ok()?)?;
        longest(trie.iter().map(|(prefix, slot)| (prefix, slot)), source)
            .map(|slot| Slot::new(*slot))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.limits.get(&slot.index())
    }

    fn lines(&self, lane: Lane) -> Option<Lines> {
        self.lines.as_ref().map(|lines| ModelLines::all(lines, lane))
    }

    fn line(&self, lane: Lane, index: u32) -> Option<ModelLine> {
        self.lines.as_ref()?.line(lane, index)
    }

    fn meter(&self, source: &Source) -> Option<ModelSource> {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        buckets.get(source).map(|meter| ModelSource::new(Bucketed::Map(meter.clone())))
    }

    fn insert(&self, source: &Source, bucket: &Bucket) -> Insert {
        let mut buckets = self.buckets.write().unwrap_or_else(PoisonError::into_inner);
        if buckets.contains_key(source) {
            return Insert::Exists;
        }
        buckets.insert(*source, ModelMeterRef(Arc::new(ModelMeter::new(bucket))));
        Insert::Made
    }

    fn remove(&self, source: &Source) {
        self.buckets.write().unwrap_or_else(PoisonError::into_inner).remove(source);
    }

    fn uncounted(&self) -> Option<&Cell<Uncounted>> {
        None
    }

    fn aggregate(&self, index: u32) -> Option<impl SharedWord> {
        self.room.aggregate(index)
    }

    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        self.room.host(lane)
    }

    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        self.room.cells(lane)
    }

    fn frame(&self, lane: Lane, index: u32) -> Option<impl SharedWord> {
        self.room.frame(lane, index)
    }

    fn frame_key(&self, index: u32, key: &Cell<TableKey>) {
        if let Some(place) = self.room.frame_key(index) {
            key.set(place.get());
        }
    }

    fn set_frame_key(&self, index: u32, key: &Cell<TableKey>) {
        if let Some(place) = self.room.frame_key(index) {
            place.set(key.get());
        }
    }

    fn table(&self, generation: Generation, index: u32) -> Option<&Table> {
        let tables = &self.tables.buffer(generation).tables;
        tables.get(usize::try_from(index).ok()?).map(|(table, _)| table)
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape> {
        let (_, shapes) =
            self.tables.buffer(generation).tables.get(usize::try_from(table).ok()?)?;
        shapes.get(usize::try_from(shape).ok()?)
    }

    fn table_rule(&self, generation: Generation, key: &Cell<TableKey>) -> TrieValue {
        let key = bits(&key.get());
        let trie = &self.tables.buffer(generation).trie;
        let longest = trie
            .iter()
            .filter(|(prefix, length, _)| {
                *length >= TRIE_FIXED_BITS && same_prefix(&bits(prefix), &key, *length)
            })
            .max_by_key(|(_, length, _)| *length);
        longest.map_or_else(TrieValue::default, |(_, _, value)| *value)
    }

    fn record(&self, slot: Slot) -> Option<&Record> {
        self.tables.records.get(&slot.index())
    }

    fn action(&self, index: u32) -> Option<&Action> {
        self.tables.actions.get(&index)
    }

    fn keyed(&self, key: &Cell<TableKey>) -> Option<ModelKeyed> {
        let keyed = self.tables.keyed.read().unwrap_or_else(PoisonError::into_inner);
        keyed.get(&key.get()).cloned()
    }

    fn insert_keyed(
        &self,
        key: &Cell<TableKey>,
        _made: &Cell<KeyedBucket>,
        resolved: u64,
    ) -> Insert {
        let mut keyed = self.tables.keyed.write().unwrap_or_else(PoisonError::into_inner);
        if keyed.contains_key(&key.get()) {
            return Insert::Exists;
        }
        keyed.insert(key.get(), ModelKeyed::begun(resolved));
        Insert::Made
    }

    fn remove_keyed(&self, key: &Cell<TableKey>) {
        self.tables.remove(&key.get());
    }

    fn budget(&self, index: u32) -> Option<ModelKeyed> {
        if index < MAX_BUDGETS {
            return self.tables.budgets.get(&index).cloned();
        }
        let mut overflow = self.tables.overflow.write().unwrap_or_else(PoisonError::into_inner);
        Some(overflow.entry(index).or_insert_with(|| ModelKeyed::begun(0)).clone())
    }

    fn flow(&self, flow: &FlowKey) -> Option<Ticks> {
        let flows = self.tables.flows.read().unwrap_or_else(PoisonError::into_inner);
        flows.get(flow).copied()
    }

    fn set_flow(&self, flow: &FlowKey, now: Ticks) {
        let mut flows = self.tables.flows.write().unwrap_or_else(PoisonError::into_inner);
        flows.insert(*flow, now);
    }

    fn count_rule(&self, rule: u32, reason: Reason, length: u64, add: bool) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let counters = rules.entry(rule).or_default();
        if add {
            counters.add(reason, length);
        } else {
            counters.take_back(reason, length);
        }
    }
}
