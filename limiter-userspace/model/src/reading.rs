//! The maps as the decision reads them: single entries, without changing anything. Implemented by
//! the model and by the kernel's maps.

use std::convert::Infallible;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, EntryKind, EntryTable, FlowKey, KeyLeases,
    KeyedBucket, Lease, Limit, ListEntry, MAX_BUDGETS, Moment, Record, Shape, TRIE_FIXED_BITS,
    Table, TableKey, TrieValue, WORDS,
};
use limiter_decision::cell::Cell as _;
use limiter_decision::maps::Maps;
use limiter_rules::model::TriePrefix;

use super::Model;

/// Result of a read: `None` without an entry.
pub type Read<T, E> = Result<Option<T>, E>;

/// All bits of a source in the tries.
pub const SOURCE_BITS: u32 = 128;

/// All bits of a key in the trie of rules.
pub const KEY_BITS: u32 = TRIE_FIXED_BITS + 128;

/// A row for each kind of entry: its variant of [`Entry`] and of [`Value`], and its method.
macro_rules! entries {
    ($($(#[$doc:meta])+ $kind:ident: $method:ident($($at:ident: $place:ty),+) -> $value:ty;)+) => {
        /// An entry of a map, by its place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Entry {
            $($(#[$doc])+ $kind($($place),+),)+
        }

        /// What is in an entry. Its variant has the name of the entry's.
        #[derive(Clone, Copy, Debug)]
        pub enum Value {
            $($(#[$doc])+ $kind($value),)+
        }

        /// Everything that the decision about a packet reads.
        pub trait Reading {
            /// Error of a read.
            type Error;

            /// A word of `CONTROL`.
            fn control(&self, word: Control) -> Result<u64, Self::Error>;
            /// The settings of an entry table, and its admission state on each CPU.
            fn admissions(
                &self,
                kind: EntryKind,
            ) -> Result<(EntryTable, Vec<Admission>), Self::Error>;
            /// An entry, by its place.
            fn read(&self, entry: Entry) -> Read<Value, Self::Error>;
            /// The bucket of a source.
            fn bucket(&self, source: Source) -> Read<Bucket, Self::Error> {
                self.bucket_of(BucketKey::from(source))
            }
            $(
                $(#[$doc])+
                fn $method(&self, $($at: $place),+) -> Read<$value, Self::Error> {
                    let value = self.read(Entry::$kind($($at),+))?;
                    Ok(if let Some(Value::$kind(value)) = value { Some(value) } else { None })
                }
            )+
        }
    };
}

entries! {
    /// The word of `CHANGES` for a generation.
    Moment: moment(generation: u32) -> Moment;
    /// The list entry of exactly this source.
    Listed: listed(source: Source) -> ListEntry;
    /// The list entry of the longest prefix that contains a source.
    ListedAround: listed_around(source: Source) -> ListEntry;
    /// Record of the bans of a source.
    Ban: ban(source: Source) -> Ban;
    /// The slot of the longest matching prefix.
    Slot: slot(generation: Generation, bucket_key: BucketKey) -> Slot;
    /// The limit in a slot.
    Limit: limit(slot: Slot) -> Limit;
    /// The bucket of a source or of a compact key.
    Bucket: bucket_of(bucket_key: BucketKey) -> Bucket;
    /// A word of `AGGREGATES`.
    Aggregate: aggregate(index: u32) -> u64;
    /// A word of `FINGERPRINTS`.
    Fingerprints: fingerprints(index: u32) -> u64;
    /// A table of a rule set.
    Table: table(generation: Generation, index: u32) -> Table;
    /// A shape of a table, by its index there.
    Shape: shape(generation: Generation, table: u32, shape: u32) -> Shape;
    /// The rule with the longest source prefix among those that match the rest of the key.
    TableRule: table_rule(generation: Generation, key: TableKey) -> TrieValue;
    /// The record in a slot.
    Record: record(slot: Slot) -> Record;
    /// An action on packets over a limit, by its index in `ACTIONS`.
    Action: action(index: u32) -> Action;
    /// The bucket of a key.
    Keyed: keyed(key: TableKey) -> KeyedBucket;
    /// A word of `BUDGETS`: a budget, or the bucket that keys without their own share.
    Budget: budget(index: u32) -> KeyedBucket;
    /// A lease, by [`limiter_common::wire::lease_of_budget`] or [`KeyLeases`].
    Lease: lease(index: u32) -> Lease;
    /// The leases of a key.
    Leased: leased(key: TableKey) -> KeyLeases;
    /// When the last packet of a flow passed, in ticks.
    Flow: flow(flow: FlowKey) -> u64;
}

impl Reading for Model {
    type Error = Infallible;

    fn control(&self, word: Control) -> Result<u64, Infallible> {
        Ok(Maps::control(self, word))
    }

    fn admissions(&self, kind: EntryKind) -> Result<(EntryTable, Vec<Admission>), Infallible> {
        Ok((self.entries.entry_table(kind), vec![self.entries.admission(kind)]))
    }

    fn read(&self, entry: Entry) -> Read<Value, Infallible> {
        Ok(match entry {
            Entry::Moment(generation) => Some(Value::Moment(Maps::moment(self, generation))),
            Entry::Listed(source) => {
                let own = TriePrefix::of_source(source.trie_key());
                self.lists.get(&own).copied().map(Value::Listed)
            }
            Entry::ListedAround(source) => {
                self.listed_around(&source).copied().map(Value::ListedAround)
            }
            Entry::Ban(source) => Maps::ban(self, &source).map(|ban| Value::Ban(ban.read())),
            Entry::Slot(generation, bucket_key) => {
                Maps::source_rule(self, generation, &bucket_key).map(Value::Slot)
            }
            Entry::Limit(slot) => self.limits.get(&slot.index()).copied().map(Value::Limit),
            Entry::Bucket(bucket_key) => Self::bucket_of(self, &bucket_key).map(Value::Bucket),
            Entry::Aggregate(index) => Some(Value::Aggregate(self.entries.aggregate(index).load())),
            Entry::Fingerprints(index) => {
                Some(Value::Fingerprints(self.entries.fingerprints(index).load()))
            }
            Entry::Table(generation, index) => {
                Maps::table(self, generation, index).copied().map(Value::Table)
            }
            Entry::Shape(generation, table, shape) => {
                Maps::shape(self, generation, table, shape).copied().map(Value::Shape)
            }
            Entry::TableRule(generation, key) => {
                let key = std::cell::Cell::new(key);
                Some(Value::TableRule(Maps::table_rule(self, generation, &key)))
            }
            Entry::Record(slot) => Maps::record(self, slot).copied().map(Value::Record),
            Entry::Action(index) => Maps::action(self, index).copied().map(Value::Action),
            Entry::Keyed(key) => Self::keyed(self, &key).map(Value::Keyed),
            Entry::Budget(index) if index < MAX_BUDGETS => {
                Self::budget(self, index).map(Value::Budget)
            }
            Entry::Budget(index) => {
                let [resolved, passed, dropped, used] = [0; 4];
                let empty = KeyedBucket { resolved, passed, dropped, used, words: [0; WORDS] };
                Some(Value::Budget(self.tables.shared(index).unwrap_or(empty)))
            }
            Entry::Lease(index) => Some(Value::Lease(self.tables.lease(index).read())),
            Entry::Leased(key) => Self::leased(self, &key).map(Value::Leased),
            Entry::Flow(flow) => Maps::flow(self, &flow).map(Ticks::get).map(Value::Flow),
        })
    }
}
