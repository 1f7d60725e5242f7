//! The decision over two stores: a table of lines, and a map that holds any number of sources.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use limiter_common::bucket::{Generation, Slot, Word};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Control, EntryKind, Limit, LineEntry, Moment};
use limiter_decision::cell::{Cell, SourceBucket};
use limiter_decision::engine::{self, SourcePacket};
use limiter_decision::entries::{AdmissionCells, EntryTableWords, HostEntryTable};
use limiter_decision::line::{self, HostLine, Line, Place};
use limiter_decision::maps;
use limiter_decision::outcome::Insert;
use limiter_decision::stored::StoredIn;

use crate::absent::{Nothing, admission, no_tables, nothing_before, unbounded};

pub(crate) const SEED: u64 = 0x5eed;

pub(crate) fn source(number: u32) -> BucketKey {
    Source::V4(number.to_be_bytes()).into()
}

pub(crate) trait SourceStore {
    type Hashed: SourceBucket;
    type Line: Line;

    fn source_bucket(&self, source: &BucketKey) -> Option<Self::Hashed>;

    fn insert(&self, source: &BucketKey, bucket: &Bucket) -> Insert;

    fn lines(&self) -> Option<line::Lines>;

    fn line(&self, index: u32) -> Option<Self::Line>;

    fn entry_table(&self) -> &HostEntryTable;
}

pub(crate) struct Lines {
    lines: Vec<HostLine>,
    entry_table: HostEntryTable,
}

impl Lines {
    pub(crate) fn new(lines: usize) -> Self {
        Self { lines: (0..lines).map(|_| HostLine::default()).collect(), entry_table: unbounded() }
    }

    pub(crate) fn all(&self) -> line::Lines {
        line::Lines { count: u32::try_from(self.lines.len()).unwrap(), seed: SEED }
    }

    /// True if the lines of a source have nobody in them but others that owe.
    pub(crate) fn is_full_for(&self, source: &BucketKey, now: Ticks) -> bool {
        let name = source.name().unwrap();
        Place::of(name, self.all()).all().all(|index| {
            let line = &self.lines[usize::try_from(index).unwrap()];
            line.read().entries.iter().all(|entry| {
                let tat = Word::from_raw(entry.word).tat();
                entry.name != name && entry.name != line::NOBODY && tat >= now
            })
        })
    }

    /// The numbers of sources that meet in two lines, and in the overflow if there is any.
    pub(crate) fn crowd(&self, sources: usize) -> Vec<u32> {
        let meets = |number: &u32| {
            let place = Place::of(source(*number).name().unwrap(), self.all());
            place.first() < 2 && place.second() < 2 || self.lines.len() < 4
        };
        (0..).filter(meets).take(sources).collect()
    }

    pub(crate) fn at(&self, index: u32) -> &HostLine {
        &self.lines[usize::try_from(index).unwrap()]
    }

    /// Sources in the overflow that owe.
    pub(crate) fn owing_in_overflow(&self, now: Ticks) -> usize {
        let own = usize::try_from(self.all().own()).unwrap();
        let owes = |entry: &line::LiveEntry| Word::from_raw(entry.bucket.word).tat() > now;
        self.lines[own..].iter().flat_map(HostLine::live_entries).filter(owes).count()
    }

    pub(crate) fn has(&self, source: &BucketKey) -> bool {
        let name = source.name().unwrap();
        self.entries().iter().any(|entry| entry.name == name)
    }

    /// All entries that are somebody's.
    pub(crate) fn entries(&self) -> Vec<LineEntry> {
        let all = self.lines.iter().flat_map(|line| line.read().entries);
        all.filter(|entry| entry.name != line::NOBODY).collect()
    }
}

impl<'a> SourceStore for &'a Lines {
    type Hashed = Alone;
    type Line = &'a HostLine;

    fn source_bucket(&self, _source: &BucketKey) -> Option<Self::Hashed> {
        None
    }

    fn insert(&self, _source: &BucketKey, _bucket: &Bucket) -> Insert {
        Insert::Refused
    }

    fn lines(&self) -> Option<line::Lines> {
        Some(self.all())
    }

    fn line(&self, index: u32) -> Option<&'a HostLine> {
        self.lines.get(usize::try_from(index).unwrap())
    }

    fn entry_table(&self) -> &HostEntryTable {
        &self.entry_table
    }
}

/// A bucket of its own.
#[derive(Clone)]
pub(crate) struct Alone(Arc<[AtomicU64; 2]>);

impl SourceBucket for Alone {
    fn word(&self) -> impl Cell {
        &self.0[0]
    }

    fn resolved(&self) -> impl Cell {
        &self.0[1]
    }

    fn count_passed(&self, _packets: u64) {}

    fn count_dropped(&self, _packets: u64) {}

    fn packets(&self) -> u64 {
        1
    }
}

/// A map without bounds.
pub(crate) struct Unbounded {
    buckets: Mutex<HashMap<BucketKey, Alone>>,
    entry_table: HostEntryTable,
}

impl Default for Unbounded {
    fn default() -> Self {
        Self { buckets: Mutex::default(), entry_table: unbounded() }
    }
}

impl Unbounded {
    /// Forgets a source. Says whether it had drained, under the limit that it was charged under.
    pub(crate) fn forget(&self, source: &BucketKey, now: Ticks) -> bool {
        self.buckets
            .lock()
            .unwrap()
            .remove(source)
            .is_none_or(|bucket| Word::from_raw(bucket.word().load()).tat() <= now)
    }
}

impl SourceStore for Unbounded {
    type Hashed = Alone;
    type Line = &'static HostLine;

    fn lines(&self) -> Option<line::Lines> {
        None
    }

    fn line(&self, _index: u32) -> Option<Self::Line> {
        None
    }

    fn entry_table(&self) -> &HostEntryTable {
        &self.entry_table
    }

    fn source_bucket(&self, source: &BucketKey) -> Option<Alone> {
        self.buckets.lock().unwrap().get(source).cloned()
    }

    fn insert(&self, source: &BucketKey, bucket: &Bucket) -> Insert {
        let words = [AtomicU64::new(bucket.word), AtomicU64::new(bucket.resolved)];
        self.buckets.lock().unwrap().insert(*source, Alone(Arc::new(words)));
        Insert::Made
    }
}

/// The rules: limits by slot, and which of them a source has in a generation.
pub(crate) struct Rules {
    pub(crate) limits: Vec<Limit>,
    pub(crate) slot: fn(generation: u64, source: &BucketKey) -> u32,
    pub(crate) generation: AtomicU64,
}

pub(crate) struct Maps<'a, H> {
    pub(crate) store: H,
    pub(crate) rules: &'a Rules,
}

impl<H: SourceStore> Maps<'_, H> {
    /// One packet of 60 bytes.
    pub(crate) fn packet(&self, source: &BucketKey, now: Ticks) -> Reason {
        engine::plain_source(
            self,
            &SourcePacket {
                bucket_key: *source,
                generation: Generation::new(self.rules.generation.load(Ordering::Acquire)),
                size: FrameSize::of_packet(60),
                now,
                deferred: false,
            },
        )
        .unpack()
        .reason
    }
}

impl<H: SourceStore> maps::Maps for Maps<'_, H> {
    const SUPER_FRAMES: bool = true;
    const DELAYS: bool = true;

    type Hashed = H::Hashed;
    type Line = H::Line;
    type Keyed = Nothing;
    type Kept = maps::KeptBucket<StoredIn<Self>>;
    type Lease = Nothing;
    type Ban = Nothing;

    fn control(&self, word: Control) -> u64 {
        let generation = &self.rules.generation;
        if word == Control::Generation { generation.load(Ordering::Acquire) } else { 0 }
    }

    /// Not known: a change counts from the packet that meets it.
    fn moment(&self, _generation: u32) -> Moment {
        Moment::UNKNOWN
    }

    fn lines(&self, _kind: EntryKind) -> Option<line::Lines> {
        self.store.lines()
    }

    fn line(&self, _kind: EntryKind, index: u32) -> Option<H::Line> {
        self.store.line(index)
    }

    fn source_bucket(&self, source: &BucketKey) -> Option<H::Hashed> {
        self.store.source_bucket(source)
    }

    fn insert(&self, source: &BucketKey, bucket: &Bucket) -> Insert {
        self.store.insert(source, bucket)
    }

    fn remove(&self, _source: &BucketKey) {}

    fn entry_table(&self, _kind: EntryKind) -> Option<impl EntryTableWords> {
        Some(self.store.entry_table())
    }

    fn admission(&self, _kind: EntryKind) -> Option<&AdmissionCells> {
        Some(admission())
    }

    fn source_rule(&self, generation: Generation, source: &BucketKey) -> Option<Slot> {
        Some(Slot::new((self.rules.slot)(u64::from(generation.get()), source)))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.rules.limits.get(usize::try_from(slot.index()).unwrap())
    }

    nothing_before!();
    no_tables!();
}

/// A limit of `burst` packets, one every `ticks`.
pub(crate) fn limit(ticks: u64, burst: u64, since: u32) -> Limit {
    let tolerance = ticks * burst;
    Limit { increment: ticks, tolerance, since, ..Limit::default() }
}
