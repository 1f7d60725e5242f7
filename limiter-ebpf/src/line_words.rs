//! A line and an entry of it, inside their map.

use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::ptr::NonNull;

use limiter_common::cell::Cell;
use limiter_common::line;
use limiter_common::room::Leave;
use limiter_common::wire::LineEntry;

use crate::atomic::MapWord;
use crate::lines;

/// A line of a family of sources.
#[derive(Clone, Copy)]
pub(crate) struct MapLine {
    pub(crate) index: u32,
    /// The IP version.
    pub(crate) version: u32,
}

impl line::Line for MapLine {
    type Entry = MapEntry;

    #[inline(always)]
    fn lock(&self) -> impl Cell {
        Lock(*self)
    }

    #[inline(always)]
    fn entry(&self, way: u32) -> Option<MapEntry> {
        let way = way & Self::LAST;
        if way == 0 { None } else { lines::entry_at(self, way).map(MapEntry) }
    }

    #[inline(always)]
    fn take(&self) -> bool {
        lines::limiter_line_take(self.index, self.version) != 0
    }

    #[inline(always)]
    fn victim(&self, start: u32, leave: &Leave) -> u64 {
        let (now, keep) = (leave.now.get(), leave.keep.get());
        lines::limiter_line_victim(self.index, self.version, start, now, keep)
    }
}

/// The lock of a line: the first word of its head, which stands where the first entry would.
struct Lock(MapLine);

impl Lock {
    #[inline(always)]
    fn word(&self) -> Option<MapWord> {
        lines::entry_at(&self.0, 0).map(|head| MapWord::new(head.cast()))
    }
}

impl Cell for Lock {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.word().map_or(u64::MAX, |word| word.load())
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.word().is_some_and(|word| word.compare_exchange(current, new))
    }
}

/// An entry inside a line.
#[derive(Clone, Copy)]
pub(crate) struct MapEntry(pub(crate) NonNull<LineEntry>);

impl MapEntry {
    #[inline(always)]
    fn field<T>(&self, field: impl FnOnce(*mut LineEntry) -> *mut T) -> NonNull<T> {
        // SAFETY: a field of a whole entry, and so not null.
        unsafe { NonNull::new_unchecked(field(self.0.as_ptr())) }
    }
}

/// The address of a field of a [`LineEntry`].
macro_rules! field {
    ($name:ident) => {
        // SAFETY: only the address of the field is computed, of a whole entry.
        |entry: *mut LineEntry| unsafe { &raw mut (*entry).$name }
    };
}

impl MapEntry {
    /// Counts packets that were dropped.
    #[inline(always)]
    pub(crate) fn count_drops(&self, packets: u32) {
        let counter = self.field(field!(dropped)).as_ptr();
        // SAFETY: as in `MapWord::load`; the result stays unused, as in `MapMeter::count`.
        unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::SeqCst }>(counter, packets) };
    }
}

impl line::Entry for MapEntry {
    #[inline(always)]
    fn name(&self) -> impl Cell {
        MapWord::new(self.field(field!(name)))
    }

    #[inline(always)]
    fn word(&self) -> impl Cell {
        MapWord::new(self.field(field!(word)))
    }

    #[inline(always)]
    fn resolved(&self) -> impl Cell {
        MapWord::new(self.field(field!(resolved)))
    }

    #[inline(always)]
    fn packets(&self) -> u64 {
        let (passed, dropped) = (self.field(field!(passed)), self.field(field!(dropped)));
        // SAFETY: as in `MapWord::load`.
        unsafe {
            u64::from(passed.as_ptr().read_volatile()) + u64::from(dropped.as_ptr().read_volatile())
        }
    }

    #[inline(always)]
    fn begin_counts(&self, passed: u64, dropped: u64) {
        let counters = (self.field(field!(passed)), self.field(field!(dropped)));
        // SAFETY: as in `MapWord::load`.
        unsafe {
            counters.0.as_ptr().write_volatile((passed & 0xffff_ffff) as u32);
            counters.1.as_ptr().write_volatile((dropped & 0xffff_ffff) as u32);
        }
    }

    #[inline(always)]
    fn count(&self, passed: bool) {
        // As in `MapMeter::count`, the result stays unused, and the orderings differ so that the two stay two instructions.
        if passed {
            let counter = self.field(field!(passed)).as_ptr();
            // SAFETY: as in `MapWord::load`.
            unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(counter, 1) };
        } else {
            let counter = self.field(field!(dropped)).as_ptr();
            // SAFETY: as in `MapWord::load`.
            unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::SeqCst }>(counter, 1) };
        }
    }

    #[inline(always)]
    fn uncount(&self) {
        let counter = self.field(field!(passed)).as_ptr();
        // SAFETY: as above. The complement of one, so the sum is one less.
        unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(counter, u32::MAX) };
    }
}
