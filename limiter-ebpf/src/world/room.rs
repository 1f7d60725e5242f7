//! Room for entries: the settings of their tables, and the budgets of new ones.

use core::ptr::NonNull;

use limiter_common::cell::Cell;
use limiter_common::room::{AdmissionCells, SpaceWords, Spaces};
use limiter_common::time::Ticks;
use limiter_common::wire::{Lane, Space};

use super::atomic::MapWord;
use super::kernel::Kernel;
use super::maps::{ADMISSION, AGGREGATES, SPACES};

/// A word of [`AGGREGATES`].
#[inline(always)]
pub(crate) fn aggregate(index: u32) -> Option<MapWord> {
    AGGREGATES.get_ptr_mut(index).and_then(NonNull::new).map(MapWord::new)
}

/// A [`Space`] inside its map.
struct MapSpace(NonNull<Space>);

impl MapSpace {
    #[inline(always)]
    fn read(&self, field: impl FnOnce(*mut Space) -> *mut u64) -> u64 {
        // SAFETY: a field of a whole value of the array, alive as long as the program, aligned to
        // 8.
        unsafe { field(self.0.as_ptr()).read_volatile() }
    }

    #[inline(always)]
    fn word(&self, field: impl FnOnce(*mut Space) -> *mut u64) -> MapWord {
        // SAFETY: a field of a value that is not null is not null.
        MapWord::new(unsafe { NonNull::new_unchecked(field(self.0.as_ptr())) })
    }
}

/// The address of a field of a [`Space`].
macro_rules! field {
    ($name:ident) => {
        // SAFETY: only the address of the field is computed, of a whole value.
        |space: *mut Space| unsafe { &raw mut (*space).$name }
    };
}

impl SpaceWords for MapSpace {
    #[inline(always)]
    fn entries(&self) -> u64 {
        self.read(field!(entries))
    }

    #[inline(always)]
    fn keep(&self) -> Ticks {
        Ticks::new(self.read(field!(keep)))
    }

    #[inline(always)]
    fn cost(&self) -> Ticks {
        Ticks::new(self.read(field!(cost)))
    }

    #[inline(always)]
    fn tolerance(&self) -> Ticks {
        Ticks::new(self.read(field!(tolerance)))
    }

    #[inline(always)]
    fn seed(&self) -> u64 {
        self.read(field!(seed))
    }

    #[inline(always)]
    fn hand(&self) -> impl Cell {
        self.word(field!(hand))
    }

    #[inline(always)]
    fn flood_until(&self) -> impl Cell {
        self.word(field!(flood_until))
    }

    #[inline(always)]
    fn total(&self) -> impl Cell {
        self.word(field!(total))
    }
}

#[inline(always)]
pub(crate) fn admission<'a>(lane: Lane) -> Option<&'a AdmissionCells> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU, and
    // every field is a cell.
    ADMISSION.get_ptr_mut(lane.index()).map(|cells| unsafe { &*cells })
}

impl Spaces for Kernel {
    #[inline(always)]
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        SPACES.get_ptr_mut(lane.index()).and_then(NonNull::new).map(MapSpace)
    }

    #[inline(always)]
    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        admission(lane)
    }
}
