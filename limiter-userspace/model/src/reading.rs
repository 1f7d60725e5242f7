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

/// Everything that the decision about a packet reads.
pub trait Reading {
    /// Error of a read.
    type Error;

    /// The word of `CHANGES` for a generation.
    fn moment(&self, generation: u32) -> Result<Moment, Self::Error>;
    /// A word of `CONTROL`.
    fn control(&self, word: Control) -> Result<u64, Self::Error>;
    /// The list entry of exactly this source.
    fn listed(&self, source: &Source) -> Read<ListEntry, Self::Error>;
    /// The list entry of the longest prefix that contains a source.
    fn listed_around(&self, source: &Source) -> Read<ListEntry, Self::Error>;
    /// Record of the bans of a source.
    fn ban(&self, source: &Source) -> Read<Ban, Self::Error>;
    /// The slot of the longest matching prefix.
    fn slot(&self, generation: Generation, bucket_key: &BucketKey) -> Read<Slot, Self::Error>;
    /// The limit in a slot.
    fn limit(&self, slot: Slot) -> Read<Limit, Self::Error>;
    /// The bucket of a key.
    fn bucket_of(&self, bucket_key: &BucketKey) -> Read<Bucket, Self::Error>;
    /// The bucket of a source.
    fn bucket(&self, source: &Source) -> Read<Bucket, Self::Error> {
        self.bucket_of(&BucketKey::from(*source))
    }
    /// A word of `AGGREGATES`.
    fn aggregate(&self, index: u32) -> Read<u64, Self::Error>;
    /// A word of `FINGERPRINTS`.
    fn fingerprints(&self, index: u32) -> Read<u64, Self::Error>;
    /// The settings of an entry table.
    fn entry_table(&self, kind: EntryKind) -> Result<EntryTable, Self::Error>;
    /// Each CPU's admission state of an entry table.
    fn admissions(&self, kind: EntryKind) -> Result<Vec<Admission>, Self::Error>;
    /// A table of a rule set.
    fn table(&self, generation: Generation, index: u32) -> Read<Table, Self::Error>;
    /// A shape of a table, by its index there.
    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape, Self::Error>;
    /// The rule with the longest source prefix among those that match the rest of the key.
    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue, Self::Error>;
    /// The record in a slot.
    fn record(&self, slot: Slot) -> Read<Record, Self::Error>;
    /// An action on packets over a limit, by its index in `ACTIONS`.
    fn action(&self, index: u32) -> Read<Action, Self::Error>;
    /// The bucket of a key.
    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket, Self::Error>;
    /// A word of `BUDGETS`: a budget, or the bucket that keys without their own share.
    fn budget(&self, index: u32) -> Read<KeyedBucket, Self::Error>;
    /// A lease, by [`limiter_common::wire::lease_of_budget`] or [`KeyLeases`].
    fn lease(&self, index: u32) -> Read<Lease, Self::Error>;
    /// The leases of a key.
    fn leased(&self, key: &TableKey) -> Read<KeyLeases, Self::Error>;
    /// When the last packet of a flow passed, in ticks.
    fn flow(&self, flow: &FlowKey) -> Read<u64, Self::Error>;
}

impl Reading for Model {
    type Error = Infallible;

    fn moment(&self, generation: u32) -> Result<Moment, Infallible> {
        Ok(Maps::moment(self, generation))
    }

    fn control(&self, word: Control) -> Result<u64, Infallible> {
        Ok(Maps::control(self, word))
    }

    fn listed(&self, source: &Source) -> Read<ListEntry, Infallible> {
        Ok(self.lists.get(&TriePrefix::of_source(source.trie_key())).copied())
    }

    fn listed_around(&self, source: &Source) -> Read<ListEntry, Infallible> {
        Ok(self.listed_around(source).copied())
    }

    fn ban(&self, source: &Source) -> Read<Ban, Infallible> {
        Ok(Maps::ban(self, source).map(|ban| ban.read()))
    }

    fn slot(&self, generation: Generation, bucket_key: &BucketKey) -> Read<Slot, Infallible> {
        Ok(Maps::source_rule(self, generation, bucket_key))
    }

    fn limit(&self, slot: Slot) -> Read<Limit, Infallible> {
        Ok(self.limits.get(&slot.index()).copied())
    }

    fn bucket_of(&self, bucket_key: &BucketKey) -> Read<Bucket, Infallible> {
        Ok(Self::bucket_of(self, bucket_key))
    }

    fn aggregate(&self, index: u32) -> Read<u64, Infallible> {
        Ok(Some(self.entries.aggregate(index).load()))
    }

    fn fingerprints(&self, index: u32) -> Read<u64, Infallible> {
        Ok(Some(self.entries.fingerprints(index).load()))
    }

    fn entry_table(&self, kind: EntryKind) -> Result<EntryTable, Infallible> {
        Ok(self.entries.entry_table(kind))
    }

    fn admissions(&self, kind: EntryKind) -> Result<Vec<Admission>, Infallible> {
        Ok(vec![self.entries.admission(kind)])
    }

    fn table(&self, generation: Generation, index: u32) -> Read<Table, Infallible> {
        Ok(Maps::table(self, generation, index).copied())
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape, Infallible> {
        Ok(Maps::shape(self, generation, table, shape).copied())
    }

    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue, Infallible> {
        let key = std::cell::Cell::new(*key);
        Ok(Some(Maps::table_rule(self, generation, &key)))
    }

    fn record(&self, slot: Slot) -> Read<Record, Infallible> {
        Ok(Maps::record(self, slot).copied())
    }

    fn action(&self, index: u32) -> Read<Action, Infallible> {
        Ok(Maps::action(self, index).copied())
    }

    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket, Infallible> {
        Ok(Self::keyed(self, key))
    }

    fn budget(&self, index: u32) -> Read<KeyedBucket, Infallible> {
        if index < MAX_BUDGETS {
            return Ok(Self::budget(self, index));
        }
        let empty = KeyedBucket { resolved: 0, passed: 0, dropped: 0, used: 0, words: [0; WORDS] };
        Ok(Some(self.tables.shared(index).unwrap_or(empty)))
    }

    fn lease(&self, index: u32) -> Read<Lease, Infallible> {
        Ok(Some(self.tables.lease(index).read()))
    }

    fn leased(&self, key: &TableKey) -> Read<KeyLeases, Infallible> {
        Ok(Self::leased(self, key))
    }

    fn flow(&self, flow: &FlowKey) -> Read<u64, Infallible> {
        Ok(Maps::flow(self, flow).map(Ticks::get))
    }
}
