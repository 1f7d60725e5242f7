//! The settings of an entry table in ordinary memory, for the host.

use core::sync::atomic::{AtomicU64, Ordering};

use limiter_common::time::Ticks;
use limiter_common::wire::EntryTable;

use super::EntryTableWords;
use crate::cell::Cell;

/// [`EntryTable`] in atomics.
#[derive(Debug, Default)]
pub struct HostEntryTable {
    settings: EntryTable,
    cursor: AtomicU64,
    flood_until: AtomicU64,
    total: AtomicU64,
}

impl HostEntryTable {
    /// A table with these settings.
    pub const fn new(settings: EntryTable) -> Self {
        Self {
            settings,
            cursor: AtomicU64::new(settings.cursor),
            flood_until: AtomicU64::new(settings.flood_until),
            total: AtomicU64::new(settings.total),
        }
    }

    /// The value in the form of the map.
    pub fn read(&self) -> EntryTable {
        EntryTable {
            cursor: self.cursor.load(Ordering::Acquire),
            flood_until: self.flood_until.load(Ordering::Acquire),
            total: self.total.load(Ordering::Acquire),
            ..self.settings
        }
    }
}

impl EntryTableWords for &HostEntryTable {
    fn entries(&self) -> u64 {
        self.settings.entries
    }

    fn keep(&self) -> Ticks {
        Ticks::new(self.settings.keep)
    }

    fn cost(&self) -> Ticks {
        Ticks::new(self.settings.cost)
    }

    fn tolerance(&self) -> Ticks {
        Ticks::new(self.settings.tolerance)
    }

    fn seed(&self) -> u64 {
        self.settings.seed
    }

    fn cursor(&self) -> impl Cell {
        &self.cursor
    }

    fn flood_until(&self) -> impl Cell {
        &self.flood_until
    }

    fn total(&self) -> impl Cell {
        &self.total
    }
}
