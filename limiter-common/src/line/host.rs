//! A line in ordinary memory, or mapped from the kernel: for the host.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Entry, Line, NOBODY};
use crate::bucket::Word;
use crate::cell::Cell;
use crate::wire::{self, LINE_WAYS, LineEntry};

/// Readings of an entry that changes hands meanwhile, before it counts as one that is leaving.
const READINGS: u32 = 4;

/// [`wire::LineEntry`] in atomics: the same layout.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HostEntry {
    word: AtomicU64,
    resolved: AtomicU64,
    name: AtomicU64,
    passed: AtomicU32,
    dropped: AtomicU32,
}

/// [`wire::Line`] in atomics: the same layout.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HostLine {
    lock: AtomicU64,
    reserved: [AtomicU64; 3],
    entries: [HostEntry; LINE_WAYS],
}

const _: () = assert!(
    size_of::<HostLine>() == size_of::<wire::Line>()
        && offset_of!(HostLine, entries) == offset_of!(wire::Line, entries)
        && size_of::<HostEntry>() == size_of::<LineEntry>()
        && offset_of!(HostEntry, resolved) == offset_of!(LineEntry, resolved)
        && offset_of!(HostEntry, name) == offset_of!(LineEntry, name)
        && offset_of!(HostEntry, passed) == offset_of!(LineEntry, passed)
        && offset_of!(HostEntry, dropped) == offset_of!(LineEntry, dropped)
);

impl HostLine {
    /// The line as it stands.
    pub fn read(&self) -> wire::Line {
        wire::Line {
            lock: self.lock.load(Ordering::Acquire),
            reserved: [0; 3],
            entries: self.entries.each_ref().map(HostEntry::read),
        }
    }

    /// The buckets that are in it, each whole: [`HostEntry::live`].
    pub fn live_entries(&self) -> impl Iterator<Item = LineEntry> {
        self.entries.iter().filter_map(HostEntry::live)
    }
}

impl HostEntry {
    /// The bucket of one source, all of it, while others charge it and while the entry may change
    /// hands. `None` for nobody's, and for one that is being made or left.
    pub fn live(&self) -> Option<LineEntry> {
        for _ in 0..READINGS {
            let name = self.name.load(Ordering::Acquire);
            if name == NOBODY {
                return None;
            }
            let read = self.read();
            // The CPU that makes an entry stores the leaving word first, then the name, and the
            // word last.
            let stands = read.name == name && self.name.load(Ordering::Acquire) == name;
            let word = Word::from_raw(self.word.load(Ordering::Acquire));
            if stands && !word.is_gone() && !Word::from_raw(read.word).is_gone() {
                return Some(read);
            }
        }
        None
    }

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

    fn count_passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    fn count_dropped(&self, packets: u64) {
        self.dropped.fetch_add(low(packets), Ordering::Relaxed);
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
