//! A line and its entries inside their map.

use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::ptr::NonNull;

use limiter_common::wire::{Line, LineEntry};
use limiter_decision::cell::Cell;
use limiter_decision::line;

use super::{are_used, entry_at};
use crate::maps::atomic::{MapWord, acquire_fence};

#[derive(Clone, Copy)]
pub(crate) struct MapLine {
    /// The index among the lines of all kinds.
    pub(crate) index: u32,
}

impl MapLine {
    /// Converts a number that was passed to a BPF function; `None` without lines, so that the
    /// function is not walked then.
    #[inline(always)]
    pub(crate) fn at(number: u64) -> Option<Self> {
        if are_used() { Some(Self { index: (number & 0xffff_ffff) as u32 }) } else { None }
    }
}

impl line::Line for MapLine {
    type Entry = MapEntry;

    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn number(&self) -> u64 {
        u64::from(self.index)
    }

    #[inline(always)]
    fn head(&self, word: line::Head) -> impl Cell {
        HeadWord(*self, word)
    }

    #[inline(always)]
    fn entry(&self, way: u32) -> Option<MapEntry> {
        let way = way & Self::LAST;
        if way == 0 { None } else { entry_at(self, way).map(MapEntry) }
    }
}

/// A word of the head of a line, which is in the place before the first entry.
struct HeadWord(MapLine, line::Head);

impl HeadWord {
    #[inline(always)]
    fn word(&self) -> Option<MapWord> {
        let head = entry_at(&self.0, 0)?.cast::<Line>();
        // SAFETY: only the address of a field is computed. The head is the size of an entry, and
        // the words are in it.
        let word = unsafe {
            match self.1 {
                line::Head::Lock => &raw mut (*head.as_ptr()).lock,
                line::Head::Spilled => &raw mut (*head.as_ptr()).spilled,
                line::Head::Passed => &raw mut (*head.as_ptr()).carried_passed,
                line::Head::Dropped => &raw mut (*head.as_ptr()).carried_dropped,
            }
        };
        NonNull::new(word).map(MapWord::new)
    }
}

impl Cell for HeadWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.word().map_or(u64::MAX, |word| word.load())
    }

    #[inline(always)]
    fn acquire_fence(&self) {
        acquire_fence();
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.word().is_some_and(|word| word.compare_exchange(current, new))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct MapEntry(pub(crate) NonNull<LineEntry>);

impl MapEntry {
    #[inline(always)]
    fn field<T>(&self, field: impl FnOnce(*mut LineEntry) -> *mut T) -> NonNull<T> {
        // SAFETY: a field of a whole entry, so it is not null.
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

impl line::Entry for MapEntry {
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn address(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

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
    fn counts(&self) -> u64 {
        let passed = self.field(field!(passed)).cast::<u64>();
        // SAFETY: as in `MapWord::load`. Both counts are one word of the entry.
        unsafe { passed.as_ptr().read_volatile() }
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
    fn count_passed(&self, packets: u64) {
        // The result stays unused, and the orderings differ so that both stay separate
        // instructions; see `MapBucket::count_passed`.
        let counter = self.field(field!(passed)).as_ptr();
        let packets = (packets & 0xffff_ffff) as u32;
        // SAFETY: as in `MapWord::load`.
        unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(counter, packets) };
    }

    #[inline(always)]
    fn count_dropped(&self, packets: u64) {
        let counter = self.field(field!(dropped)).as_ptr();
        let packets = (packets & 0xffff_ffff) as u32;
        // SAFETY: as in `MapWord::load`.
        unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::SeqCst }>(counter, packets) };
    }
}
