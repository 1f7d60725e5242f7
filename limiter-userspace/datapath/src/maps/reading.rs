//! Reads the maps as the program does: single entries, without changing anything. A missing entry
//! is `None`.

use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::source::Source;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, EntryKind, EntryTable, FlowKey, KeyLeases,
    KeyedBucket, Lease, Limit, ListEntry, MAX_SHAPES, MAX_TABLES, Moment, Record, Shape, Table,
    TableKey, TrieValue, map,
};
use limiter_model::{KEY_BITS, Reading, SOURCE_BITS, of_compact};

use super::found::{Read, found, longest};
use super::open_maps::{HasMaps as _, OpenMaps};
use super::pod::Wire;
use crate::{DatapathError, Kernel};

/// A macro, because a blanket `impl` of another crate's trait is not allowed.
macro_rules! reads_its_maps {
    ($($held:ty),+) => {
        $(
            impl Reading for $held {
                type Error = DatapathError;

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

                fn slot(&self, generation: Generation, bucket_key: &BucketKey) -> Read<Slot> {
                    let Some(trie) = self.held().maps.rules_of(generation, &self.held().pins)? else {
                        return Ok(None);
                    };
                    Ok(longest(map::RULES, &trie, SOURCE_BITS, bucket_key.trie_key())?.map(Slot::new))
                }

                fn limit(&self, slot: Slot) -> Read<Limit> {
                    self.held().maps.limit_at(slot)
                }

                fn bucket_of(&self, bucket_key: &BucketKey) -> Read<Bucket> {
                    let mut bucket = self.held().sources.bucket(bucket_key)?;
                    if let Some(bucket) = &mut bucket {
                        let ours = |(of, drops)| if of == *bucket_key { drops } else { 0 };
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
                    if let Some(bucket_key) = held.installed.tables.compact_bucket_key(key) {
                        return Ok(self.bucket_of(&bucket_key)?.as_ref().map(of_compact));
                    }
                    held.tables.keyed(key, held.entries.entry_table(EntryKind::Keyed)?.seed)
                }

                fn budget(&self, index: u32) -> Read<KeyedBucket> {
                    self.held().tables.budget_at(index)
                }

                fn lease(&self, index: u32) -> Read<Lease> {
                    Ok(self.held().leases()?.read(index))
                }

                fn leased(&self, key: &TableKey) -> Read<KeyLeases> {
                    self.held().leases()?.leased(key)
                }

                fn flow(&self, flow: &FlowKey) -> Read<u64> {
                    found(map::FLOWS, self.held().program_maps.flows.get(&Wire(*flow), 0))
                }
            }
        )+
    };
}

reads_its_maps!(Kernel, OpenMaps);
