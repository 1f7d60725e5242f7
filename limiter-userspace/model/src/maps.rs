//! The maps of the model as the decision sees them.

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    ABI_VERSION, Action, Ask, Bucket, Control, EntryKind, FlowKey, HostLease, KeyLeases,
    KeyedEntry, LISTS_EXACT, LISTS_PREFIXES, Limit, ListEntry, MAX_BUDGETS, Moment, OwnBudget,
    Record, RuleSetHeader, Shape, TRIE_FIXED_BITS, Table, TableKey, TrieValue, Uncounted,
};
use limiter_decision::cell::Cell as SharedWord;
use limiter_decision::entries::{AdmissionCells, EntryTableWords};
use limiter_decision::line::Lines;
use limiter_decision::maps::{KeptBucket, Maps};
use limiter_decision::outcome::Insert;
use limiter_decision::register::OutParameter;
use limiter_decision::stored::StoredIn;
use limiter_decision::table::KeyCell;
use limiter_rules::model::TriePrefix;

use super::bans::ModelBanRef;
use super::reading::Entry;
use super::tables::keyed::ModelKeyed;
use super::tables::lines::{ModelLine, ModelLines};
use super::tables::source_bucket::ModelSourceBucketRef;
use super::tables::{bits, same_prefix};
use super::trail::Step;
use super::{Model, longest};

/// A generation with the lowest bit `buffer`.
fn of_buffer(buffer: u64) -> Generation {
    Generation::new(buffer)
}

impl Maps for Model {
    const SUPER_FRAMES: bool = true;
    const DELAYS: bool = true;

    type Hashed = ModelSourceBucketRef;
    type Line = ModelLine;
    type Keyed = ModelKeyed;
    type Kept = KeptBucket<StoredIn<Self>>;
    type Lease = Arc<HostLease>;
    type Ban = ModelBanRef;

    fn control(&self, word: Control) -> u64 {
        let own = |budget, buffer| self.tables.own_budget(of_buffer(buffer), budget);
        let header = |buffer| {
            let header = self.tables.header(of_buffer(buffer));
            if header.drops_martians() {
                self.steps.reach(Step::Martians);
            }
            // Through the tables, so that answers say in which one a packet is, and tests compare
            // both routes.
            header.raw() & RuleSetHeader::BITS
        };
        match word {
            Control::Bypass => self.steps.reach(Step::Bypass),
            Control::Lists => self.steps.reach(Step::Lists),
            Control::BansKept => self.steps.reach(Step::Bans),
            _ => {}
        }
        match word {
            Control::Abi => ABI_VERSION,
            Control::Generation => self.generation,
            Control::Bypass => self.bypass.into(),
            Control::Lists => LISTS_EXACT | LISTS_PREFIXES,
            Control::EvenRuleSet => header(0),
            Control::OddRuleSet => header(1),
            Control::WallOffset => self.tables.offset.nanos(),
            Control::EvenReplies => own(OwnBudget::Replies, 0),
            Control::OddReplies => own(OwnBudget::Replies, 1),
            Control::EvenBans => own(OwnBudget::Bans, 0),
            Control::OddBans => own(OwnBudget::Bans, 1),
            Control::BansKept => 1,
            Control::TrialEnd => self.trial_end.get(),
            Control::DaemonLost => self.daemon_lost.get(),
            Control::EventCost
            | Control::EventCredit
            | Control::CaptureEnd
            | Control::Ifb
            | Control::Members => 0,
        }
    }

    fn now(&self, recent: Ticks) -> Ticks {
        recent.plus(self.lag)
    }

    fn moment(&self, generation: u32) -> Moment {
        self.asks(Entry::Moment(generation));
        self.moments.of(generation)
    }

    fn out_parameter(&self) -> Option<&OutParameter> {
        None
    }

    /// Ignores expired entries: entries end on time here, even with old clock readings.
    fn listed(&self, source: &Source) -> Option<&ListEntry> {
        let entry = self.lists.get(&TriePrefix::of_source(source.trie_key()));
        let entry = entry.filter(|entry| entry.at(self.judged_at).is_some());
        entry.or_else(|| self.missing(Entry::Listed(*source)))
    }

    fn listed_prefix(&self, source: &Source) -> Option<&ListEntry> {
        self.listed_around(source).filter(|entry| entry.at(self.judged_at).is_some())
    }

    fn ban(&self, source: &Source) -> Option<ModelBanRef> {
        self.bans.get(source).or_else(|| self.missing(Entry::Ban(*source)))
    }

    fn insert_ban(&self, source: &Source) -> Insert {
        self.bans.insert(source);
        Insert::Made
    }

    fn source_rule(&self, generation: Generation, bucket_key: &BucketKey) -> Option<Slot> {
        let trie = self.tries.get(usize::try_from(generation.buffer()).ok()?)?;
        longest(trie.iter().map(|(prefix, slot)| (prefix, slot)), bucket_key.trie_key())
            .map(|slot| Slot::new(*slot))
            .or_else(|| self.missing(Entry::Slot(generation, *bucket_key)))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.limits.get(&slot.index()).or_else(|| self.missing(Entry::Limit(slot)))
    }

    fn lines(&self, kind: EntryKind) -> Option<Lines> {
        if kind != EntryKind::Compact {
            self.steps.reach(Step::Sources);
        }
        self.lines.as_ref().map(|lines| ModelLines::all(lines, kind))
    }

    fn line(&self, kind: EntryKind, index: u32) -> Option<ModelLine> {
        self.lines.as_ref()?.line(kind, index)
    }

    fn source_bucket(&self, bucket_key: &BucketKey) -> Option<ModelSourceBucketRef> {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        buckets.get(bucket_key).cloned().or_else(|| self.missing(Entry::Bucket(*bucket_key)))
    }

    fn insert(&self, bucket_key: &BucketKey, bucket: &Bucket) -> Insert {
        let mut buckets = self.buckets.write().unwrap_or_else(PoisonError::into_inner);
        if buckets.contains_key(bucket_key) {
            return Insert::Exists;
        }
        buckets.insert(*bucket_key, ModelSourceBucketRef::of(bucket));
        Insert::Made
    }

    fn remove(&self, bucket_key: &BucketKey) {
        self.buckets.write().unwrap_or_else(PoisonError::into_inner).remove(bucket_key);
    }

    fn uncounted(&self) -> Option<&Cell<Uncounted>> {
        None
    }

    fn aggregate(&self, index: u32) -> Option<impl SharedWord> {
        self.asks(Entry::Aggregate(index));
        Some(self.entries.aggregate(index))
    }

    fn fingerprints(&self, index: u32) -> Option<impl SharedWord> {
        self.asks(Entry::Fingerprints(index));
        Some(self.entries.fingerprints(index))
    }

    fn entry_table(&self, kind: EntryKind) -> Option<impl EntryTableWords> {
        self.entries.host(kind)
    }

    fn admission(&self, kind: EntryKind) -> Option<&AdmissionCells> {
        self.entries.cells(kind)
    }

    fn ring_slot(&self, kind: EntryKind, index: u32) -> Option<impl SharedWord> {
        self.entries.ring_slot(kind, index)
    }

    fn ring_key(&self, index: u32, key: &KeyCell) {
        if let Some(place) = self.entries.ring_key(index) {
            key.set(place.get(), |key| self.key_name(key));
        }
    }

    fn set_ring_key(&self, index: u32, key: &KeyCell) {
        if let Some(place) = self.entries.ring_key(index) {
            place.set(key.get());
        }
    }

    fn table(&self, generation: Generation, index: u32) -> Option<&Table> {
        self.steps.reach(Step::Table(index));
        let tables = &self.tables.buffer(generation).tables;
        let table = tables.get(&index).map(|(table, _)| table);
        table.or_else(|| self.missing(Entry::Table(generation, index)))
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape> {
        let (_, shapes) = self.tables.buffer(generation).tables.get(&table)?;
        shapes.get(usize::try_from(shape).ok()?)
    }

    fn table_rule(&self, generation: Generation, key: &Cell<TableKey>) -> TrieValue {
        self.asks(Entry::TableRule(generation, key.get()));
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
        let record = self.tables.records.get(&slot.index());
        record.or_else(|| self.missing(Entry::Record(slot)))
    }

    fn action(&self, index: u32) -> Option<&Action> {
        self.tables.actions.get(&index).or_else(|| self.missing(Entry::Action(index)))
    }

    fn keyed(&self, key: &KeyCell) -> Option<ModelKeyed> {
        let keyed = self.tables.keyed.read().unwrap_or_else(PoisonError::into_inner);
        keyed.get(&key.get()).cloned().or_else(|| self.missing(Entry::Keyed(key.get())))
    }

    fn insert_keyed(&self, key: &KeyCell, _made: &Cell<KeyedEntry>, resolved: u64) -> Insert {
        let mut keyed = self.tables.keyed.write().unwrap_or_else(PoisonError::into_inner);
        if keyed.contains_key(&key.get()) {
            return Insert::Exists;
        }
        keyed.insert(key.get(), ModelKeyed::begun(resolved));
        Insert::Made
    }

    fn remove_keyed(&self, key: &KeyCell) {
        self.tables.remove(&key.get());
    }

    fn budget(&self, index: u32) -> Option<ModelKeyed> {
        self.asks(Entry::Budget(index));
        if index < MAX_BUDGETS {
            return self.tables.budgets.get(&index).cloned();
        }
        let mut overflow = self.tables.overflow.write().unwrap_or_else(PoisonError::into_inner);
        Some(overflow.entry(index).or_insert_with(|| ModelKeyed::begun(0)).clone())
    }

    fn lease(&self, index: u32) -> Option<Arc<HostLease>> {
        self.asks(Entry::Lease(index));
        Some(self.tables.lease(index))
    }

    fn leased(&self, key: &KeyCell) -> Option<impl SharedWord> {
        let word = self.tables.leased(&key.get());
        word.or_else(|| self.missing(Entry::Leased(key.get())))
    }

    fn insert_leased(&self, key: &KeyCell) -> Insert {
        if self.tables.leased(&key.get()).is_some() {
            return Insert::Exists;
        }
        self.tables.set_leased(&key.get(), Some(KeyLeases::ASKED));
        Insert::Made
    }

    fn remove_leased(&self, key: &KeyCell) {
        self.tables.set_leased(&key.get(), None);
    }

    fn ask(&self, key: &KeyCell, slot: Slot) -> bool {
        self.tables.ask(Ask { key: key.get(), slot: slot.index(), reserved: 0 });
        true
    }

    fn flow(&self, flow: &FlowKey) -> Option<Ticks> {
        let flows = self.tables.flows.read().unwrap_or_else(PoisonError::into_inner);
        flows.get(flow).copied().or_else(|| self.missing(Entry::Flow(*flow)))
    }

    fn set_flow(&self, flow: &FlowKey, now: Ticks) {
        let mut flows = self.tables.flows.write().unwrap_or_else(PoisonError::into_inner);
        flows.insert(*flow, now);
    }

    fn count_rule(&self, rule: u32, reason: Reason, size: FrameSize, add: bool) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let counters = rules.entry(rule).or_default();
        if add {
            counters.add(reason, size);
        } else {
            counters.take_back(reason, size);
        }
    }
}
