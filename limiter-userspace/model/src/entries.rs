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
    /// For IPv4 sources, IPv6 sources, and compact keys.
    sources: [Vec<AtomicU64>; 3],
    keyed: Vec<(AtomicU64, Cell<TableKey>)>,
    /// Requested aggregates, by index.
    aggregates: Words,
    /// Requested words of fingerprints, by index.
    fingerprints: Words,
}

/// Number of words allocated at once.
const PAGE: u32 = 512;

/// Words of a map, allocated on demand.
#[derive(Debug, Default)]
struct Words(RwLock<BTreeMap<u32, Arc<[AtomicU64]>>>);

impl Words {
    fn at(&self, index: u32) -> WordRef {
        let (page, place) = (index / PAGE, (index % PAGE) as usize);
        let mut pages = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let page = pages.entry(page).or_insert_with(|| (0..PAGE).map(|_| 0.into()).collect());
        WordRef(Arc::clone(page), place)
    }

    fn copy(&self) -> Self {
        let pages = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let words = |page: &Arc<[AtomicU64]>| {
            page.iter().map(|word| SharedWord::load(word).into()).collect()
        };
        Self(RwLock::new(pages.iter().map(|(index, page)| (*index, words(page))).collect()))
    }

    fn bytes(&self) -> usize {
        let pages = self.0.read().unwrap_or_else(PoisonError::into_inner);
        pages.len() * PAGE as usize * size_of::<AtomicU64>()
    }
}

/// A word that packets change in place: a page of words, and the index in it.
#[derive(Clone, Debug)]
pub(super) struct WordRef(Arc<[AtomicU64]>, usize);

impl WordRef {
    pub(super) fn new(word: u64) -> Self {
        Self(Arc::new([word.into()]), 0)
    }

    pub(super) fn set(&self, word: u64) {
        if let Some(place) = self.0.get(self.1) {
            place.store(word, Ordering::Release);
        }
    }
}

impl SharedWord for WordRef {
    fn load(&self) -> u64 {
        self.0.get(self.1).map_or(0, SharedWord::load)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.get(self.1).is_some_and(|word| SharedWord::compare_exchange(word, current, new))
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

    /// A copy with its own words, whose counts of new entries begin at zero.
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

    /// Bytes of all state here.
    pub(super) fn bytes(&self) -> usize {
        let slots: usize = self.sources.iter().map(Vec::len).sum();
        slots * size_of::<AtomicU64>()
            + self.keyed.len() * size_of::<(AtomicU64, Cell<TableKey>)>()
            + self.aggregates.bytes()
            + self.fingerprints.bytes()
    }

    pub(super) fn set_entry_table(&mut self, kind: EntryKind, entry_table: EntryTable) {
        if let Some(place) = self.entry_tables.get_mut(kind.index() as usize) {
            *place = HostEntryTable::new(entry_table);
        }
    }

    /// Sets until when both budgets of new entries are used: [`Admission::tat`] and
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

    pub(super) fn ring_slot(&self, kind: EntryKind, index: u32) -> Option<&AtomicU64> {
        let index = index as usize;
        match kind {
            EntryKind::V4 => self.sources[0].get(index),
            EntryKind::V6 => self.sources[1].get(index),
            EntryKind::Compact => self.sources[2].get(index),
            EntryKind::Keyed => self.keyed.get(index).map(|(state, _)| state),
        }
    }

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
