//! Reads the maps as the program does: single entries, without changing anything. A missing entry
//! is `None`.

use aya::maps::{Array, MapData};
use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::wire::{
    Admission, Bucket, Control, EntryKind, EntryTable, KeyedBucket, MAX_SHAPES, MAX_TABLES,
    TableKey, TrieValue, map,
};
use limiter_model::{Entry, KEY_BITS, Reading, SOURCE_BITS, Value, of_compact};

use super::found::{Read, found, longest};
use super::open_maps::{HasMaps as _, OpenMaps};
use super::pod::Wire;
use crate::{DatapathError, Kernel};

impl OpenMaps {
    fn entry(&self, entry: Entry) -> Read<Value> {
        let (tables, programs) = (&self.tables, &self.program_maps);
        Ok(match entry {
            Entry::Moment(generation) => Some(Value::Moment(self.changes.get(generation)?)),
            Entry::Listed(source) => self.lists.of_source(&source)?.map(Value::Listed),
            Entry::ListedAround(source) => self.lists.around(&source)?.map(Value::ListedAround),
            Entry::Ban(source) => tables.ban(&source.trie_key())?.map(Value::Ban),
            Entry::Slot(generation, bucket_key) => {
                self.slot(generation, bucket_key)?.map(Value::Slot)
            }
            Entry::Limit(slot) => {
                at(map::LIMITS, &self.maps.limits, slot.index())?.map(Value::Limit)
            }
            Entry::Bucket(bucket_key) => self.bucket(&bucket_key)?.map(Value::Bucket),
            Entry::Aggregate(index) => {
                found(map::AGGREGATES, programs.aggregates.get(&index, 0))?.map(Value::Aggregate)
            }
            Entry::Fingerprints(index) => {
                let word = programs.fingerprints.get(&index, 0);
                found(map::FINGERPRINTS, word)?.map(Value::Fingerprints)
            }
            Entry::Table(generation, index) => {
                let index = generation.buffer() * MAX_TABLES + index;
                at(map::TABLES, &tables.tables, index)?.map(Value::Table)
            }
            Entry::Shape(generation, table, shape) => {
                let table = generation.buffer() * MAX_TABLES + table;
                at(map::SHAPES, &tables.shapes, table * MAX_SHAPES + shape)?.map(Value::Shape)
            }
            Entry::TableRule(generation, key) => {
                self.table_rule(generation, key)?.map(Value::TableRule)
            }
            Entry::Record(slot) => {
                at(map::RECORDS, &tables.records, slot.index())?.map(Value::Record)
            }
            Entry::Action(index) => at(map::ACTIONS, &tables.actions, index)?.map(Value::Action),
            Entry::Keyed(key) => self.keyed_bucket(&key)?.map(Value::Keyed),
            Entry::Budget(index) => at(map::BUDGETS, &tables.budgets, index)?.map(Value::Budget),
            Entry::Lease(index) => self.leases()?.read(index).map(Value::Lease),
            Entry::Leased(key) => self.leases()?.leased(&key)?.map(Value::Leased),
            Entry::Flow(flow) => {
                found(map::FLOWS, programs.flows.get(&Wire(flow), 0))?.map(Value::Flow)
            }
        })
    }

    fn slot(&self, generation: Generation, bucket_key: BucketKey) -> Read<Slot> {
        let Some(trie) = self.maps.rules_of(generation, &self.pins)? else {
            return Ok(None);
        };
        Ok(longest(map::RULES, &trie, SOURCE_BITS, bucket_key.trie_key())?.map(Slot::new))
    }

    fn bucket(&self, bucket_key: &BucketKey) -> Read<Bucket> {
        let mut bucket = self.sources.bucket(bucket_key)?;
        if let Some(bucket) = &mut bucket {
            let ours = |(of, drops)| if of == *bucket_key { drops } else { 0 };
            let drops = self.maps.uncounted()?.into_iter().map(ours).sum();
            bucket.dropped = bucket.dropped.wrapping_add(drops);
        }
        Ok(bucket)
    }

    fn table_rule(&self, generation: Generation, key: TableKey) -> Read<TrieValue> {
        let Some(trie) = self.tables.rules_of(generation, &self.pins)? else {
            return Ok(None);
        };
        let found = longest(map::TABLE_RULES, &trie, KEY_BITS, Wire(key))?;
        Ok(found.map(TrieValue::from_raw))
    }

    fn keyed_bucket(&self, key: &TableKey) -> Read<KeyedBucket> {
        if let Some(bucket_key) = self.installed.tables.compact_bucket_key(key) {
            return Ok(self.bucket(&bucket_key)?.as_ref().map(of_compact));
        }
        self.tables.keyed(key, self.entries.entry_table(EntryKind::Keyed)?.seed)
    }
}

fn at<T: bytemuck::Pod>(map: &'static str, array: &Array<MapData, Wire<T>>, index: u32) -> Read<T> {
    Ok(found(map, array.get(&index, 0))?.map(|value| value.0))
}

/// A macro, because a blanket `impl` of another crate's trait is not allowed.
macro_rules! reads_its_maps {
    ($($held:ty),+) => {
        $(
            impl Reading for $held {
                type Error = DatapathError;

                fn control(&self, word: Control) -> Result<u64, DatapathError> {
                    self.held().maps.control(word)
                }

                fn admissions(
                    &self,
                    kind: EntryKind,
                ) -> Result<(EntryTable, Vec<Admission>), DatapathError> {
                    let entries = &self.held().entries;
                    Ok((entries.entry_table(kind)?, entries.admissions(kind)?))
                }

                fn read(&self, entry: Entry) -> Read<Value> {
                    self.held().entry(entry)
                }
            }
        )+
    };
}

reads_its_maps!(Kernel, OpenMaps);
