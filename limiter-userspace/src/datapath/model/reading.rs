//! The model as others read the kernel's maps.

use limiter_common::bucket::{Generation, Slot};
use limiter_common::owner::Owner;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, EntryKind, EntryTable, FlowKey, KeyLeases,
    KeyedBucket, Lease, Limit, ListEntry, MAX_BUDGETS, Moment, Record, Shape, Table, TableKey,
    TrieValue, WORDS,
};
use limiter_decision::cell::Cell as _;
use limiter_decision::world::World;

use super::Model;
use crate::datapath::{DatapathError, Reading};
use crate::rules::model::TriePrefix;

type Read<T> = Result<Option<T>, DatapathError>;

impl Reading for Model {
    fn moment(&self, generation: u32) -> Result<Moment, DatapathError> {
        Ok(World::moment(self, generation))
    }

    fn control(&self, word: Control) -> Result<u64, DatapathError> {
        Ok(World::control(self, word))
    }

    fn listed(&self, source: &Source) -> Read<ListEntry> {
        Ok(self.lists.get(&TriePrefix::of_source(source.trie_key())).copied())
    }

    fn listed_around(&self, source: &Source) -> Read<ListEntry> {
        Ok(self.listed_around(source).copied())
    }

    fn ban(&self, source: &Source) -> Read<Ban> {
        Ok(World::ban(self, source).map(|ban| ban.read()))
    }

    fn slot(&self, generation: Generation, owner: &Owner) -> Read<Slot> {
        Ok(World::source_rule(self, generation, owner))
    }

    fn limit(&self, slot: Slot) -> Read<Limit> {
        Ok(self.limits.get(&slot.index()).copied())
    }

    fn bucket_of(&self, owner: &Owner) -> Read<Bucket> {
        Ok(Self::bucket_of(self, owner))
    }

    fn aggregate(&self, index: u32) -> Read<u64> {
        Ok(Some(self.entries.aggregate(index).load()))
    }

    fn fingerprints(&self, index: u32) -> Read<u64> {
        Ok(Some(self.entries.fingerprints(index).load()))
    }

    fn entry_table(&self, kind: EntryKind) -> Result<EntryTable, DatapathError> {
        Ok(self.entries.entry_table(kind))
    }

    fn admissions(&self, kind: EntryKind) -> Result<Vec<Admission>, DatapathError> {
        Ok(vec![self.entries.admission(kind)])
    }

    fn table(&self, generation: Generation, index: u32) -> Read<Table> {
        Ok(World::table(self, generation, index).copied())
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape> {
        Ok(World::shape(self, generation, table, shape).copied())
    }

    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue> {
        let key = std::cell::Cell::new(*key);
        Ok(Some(World::table_rule(self, generation, &key)))
    }

    fn record(&self, slot: Slot) -> Read<Record> {
        Ok(World::record(self, slot).copied())
    }

    fn action(&self, index: u32) -> Read<Action> {
        Ok(World::action(self, index).copied())
    }

    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket> {
        Ok(Self::keyed(self, key))
    }

    fn budget(&self, index: u32) -> Read<KeyedBucket> {
        if index < MAX_BUDGETS {
            return Ok(Self::budget(self, index));
        }
        let empty = KeyedBucket { resolved: 0, passed: 0, dropped: 0, used: 0, words: [0; WORDS] };
        Ok(Some(self.tables.shared(index).unwrap_or(empty)))
    }

    fn lease(&self, index: u32) -> Read<Lease> {
        Ok(Some(self.tables.lease(index).read()))
    }

    fn leased(&self, key: &TableKey) -> Read<KeyLeases> {
        Ok(Self::leased(self, key))
    }

    fn flow(&self, flow: &FlowKey) -> Read<u64> {
        Ok(World::flow(self, flow).map(Ticks::get))
    }
}
