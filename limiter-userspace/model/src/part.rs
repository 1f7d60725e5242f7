//! A part of the maps, and the entries asked for beyond it.

use std::sync::{Arc, Mutex, PoisonError};

use limiter_common::bucket::Generation;
use limiter_common::wire::{Admission, EntryKind, Table};

use super::reading::Entry;

/// State of a model that holds only a part of the maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Entries that were read on demand, including those that do not exist. All else was read at
    /// the beginning.
    pub(super) read: Vec<Entry>,
    /// Entries that were asked for but not read, in all copies.
    pub(super) missing: Arc<Mutex<Vec<Entry>>>,
    /// Tables left out because they ask for facts that are not known of the packet.
    pub(super) left_out: Vec<(Generation, u32, Table)>,
    /// Capacity and budgets by table: [`EntryKind::index`].
    pub(super) entry_tables: [PartEntryTable; EntryKind::COUNT],
}

/// An entry table, as far as a copy knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct PartEntryTable {
    pub(super) entries: u64,
    /// Budget of new entries, per CPU.
    pub(super) cpus: Vec<Admission>,
    /// True if it is not certain that the packet gets an entry.
    pub(super) doubtful: bool,
}

impl Part {
    pub(super) fn take_missing(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
