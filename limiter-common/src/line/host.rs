//! A line in ordinary memory: for the host.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Entry, Line};
use crate::cell::Cell;
use crate::wire::{self, LINE_WAYS, LineEntry};

/// [`wire::LineEntry`] in atomics.
#[derive(Debug, Default)]
pub struct HostEntry {
    word: AtomicU64,
    resolved: AtomicU64,
    name: AtomicU64,
    passed: AtomicU32,
    dropped: AtomicU32,
}

/// [`wire::Line`] in atomics.
#[derive(Debug, Default)]
pub struct HostLine {
    lock: AtomicU64,
    entries: [HostEntry; LINE_WAYS],
}

impl HostLine {
    /// As it stands.
    pub fn read(&self) -> wire::Line {
        wire::Line {
            lock: self.lock.load(Ordering::Acquire),
            reserved: [0; 3],
            entries: self.entries.each_ref().map(HostEntry::read),
        }
    }
}

impl HostEntry {
    fn read(&self) -> LineEntry {
        LineEntry {
            word: self.word.load(Ordering::Acquire),
            resolved: self.resolved.load(Ordering::Acquire),
            name: self.name.load(Ordering::Acquire),
            passed: self.passed.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}

impl Entry for &HostEntry {
    fn name(&self) -> impl Cell {
        &self.name
    }

    fn word(&self) -> impl Cell {
        &self.word
    }

    fn resolved(&self) -> impl Cell {
        &self.resolved
    }

    fn packets(&self) -> u64 {
        let read = self.read();
        u64::from(read.passed).wrapping_add(u64::from(read.dropped))
    }

    fn begin_counts(&self, passed: u64, dropped: u64) {
        self.passed.store(low(passed), Ordering::Relaxed);
        self.dropped.store(low(dropped), Ordering::Relaxed);
    }

    fn count(&self, passed: bool) {
        let counter = if passed { &self.passed } else { &self.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn uncount(&self) {
        self.passed.fetch_sub(1, Ordering::Relaxed);
    }
}

const fn low(count: u64) -> u32 {
    (count & 0xffff_ffff) as u32
}

impl<'a> Line for &'a HostLine {
    type Entry = &'a HostEntry;

    fn lock(&self) -> impl Cell {
        &self.lock
    }

    fn entry(&self, way: u32) -> Option<&'a HostEntry> {
        let index = usize::try_from(way.checked_sub(1)?).ok()?;
        self.entries.get(index)
    }
}
