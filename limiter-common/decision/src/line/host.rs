//! A line in ordinary memory, or mapped from the kernel, for the host.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use limiter_common::bucket::Word;
use limiter_common::wire::{self, Bucket, LINE_WAYS, LineEntry};

use super::lock::HELD;
use super::{Entry, Head, Line, NOBODY, counts};
use crate::cell::Cell;

/// Attempts to read an entry that changes owners meanwhile, before it counts as being removed.
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
    spilled: AtomicU64,
    carried_passed: AtomicU64,
    carried_dropped: AtomicU64,
    entries: [HostEntry; LINE_WAYS],
}

const _: () = assert!(
    size_of::<HostLine>() == size_of::<wire::Line>()
        && offset_of!(HostLine, spilled) == offset_of!(wire::Line, spilled)
        && offset_of!(HostLine, carried_passed) == offset_of!(wire::Line, carried_passed)
        && offset_of!(HostLine, carried_dropped) == offset_of!(wire::Line, carried_dropped)
        && offset_of!(HostLine, entries) == offset_of!(wire::Line, entries)
        && size_of::<HostEntry>() == size_of::<LineEntry>()
        && offset_of!(HostEntry, resolved) == offset_of!(LineEntry, resolved)
        && offset_of!(HostEntry, name) == offset_of!(LineEntry, name)
        && offset_of!(HostEntry, passed) == offset_of!(LineEntry, passed)
        && offset_of!(HostEntry, dropped) == offset_of!(LineEntry, dropped)
);

/// The bucket of a source in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveEntry {
    /// The name of the source: [`limiter_common::bucket_key::BucketKey::name`].
    pub name: u64,
    /// The bucket, with its complete counts.
    pub bucket: Bucket,
}

impl HostLine {
    /// The current content of the line.
    pub fn read(&self) -> wire::Line {
        wire::Line {
            lock: self.lock.load(Ordering::Acquire),
            spilled: self.spilled.load(Ordering::Acquire),
            carried_passed: self.carried_passed.load(Ordering::Acquire),
            carried_dropped: self.carried_dropped.load(Ordering::Acquire),
            entries: self.entries.each_ref().map(HostEntry::read),
        }
    }

    /// The buckets in the line, each read consistently: `live`.
    pub fn live_entries(&self) -> impl Iterator<Item = LiveEntry> {
        (1_u32..).zip(&self.entries).filter_map(|(way, entry)| self.live(way, entry))
    }

    /// The bucket of one source, read consistently while others charge it and while the entry may
    /// change owners. `None` for an unused entry, and for one that is being made or removed.
    fn live(&self, way: u32, entry: &HostEntry) -> Option<LiveEntry> {
        let carried = || {
            let words = [&self.carried_passed, &self.carried_dropped];
            words.map(|word| counts::carried(word.load(Ordering::Acquire), way))
        };
        for _ in 0..READINGS {
            let name = entry.name.load(Ordering::Acquire);
            if name == NOBODY {
                return None;
            }
            let [passed, dropped] = carried();
            let read = entry.read();
            // While somebody holds the lock, a part of a count that is being carried may be in both
            // places.
            let locked = self.lock.load(Ordering::Acquire) == HELD;
            let is_carried = locked && counts::is_due(read.counts());
            let whole = !is_carried && [passed, dropped] == carried();
            // The CPU that makes an entry first stores the removal word, then the name, and finally
            // the word.
            let stands = read.name == name && entry.name.load(Ordering::Acquire) == name;
            let word = Word::from_raw(entry.word.load(Ordering::Acquire));
            if whole && stands && !word.is_gone() && !Word::from_raw(read.word).is_gone() {
                let passed = passed + u64::from(read.passed);
                let dropped = dropped + u64::from(read.dropped);
                let LineEntry { word, resolved, .. } = read;
                return Some(LiveEntry {
                    name,
                    bucket: Bucket { word, resolved, passed, dropped },
                });
            }
        }
        None
    }
}

impl HostEntry {
    fn read(&self) -> LineEntry {
        LineEntry {
            word: self.word.load(Ordering::Acquire),
            resolved: self.resolved.load(Ordering::Acquire),
            name: self.name.load(Ordering::Acquire),
            // Before the name is read again.
            passed: self.passed.load(Ordering::Acquire),
            dropped: self.dropped.load(Ordering::Acquire),
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

    fn counts(&self) -> u64 {
        self.read().counts()
    }

    fn begin_counts(&self, passed: u64, dropped: u64) {
        self.passed.store(low(passed), Ordering::Relaxed);
        self.dropped.store(low(dropped), Ordering::Relaxed);
    }

    fn count_passed(&self, packets: u64) {
        self.passed.fetch_add(low(packets), Ordering::Relaxed);
    }

    fn count_dropped(&self, packets: u64) {
        self.dropped.fetch_add(low(packets), Ordering::Relaxed);
    }
}

const fn low(count: u64) -> u32 {
    (count & 0xffff_ffff) as u32
}

impl<'a> Line for &'a HostLine {
    type Entry = &'a HostEntry;

    fn head(&self, word: Head) -> impl Cell {
        match word {
            Head::Lock => &self.lock,
            Head::Spilled => &self.spilled,
            Head::Passed => &self.carried_passed,
            Head::Dropped => &self.carried_dropped,
        }
    }

    fn entry(&self, way: u32) -> Option<&'a HostEntry> {
        let index = usize::try_from(way.checked_sub(1)?).ok()?;
        self.entries.get(index)
    }
}
