//! Room for entries in the model: the same frames, hands and budgets as beside the kernel's maps.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use limiter_common::room::{AdmissionCells, HostSpace};
use limiter_common::wire::{AGGREGATES, Admission, Lane, Space, TableKey};

/// Entries of a model that nobody said a size for.
const ENTRIES: u32 = 1 << 16;

/// Everything that makes room.
#[derive(Debug)]
pub(super) struct ModelRoom {
    spaces: [HostSpace; Lane::COUNT],
    admission: [AdmissionCells; Lane::COUNT],
    sources: [Vec<AtomicU64>; 2],
    keyed: Vec<(AtomicU64, Cell<TableKey>)>,
    aggregates: Vec<AtomicU64>,
}

impl Default for ModelRoom {
    fn default() -> Self {
        Self::new(ENTRIES, ENTRIES, 0)
    }
}

impl ModelRoom {
    pub(super) fn new(sources: u32, keys: u32, seed: u64) -> Self {
        let words = |count: u32| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let space = |entries| HostSpace::new(Space::new(entries, seed));
        Self {
            spaces: [space(sources), space(sources), space(keys)],
            admission: std::array::from_fn(|_| AdmissionCells::default()),
            sources: [words(sources), words(sources)],
            keyed: (0..keys).map(|_| (AtomicU64::new(0), Cell::new(TableKey::EMPTY))).collect(),
            aggregates: words(AGGREGATES),
        }
    }

    pub(super) fn space(&self, lane: Lane) -> Space {
        self.host(lane).map(HostSpace::read).unwrap_or_default()
    }

    pub(super) fn host(&self, lane: Lane) -> Option<&HostSpace> {
        self.spaces.get(lane.index() as usize)
    }

    pub(super) fn admission(&self, lane: Lane) -> Admission {
        let Some(cells) = self.admission.get(lane.index() as usize) else {
            return Admission::default();
        };
        Admission {
            tat: cells.tat.get(),
            made: cells.made.get(),
            evicted: cells.evicted.get(),
            over_budget: cells.over_budget.get(),
            full: cells.full.get(),
        }
    }

    pub(super) fn cells(&self, lane: Lane) -> Option<&AdmissionCells> {
        self.admission.get(lane.index() as usize)
    }

    /// The state of a frame.
    pub(super) fn frame(&self, lane: Lane, index: u32) -> Option<&AtomicU64> {
        let index = index as usize;
        match lane {
            Lane::V4 | Lane::V6 => self.sources.get(lane.index() as usize)?.get(index),
            Lane::Keyed => self.keyed.get(index).map(|(state, _)| state),
        }
    }

    /// The key in a frame.
    pub(super) fn frame_key(&self, index: u32) -> Option<&Cell<TableKey>> {
        self.keyed.get(index as usize).map(|(_, key)| key)
    }

    pub(super) fn aggregate(&self, index: u32) -> Option<&AtomicU64> {
        self.aggregates.get(index as usize)
    }
}
