//! The state beside the entries of the model: ring slots, cursors and budgets, as beside the
//! kernel's maps.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use limiter_common::wire::{Admission, EntryKind, EntryTable, TableKey};
use limiter_decision::cell::Cell as SharedWord;
use limiter_decision::entries::{AdmissionCells, HostEntryTable};

/// Ring slots, cursors and budgets, by kind of entry, and the shared buckets.
#[derive(Debug)]
pub(super) struct ModelEntries {
    entry_tables: [HostEntryTable; EntryKind::COUNT],
    admission: [AdmissionCells; EntryKind::COUNT],
    /// Of IPv4 sources, of IPv6 sources, and of narrow keys.
    sources: [Vec<AtomicU64>; 3],
    keyed: Vec<(AtomicU64, Cell<TableKey>)>,
    /// Aggregates that were asked for, by index.
    aggregates: Words,
    /// Words of fingerprints that were asked for, by index.
    fingerprints: Words,
}

/// Words of a map that were asked for, by index.
#[derive(Debug, Default)]
struct Words(RwLock<BTreeMap<u32, WordRef>>);

impl Words {
    fn at(&self, index: u32) -> WordRef {
        let mut words = self.0.write().unwrap_or_else(PoisonError::into_inner);
        words.entry(index).or_default().clone()
    }

    fn copy(&self) -> Self {
        let words = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let copies = words.iter().map(|(index, word)| (*index, WordRef::new(word.load())));
        Self(RwLock::new(copies.collect()))
    }
}

/// A word of a map that packets change in place.
#[derive(Clone, Debug, Default)]
pub(super) struct WordRef(Arc<AtomicU64>);

impl WordRef {
    pub(super) fn new(word: u64) -> Self {
        Self(Arc::new(word.into()))
    }

    pub(super) fn set(&self, word: u64) {
        self.0.store(word, Ordering::Release);
    }
}

impl SharedWord for WordRef {
    fn load(&self) -> u64 {
        SharedWord::load(&*self.0)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        SharedWord::compare_exchange(&*self.0, current, new)
    }
}

impl ModelEntries {
    pub(super) fn new(sources: u32, keys: u32, seed: u64) -> Self {
        let words = |count: u32| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let entry_table = |entries| HostEntryTable::new(EntryTable::new(entries, seed));
        Self {
            entry_tables: [sources, sources, keys, keys].map(entry_table),
            admission: std::array::from_fn(|_| AdmissionCells::default()),
            sources: [sources, sources, keys].map(words),
            keyed: (0..keys).map(|_| (AtomicU64::new(0), Cell::new(TableKey::EMPTY))).collect(),
            aggregates: Words::default(),
            fingerprints: Words::default(),
        }
    }

    /// A copy with words of its own, in which nothing is counted of new entries yet.
    pub(super) fn copy(&self) -> Self {
        let words = |words: &Vec<AtomicU64>| {
            words.iter().map(|word| AtomicU64::new(word.load(Ordering::Acquire))).collect()
        };
        let slot = |(state, key): &(AtomicU64, Cell<TableKey>)| {
            (AtomicU64::new(state.load(Ordering::Acquire)), key.clone())
        };
        Self {
            entry_tables: self
                .entry_tables
                .each_ref()
                .map(|entry_table| HostEntryTable::new(entry_table.read())),
            admission: std::array::from_fn(|_| AdmissionCells::default()),
            sources: self.sources.each_ref().map(words),
            keyed: self.keyed.iter().map(slot).collect(),
            aggregates: self.aggregates.copy(),
            fingerprints: self.fingerprints.copy(),
        }
    }

    /// Puts the settings of a table in place of those that there are.
    pub(super) fn set_entry_table(&mut self, kind: EntryKind, entry_table: EntryTable) {
        if let Some(place) = self.entry_tables.get_mut(kind.index() as usize) {
            *place = HostEntryTable::new(entry_table);
        }
    }

    /// Until when both budgets of new entries are used: [`Admission::tat`] and
    /// [`Admission::returned`].
    pub(super) fn set_budgets(&self, kind: EntryKind, budgets: Admission) {
        if let Some(cells) = self.admission.get(kind.index() as usize) {
            cells.tat.set(budgets.tat);
            cells.returned.set(budgets.returned);
        }
    }

    pub(super) fn entry_table(&self, kind: EntryKind) -> EntryTable {
        self.host(kind).map(HostEntryTable::read).unwrap_or_default()
    }

    pub(super) fn host(&self, kind: EntryKind) -> Option<&HostEntryTable> {
        self.entry_tables.get(kind.index() as usize)
    }

    pub(super) fn admission(&self, kind: EntryKind) -> Admission {
        let Some(cells) = self.admission.get(kind.index() as usize) else {
            return Admission::default();
        };
        Admission {
            tat: cells.tat.get(),
            returned: cells.returned.get(),
            made: cells.made.get(),
            evicted: cells.evicted.get(),
            first_seen: cells.first_seen.get(),
            over_budget: cells.over_budget.get(),
            full: cells.full.get(),
        }
    }

    pub(super) fn cells(&self, kind: EntryKind) -> Option<&AdmissionCells> {
        self.admission.get(kind.index() as usize)
    }

    /// The state of a ring slot.
    pub(super) fn ring_slot(&self, kind: EntryKind, index: u32) -> Option<&AtomicU64> {
        let index = index as usize;
        match kind {
            EntryKind::V4 => self.sources[0].get(index),
            EntryKind::V6 => self.sources[1].get(index),
            EntryKind::Narrow => self.sources[2].get(index),
            EntryKind::Keyed => self.keyed.get(index).map(|(state, _)| state),
        }
    }

    /// The key in a ring slot.
    pub(super) fn ring_key(&self, index: u32) -> Option<&Cell<TableKey>> {
        self.keyed.get(index as usize).map(|(_, key)| key)
    }

    pub(super) fn aggregate(&self, index: u32) -> WordRef {
        self.aggregates.at(index)
    }

    pub(super) fn fingerprints(&self, index: u32) -> WordRef {
        self.fingerprints.at(index)
    }
}
