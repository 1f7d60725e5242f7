//! The settings of a table of entries, inside their map.

use core::ptr::NonNull;

use limiter_common::time::Ticks;
use limiter_common::wire::EntryTable;
use limiter_decision::cell::Cell;
use limiter_decision::entries::EntryTableWords;

use super::atomic::MapWord;

pub(super) struct MapEntryTable(NonNull<EntryTable>);

impl MapEntryTable {
    /// Wraps the result of a map look-up.
    #[inline(always)]
    pub(super) fn new(entry_table: NonNull<EntryTable>) -> Self {
        Self(entry_table)
    }

    #[inline(always)]
    fn read(&self, field: impl FnOnce(*mut EntryTable) -> *mut u64) -> u64 {
        // SAFETY: a field of a whole value of the array, alive as long as the program, aligned to
        // 8.
        unsafe { field(self.0.as_ptr()).read_volatile() }
    }

    #[inline(always)]
    fn word(&self, field: impl FnOnce(*mut EntryTable) -> *mut u64) -> MapWord {
        // SAFETY: a field of a value that is not null is not null.
        MapWord::new(unsafe { NonNull::new_unchecked(field(self.0.as_ptr())) })
    }
}

/// The address of a field of a [`EntryTable`].
macro_rules! field {
    ($name:ident) => {
        // SAFETY: only the address of the field is computed, of a whole value.
        |entry_table: *mut EntryTable| unsafe { &raw mut (*entry_table).$name }
    };
}

impl EntryTableWords for MapEntryTable {
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
    fn cursor(&self) -> impl Cell {
        self.word(field!(cursor))
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
