//! Room for entries in the model: the same frames, hands and budgets as beside the kernel's maps.

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::cell::Cell as SharedWord;
use limiter_common::room::{AdmissionCells, Frames, HostSpace, Leave, SpaceWords, Spaces, source};
use limiter_common::source::Source;
use limiter_common::table::{self, Scratch};
use limiter_common::wire::{AGGREGATES, Admission, Lane, Space, TableKey};

use super::Model;

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

    fn host(&self, lane: Lane) -> Option<&HostSpace> {
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

    pub(super) fn aggregate(&self, index: u32) -> Option<&AtomicU64> {
        self.aggregates.get(index as usize)
    }
}

impl Spaces for Model {
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        self.room.host(lane)
    }

    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        self.room.admission.get(lane.index() as usize)
    }
}

/// The frames of the sources of one family.
pub(super) struct SourceFrames<'m, const LANE: u32>(pub(super) &'m Model);

const V4: u32 = Lane::V4.index();

impl<const LANE: u32> Spaces for SourceFrames<'_, LANE> {
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        self.0.space(lane)
    }

    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        self.0.admission(lane)
    }
}

impl<const LANE: u32> Frames for SourceFrames<'_, LANE> {
    const LANE: Lane = if LANE == V4 { Lane::V4 } else { Lane::V6 };

    fn frame(&self, index: u32) -> Option<impl SharedWord> {
        self.0.room.sources.get(LANE as usize)?.get(index as usize)
    }

    fn give_up(&self, _index: u32, state: u64, leave: &Leave) -> bool {
        let name: Source = source::named(Self::LANE, state);
        let mut buckets = self.0.buckets.write().unwrap_or_else(PoisonError::into_inner);
        let Some(meter) = buckets.get(&name) else {
            return true;
        };
        if !source::retire(meter, meter.packets(), leave) {
            return false;
        }
        buckets.remove(&name);
        true
    }
}

/// The frames of the keys of tables.
pub(super) struct KeyedFrames<'m>(pub(super) &'m Model, pub(super) &'m Scratch);

impl Spaces for KeyedFrames<'_> {
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        self.0.space(lane)
    }

    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        self.0.admission(lane)
    }
}

impl KeyedFrames<'_> {
    /// Writes the key into a frame that was taken for it; tells the frame's state then.
    pub(super) fn name(&self, index: u32, before: u64, key: TableKey) -> u64 {
        if let Some((_, place)) = self.0.room.keyed.get(index as usize) {
            place.set(key);
        }
        before.max(1) + 1
    }
}

impl Frames for KeyedFrames<'_> {
    const LANE: Lane = Lane::Keyed;

    fn frame(&self, index: u32) -> Option<impl SharedWord> {
        self.0.room.keyed.get(index as usize).map(|(state, _)| state)
    }

    fn give_up(&self, index: u32, state: u64, leave: &Leave) -> bool {
        let Some((now, key)) = self.0.room.keyed.get(index as usize) else {
            return false;
        };
        let key = key.get();
        if now.load(Ordering::Acquire) != state {
            return false;
        }
        let Some(bucket) = self.0.tables.bucket_of(&key) else {
            return true;
        };
        if !table::retire(self.0, self.1, &bucket, leave) {
            return false;
        }
        self.0.tables.remove(&key);
        true
    }
}
