//! A part of the maps, and what is asked for beyond that.

use std::sync::{Arc, Mutex, PoisonError};

use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::source::Source;
use limiter_common::wire::{Admission, EntryKind, FlowKey, Table, TableKey};

/// An entry of the maps that is read when it is asked for; the others are read at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Moment(u32),
    /// Entries of the source in both lists.
    Listed(Source),
    Ban(Source),
    Slot(Generation, BucketKey),
    Limit(Slot),
    Bucket(BucketKey),
    Aggregate(u32),
    Fingerprints(u32),
    Table(Generation, u32),
    TableRule(Generation, TableKey),
    Record(Slot),
    Action(u32),
    Keyed(TableKey),
    Budget(u32),
    Lease(u32),
    Leased(TableKey),
    Flow(FlowKey),
}

/// State of a model that has only a part of the maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Entries that were read, whether or not there is one.
    pub(super) read: Vec<Entry>,
    /// Entries that are asked for and were not read, in all copies.
    pub(super) missing: Arc<Mutex<Vec<Entry>>>,
    /// Tables that ask for more than is known of the packet.
    pub(super) left_out: Vec<(Generation, u32, Table)>,
    /// Capacity and budgets by table: [`EntryKind::index`].
    pub(super) entry_tables: [PartEntryTable; EntryKind::COUNT],
}

/// An entry table, as far as a copy knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct PartEntryTable {
    pub(super) entries: u64,
    /// Budget of new entries by CPU.
    pub(super) cpus: Vec<Admission>,
    /// True if it is not sure that the packet gets an entry.
    pub(super) doubtful: bool,
}

impl Part {
    /// Takes the entries that are missing.
    pub(super) fn take_missing(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
