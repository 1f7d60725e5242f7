//! The line table in the model.

use std::sync::Arc;

use limiter_common::bucket_key::BucketKey;
use limiter_common::wire::{Bucket, EntryKind, lines_for};
use limiter_decision::cell::Cell;
use limiter_decision::line::{Entry, Head, HostEntry, HostLine, Line, Lines, Place};

/// The lines of both families and of compact keys.
#[derive(Debug)]
pub(crate) struct ModelLines {
    v4: Arc<[HostLine]>,
    v6: Arc<[HostLine]>,
    compact: Arc<[HostLine]>,
    seed: u64,
}

impl ModelLines {
    pub(crate) fn new(sources: u32, keys: u32, seed: u64) -> Self {
        let lines = |count| (0..lines_for(count)).map(|_| HostLine::default()).collect();
        Self { v4: lines(sources), v6: lines(sources), compact: lines(keys), seed }
    }

    fn of(&self, kind: EntryKind) -> &Arc<[HostLine]> {
        match kind {
            EntryKind::V4 => &self.v4,
            EntryKind::V6 => &self.v6,
            EntryKind::Compact | EntryKind::Keyed => &self.compact,
        }
    }

    pub(crate) fn all(&self, kind: EntryKind) -> Lines {
        Lines { count: u32::try_from(self.of(kind).len()).unwrap_or(u32::MAX), seed: self.seed }
    }

    pub(crate) fn line(&self, kind: EntryKind, index: u32) -> Option<ModelLine> {
        let index = usize::try_from(index).ok()?;
        Some(ModelLine { lines: Arc::clone(self.of(kind)), index })
    }

    pub(crate) fn bucket(&self, bucket_key: &BucketKey) -> Option<Bucket> {
        let (family, name) = (bucket_key.kind(), bucket_key.name()?);
        let found = Place::of(name, self.all(family)).all().find_map(|index| {
            let line = self.line(family, index)?;
            line.host()?.live_entries().find(|entry| entry.name == name)
        })?;
        Some(found.bucket)
    }

    /// The compact keys that have an entry.
    pub(crate) fn compact(&self) -> Vec<(BucketKey, Bucket)> {
        let entries = self.compact.iter().flat_map(HostLine::live_entries);
        entries
            .map(|entry| (BucketKey::named(EntryKind::Compact, entry.name), entry.bucket))
            .collect()
    }

    pub(crate) fn tracked(&self) -> usize {
        self.v4
            .iter()
            .chain(self.v6.iter())
            .chain(self.compact.iter())
            .map(|line| line.live_entries().count())
            .sum()
    }
}

/// A line in place.
#[derive(Clone, Debug)]
pub struct ModelLine {
    lines: Arc<[HostLine]>,
    index: usize,
}

impl ModelLine {
    fn host(&self) -> Option<&HostLine> {
        self.lines.get(self.index)
    }
}

/// An entry in place.
#[derive(Clone, Debug)]
pub struct ModelEntry(ModelLine, u32);

impl ModelEntry {
    fn host(&self) -> Option<&HostEntry> {
        self.0.host().and_then(|line| line.entry(self.1))
    }

    fn read(&self, read: impl FnOnce(&&HostEntry) -> u64) -> u64 {
        self.host().map_or(0, |entry| read(&entry))
    }

    fn change(&self, change: impl FnOnce(&&HostEntry) -> bool) -> bool {
        self.host().is_some_and(|entry| change(&entry))
    }
}

struct EntryWord<'m>(&'m ModelEntry, Field);

#[derive(Clone, Copy)]
enum Field {
    Name,
    Word,
    Resolved,
}

impl Cell for EntryWord<'_> {
    fn load(&self) -> u64 {
        self.0.read(|entry| match self.1 {
            Field::Name => entry.name().load(),
            Field::Word => entry.word().load(),
            Field::Resolved => entry.resolved().load(),
        })
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.change(|entry| match self.1 {
            Field::Name => entry.name().compare_exchange(current, new),
            Field::Word => entry.word().compare_exchange(current, new),
            Field::Resolved => entry.resolved().compare_exchange(current, new),
        })
    }
}

impl Entry for ModelEntry {
    fn name(&self) -> impl Cell {
        EntryWord(self, Field::Name)
    }

    fn word(&self) -> impl Cell {
        EntryWord(self, Field::Word)
    }

    fn resolved(&self) -> impl Cell {
        EntryWord(self, Field::Resolved)
    }

    fn counts(&self) -> u64 {
        self.read(|entry| entry.counts())
    }

    fn begin_counts(&self, passed: u64, dropped: u64) {
        if let Some(entry) = self.host() {
            entry.begin_counts(passed, dropped);
        }
    }

    fn count_passed(&self, packets: u64) {
        if let Some(entry) = self.host() {
            Entry::count_passed(&entry, packets);
        }
    }

    fn count_dropped(&self, packets: u64) {
        if let Some(entry) = self.host() {
            Entry::count_dropped(&entry, packets);
        }
    }
}

struct HeadWord<'m>(&'m ModelLine, Head);

impl Cell for HeadWord<'_> {
    fn load(&self) -> u64 {
        self.0.host().map_or(0, |line| line.head(self.1).load())
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.host().is_some_and(|line| line.head(self.1).compare_exchange(current, new))
    }
}

impl Line for ModelLine {
    type Entry = ModelEntry;

    fn head(&self, word: Head) -> impl Cell {
        HeadWord(self, word)
    }

    fn entry(&self, way: u32) -> Option<ModelEntry> {
        self.host()?.entry(way)?;
        Some(ModelEntry(self.clone(), way))
    }
}
