//! The maps as the program reads them: single entries, and nothing is changed. What is not there is
//! `None`.

use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, MapData, MapError};
use limiter_common::bucket::{Generation, Slot};
use limiter_common::owner::Owner;
use limiter_common::source::Source;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, EntryKind, EntryTable, FlowKey, KeyLeases,
    KeyedBucket, Lease, Limit, ListEntry, MAX_SHAPES, MAX_TABLES, Moment, Record, Shape,
    TRIE_FIXED_BITS, Table, TableKey, TrieValue, map,
};

use super::maps::MapSource;
use super::open_maps::HasMaps;
use super::pod::Wire;
use super::{DatapathError, of_narrow};

/// Result of a read: `None` without an entry.
pub(super) type Read<T> = Result<Option<T>, DatapathError>;

/// Everything that the decision about a packet reads.
pub trait Reading {
    /// The word of `CHANGES` at the place of a generation.
    fn moment(&self, generation: u32) -> Result<Moment, DatapathError>;
    /// A word of `CONTROL`.
    fn control(&self, word: Control) -> Result<u64, DatapathError>;
    /// The list entry of a source itself.
    fn listed(&self, source: &Source) -> Read<ListEntry>;
    /// The list entry of the longest prefix around a source.
    fn listed_around(&self, source: &Source) -> Read<ListEntry>;
    /// Record of the bans of a source.
    fn ban(&self, source: &Source) -> Read<Ban>;
    /// The slot of the longest matching prefix.
    fn slot(&self, generation: Generation, owner: &Owner) -> Read<Slot>;
    /// The limit in a slot.
    fn limit(&self, slot: Slot) -> Read<Limit>;
    /// The bucket of an owner.
    fn bucket_of(&self, owner: &Owner) -> Read<Bucket>;
    /// The bucket of a source.
    fn bucket(&self, source: &Source) -> Read<Bucket> {
        self.bucket_of(&Owner::from(*source))
    }
    /// A word of `AGGREGATES`.
    fn aggregate(&self, index: u32) -> Read<u64>;
    /// A word of `FINGERPRINTS`.
    fn fingerprints(&self, index: u32) -> Read<u64>;
    /// The settings of a table of entries.
    fn entry_table(&self, kind: EntryKind) -> Result<EntryTable, DatapathError>;
    /// Each CPU's part of it.
    fn admissions(&self, kind: EntryKind) -> Result<Vec<Admission>, DatapathError>;
    /// A table of a rule set.
    fn table(&self, generation: Generation, index: u32) -> Read<Table>;
    /// A shape of it.
    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape>;
    /// The rule with the longest source prefix among those that have all the rest of the key.
    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue>;
    /// The record in a slot.
    fn record(&self, slot: Slot) -> Read<Record>;
    /// An action.
    fn action(&self, index: u32) -> Read<Action>;
    /// The bucket of a key.
    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket>;
    /// A word of `BUDGETS`: a budget, or what keys without a bucket share.
    fn budget(&self, index: u32) -> Read<KeyedBucket>;
    /// A lease, by [`limiter_common::wire::lease_of_budget`] or [`KeyLeases`].
    fn lease(&self, index: u32) -> Read<Lease>;
    /// The leases of a key.
    fn leased(&self, key: &TableKey) -> Read<KeyLeases>;
    /// When a packet of a flow passed last, in ticks.
    fn flow(&self, flow: &FlowKey) -> Read<u64>;
}

/// Maps that the program alone changes, and user space only reads to answer questions.
pub(super) struct ProgramMaps {
    aggregates: Array<MapData, u64>,
    fingerprints: Array<MapData, u64>,
    flows: HashMap<MapData, Wire<FlowKey>, u64>,
}

impl ProgramMaps {
    /// Takes them by name.
    pub(super) fn take(take: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        let failed = DatapathError::map(map::AGGREGATES);
        let aggregates = take(map::AGGREGATES)?.try_into().map_err(failed)?;
        let failed = DatapathError::map(map::FINGERPRINTS);
        let fingerprints = take(map::FINGERPRINTS)?.try_into().map_err(failed)?;
        let flows = take(map::FLOWS)?.try_into().map_err(DatapathError::map(map::FLOWS))?;
        Ok(Self { aggregates, fingerprints, flows })
    }
}

/// No such entry is an answer.
pub(super) fn found<T>(map: &'static str, read: Result<T, MapError>) -> Read<T> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound | MapError::OutOfBounds { .. }) => Ok(None),
        Err(source) => Err(DatapathError::Map { map, source }),
    }
}

/// Value that a trie has for a whole key.
pub(super) fn longest<K: aya::Pod, V: aya::Pod>(
    map: &'static str,
    trie: &LpmTrie<MapData, K, V>,
    bits: u32,
    key: K,
) -> Read<V> {
    found(map, trie.get(&Key::new(bits, key), 0))
}

/// All bits of a source in the tries.
pub(super) const SOURCE_BITS: u32 = 128;

/// All bits of a key in the trie of rules.
pub(super) const KEY_BITS: u32 = TRIE_FIXED_BITS + 128;

impl<T: HasMaps> Reading for T {
    fn moment(&self, generation: u32) -> Result<Moment, DatapathError> {
        self.held().changes.get(generation)
    }

    fn control(&self, word: Control) -> Result<u64, DatapathError> {
        self.held().maps.control(word)
    }

    fn listed(&self, source: &Source) -> Read<ListEntry> {
        self.held().lists.of_source(source)
    }

    fn listed_around(&self, source: &Source) -> Read<ListEntry> {
        self.held().lists.around(source)
    }

    fn ban(&self, source: &Source) -> Read<Ban> {
        self.held().tables.ban(&source.trie_key())
    }

    fn slot(&self, generation: Generation, owner: &Owner) -> Read<Slot> {
        let Some(trie) = self.held().maps.rules_of(generation, &self.held().pins)? else {
            return Ok(None);
        };
        Ok(longest(map::RULES, &trie, SOURCE_BITS, owner.trie_key())?.map(Slot::new))
    }

    fn limit(&self, slot: Slot) -> Read<Limit> {
        self.held().maps.limit_at(slot)
    }

    fn bucket_of(&self, owner: &Owner) -> Read<Bucket> {
        let mut bucket = self.held().sources.bucket(owner)?;
        if let Some(bucket) = &mut bucket {
            let ours = |(of, drops)| if of == *owner { drops } else { 0 };
            let drops = self.held().maps.uncounted()?.into_iter().map(ours).sum();
            bucket.dropped = bucket.dropped.wrapping_add(drops);
        }
        Ok(bucket)
    }

    fn aggregate(&self, index: u32) -> Read<u64> {
        found(map::AGGREGATES, self.held().program_maps.aggregates.get(&index, 0))
    }

    fn fingerprints(&self, index: u32) -> Read<u64> {
        found(map::FINGERPRINTS, self.held().program_maps.fingerprints.get(&index, 0))
    }

    fn entry_table(&self, kind: EntryKind) -> Result<EntryTable, DatapathError> {
        self.held().entries.entry_table(kind)
    }

    fn admissions(&self, kind: EntryKind) -> Result<Vec<Admission>, DatapathError> {
        self.held().entries.admissions(kind)
    }

    fn table(&self, generation: Generation, index: u32) -> Read<Table> {
        self.held().tables.table(generation.buffer() * MAX_TABLES + index)
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape> {
        let table = generation.buffer() * MAX_TABLES + table;
        self.held().tables.shape(table * MAX_SHAPES + shape)
    }

    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue> {
        let Some(trie) = self.held().tables.rules_of(generation, &self.held().pins)? else {
            return Ok(None);
        };
        let found = longest(map::TABLE_RULES, &trie, KEY_BITS, Wire(*key))?;
        Ok(found.map(TrieValue::from_raw))
    }

    fn record(&self, slot: Slot) -> Read<Record> {
        self.held().tables.record_at(slot)
    }

    fn action(&self, index: u32) -> Read<Action> {
        self.held().tables.action_at(index)
    }

    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket> {
        let held = self.held();
        if let Some(owner) = held.installed.tables.narrow_owner(key) {
            return Ok(self.bucket_of(&owner)?.as_ref().map(of_narrow));
        }
        held.tables.keyed(key, held.entries.entry_table(EntryKind::Keyed)?.seed)
    }

    fn budget(&self, index: u32) -> Read<KeyedBucket> {
        self.held().tables.budget_at(index)
    }

    fn lease(&self, index: u32) -> Read<Lease> {
        Ok(self.held().leases.read(index))
    }

    fn leased(&self, key: &TableKey) -> Read<KeyLeases> {
        self.held().leases.leased(key)
    }

    fn flow(&self, flow: &FlowKey) -> Read<u64> {
        found(map::FLOWS, self.held().program_maps.flows.get(&Wire(*flow), 0))
    }
}
