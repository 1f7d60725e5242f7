//! Lines of two ways in loom's atomics, and sources that meet in them.

use std::sync::OnceLock;

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Control, EntryKind, Limit, Moment};
use limiter_decision::cell::Cell;
use limiter_decision::engine::{self, SourcePacket};
use limiter_decision::entries::HostEntryTable;
use limiter_decision::line::{self, Entry, Head, Line, Lines, Place};
use limiter_decision::maps;
use limiter_decision::stored::StoredIn;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::absent::{Nothing, no_map, no_tables, nothing_before, room_for_all, unbounded};
use crate::maps::{LoomBucket, LoomWord, NOW};

const WAYS: usize = 2;

/// A table of one line.
const ONE: Lines = Lines { count: 1, seed: 0 };

/// A table of 31 lines and one of overflow. Sources of even numbers have the first line of all
/// first and the one after it second, those of odd numbers the other way round.
const MANY: Lines = Lines { count: 32, seed: 0 };

/// The lines of [`MANY`] that are there: the first two, and the overflow.
const THERE: [u32; 3] = [0, 1, 31];

/// Sources that a test has.
const SOURCES: usize = 8;

/// A source by its number, which is also the way that is looked at first. Its lines are those of
/// [`MANY`].
pub(crate) fn source(number: u8) -> BucketKey {
    // Once for all orders: the search would take most of their time.
    static FOUND: [OnceLock<BucketKey>; SOURCES] = [const { OnceLock::new() }; SOURCES];
    *FOUND[usize::from(number)].get_or_init(|| find(number))
}

fn find(number: u8) -> BucketKey {
    let odd = u32::from(number) & 1;
    let stands_there = |source: &BucketKey| {
        let place = Place::of(source.name().unwrap(), MANY);
        let starts = place.start() & LoomLine::LAST == u32::from(number) & LoomLine::LAST;
        starts && place.first() == odd && place.second() == 1 - odd
    };
    let numbered = |parts: u16| {
        let [second, third] = parts.to_be_bytes();
        BucketKey::from(Source::V4([192, second, third, number]))
    };
    (0..=u16::MAX).map(numbered).find(stands_there).unwrap()
}

struct Way {
    name: LoomWord,
    word: LoomWord,
    resolved: LoomWord,
}

struct Words {
    lock: LoomWord,
    spilled: LoomWord,
    /// Not under loom: they are read and written under the lock alone.
    carried: [std::sync::atomic::AtomicU64; 2],
    ways: [Way; WAYS],
}

#[derive(Clone)]
pub(crate) struct LoomLine(Arc<Words>);

#[derive(Clone)]
pub(crate) struct LoomEntry(Arc<Words>, usize);

impl LoomEntry {
    fn way(&self) -> &Way {
        &self.0.ways[self.1]
    }
}

impl Entry for LoomEntry {
    fn name(&self) -> impl Cell {
        &self.way().name
    }

    fn word(&self) -> impl Cell {
        &self.way().word
    }

    fn resolved(&self) -> impl Cell {
        &self.way().resolved
    }

    fn counts(&self) -> u64 {
        1
    }

    fn begin_counts(&self, _passed: u64, _dropped: u64) {}

    fn count_passed(&self, _packets: u64) {}

    fn count_dropped(&self, _packets: u64) {}
}

impl Line for LoomLine {
    const LAST: u32 = 1;

    // One more than a CPU needs that is not held up: more of them are only more orders.
    const LOCK_TRIES: u64 = 2;

    // A line with one entry that must stay is the one to leave for another.
    const PREFERRED: u64 = 0;

    type Entry = LoomEntry;

    fn head(&self, word: Head) -> impl Cell {
        match word {
            Head::Lock => HeadWord::Shared(&self.0.lock),
            Head::Spilled => HeadWord::Shared(&self.0.spilled),
            Head::Passed => HeadWord::Locked(&self.0.carried[0]),
            Head::Dropped => HeadWord::Locked(&self.0.carried[1]),
        }
    }

    fn entry(&self, way: u32) -> Option<LoomEntry> {
        Some(LoomEntry(Arc::clone(&self.0), usize::try_from(way).unwrap()))
    }
}

enum HeadWord<'a> {
    Shared(&'a LoomWord),
    Locked(&'a std::sync::atomic::AtomicU64),
}

impl Cell for HeadWord<'_> {
    fn load(&self) -> u64 {
        match self {
            Self::Shared(word) => word.load(),
            Self::Locked(word) => Cell::load(*word),
        }
    }

    fn acquire_fence(&self) {
        if let Self::Shared(word) = self {
            word.acquire_fence();
        }
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        match self {
            Self::Shared(word) => word.compare_exchange(current, new),
            Self::Locked(word) => Cell::compare_exchange(*word, current, new),
        }
    }
}

/// An entry at the beginning: a source, what it owes, and its limit.
pub(crate) type Held = (u8, Word, Resolved);

/// The maps. The rule of a source is in the slot of its number, but for what [`Maps::everybody`]
/// says.
pub(crate) struct Maps {
    generation: AtomicU64,
    limits: Vec<Limit>,
    /// The slot of every source in even and odd generations.
    rules: [Option<u32>; 2],
    all: Lines,
    lines: Vec<LoomLine>,
    entry_table: HostEntryTable,
}

/// A line with who has the ways.
fn line(held: [Option<Held>; WAYS]) -> LoomLine {
    let ways = held.map(|held| {
        let (name, word, resolved) = match held {
            Some((number, word, resolved)) => {
                (source(number).name().unwrap(), word.raw(), resolved.raw())
            }
            None => (line::NOBODY, 0, 0),
        };
        Way {
            name: LoomWord::new(name),
            word: LoomWord::new(word),
            resolved: LoomWord::new(resolved),
        }
    });
    let word = || LoomWord::new(0);
    LoomLine(Arc::new(Words { lock: word(), spilled: word(), carried: Default::default(), ways }))
}

impl Maps {
    /// One line with who has the ways; `limits` by slot.
    pub(crate) fn new(limits: &[Limit], held: [Option<Held>; WAYS]) -> Self {
        Self::with(limits, ONE, vec![line(held)])
    }

    /// The first line of even numbers, the one of odd numbers, and the overflow. A source that
    /// stands there has gone there, and its first line knows.
    pub(crate) fn spread(limits: &[Limit], held: [[Option<Held>; WAYS]; 3]) -> Self {
        let lines: Vec<LoomLine> = held.map(line).into();
        for (number, ..) in held[2].into_iter().flatten() {
            lines[usize::from(number & 1)].0.spilled.compare_exchange(0, 1);
        }
        Self::with(limits, MANY, lines)
    }

    fn with(limits: &[Limit], all: Lines, lines: Vec<LoomLine>) -> Self {
        let (generation, entry_table) = (AtomicU64::new(1), unbounded());
        Self { generation, limits: limits.to_vec(), rules: [None; 2], all, lines, entry_table }
    }

    /// With the same rule for all: one in even and one in odd generations.
    pub(crate) fn everybody(self, rules: [Option<u32>; 2]) -> Self {
        Self { rules, ..self }
    }

    /// The daemon's last store of a commit.
    pub(crate) fn commit(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// One packet. The way that is looked at first is the one of the source's number.
    pub(crate) fn packet(&self, number: u8) -> Reason {
        engine::plain_source(
            self,
            &SourcePacket {
                bucket_key: source(number),
                generation: Generation::new(self.generation.load(Ordering::Acquire)),
                size: FrameSize::of_packet(60),
                now: NOW,
                deferred: false,
            },
        )
        .unpack()
        .reason
    }

    /// Packets of a source that conform out of `count`, one after the other.
    pub(crate) fn pass_of(&self, number: u8, count: usize) -> usize {
        (0..count).filter(|_| conforms(self.packet(number))).count()
    }

    /// The contents of the ways: names, times and limits.
    pub(crate) fn ways(&self) -> Vec<(u64, Word, Resolved)> {
        let ways = self.lines.iter().flat_map(|line| &line.0.ways).map(|way| {
            let resolved = Resolved::from_raw(way.resolved.load());
            (way.name.load(), Word::from_raw(way.word.load()), resolved)
        });
        ways.collect()
    }

    pub(crate) fn locked(&self) -> usize {
        self.lines.iter().filter(|line| line.0.lock.load() != 0).count()
    }
}

/// True if a packet passed by a bucket of its own. A packet without an entry is dropped here, and
/// so is one that waited too long for a CPU that was held up.
pub(crate) fn conforms(reason: Reason) -> bool {
    let known = [Reason::Conforming, Reason::OverLimit, Reason::OverAggregate, Reason::Contended];
    assert!(known.contains(&reason), "{reason:?}");
    reason == Reason::Conforming
}

fn number(source: &BucketKey) -> u32 {
    let [_, _, _, number, ..] = source.word().to_ne_bytes();
    u32::from(number)
}

impl maps::Maps for Maps {
    const SUPER_FRAMES: bool = true;
    const DELAYS: bool = true;

    type Hashed = LoomBucket;
    type Line = LoomLine;
    type Keyed = Nothing;
    type Kept = maps::KeptBucket<StoredIn<Self>>;
    type Lease = Nothing;
    type Ban = Nothing;

    fn control(&self, word: Control) -> u64 {
        if word == Control::Generation { self.generation.load(Ordering::Acquire) } else { 0 }
    }

    /// Not known: a change counts from the packet that meets it.
    fn moment(&self, _generation: u32) -> Moment {
        Moment::UNKNOWN
    }

    fn lines(&self, _kind: EntryKind) -> Option<Lines> {
        Some(self.all)
    }

    fn line(&self, _kind: EntryKind, index: u32) -> Option<LoomLine> {
        let place = THERE.iter().position(|there| *there == index).unwrap();
        self.lines.get(place).cloned()
    }

    fn source_rule(&self, generation: Generation, source: &BucketKey) -> Option<Slot> {
        let [even, odd] = self.rules;
        let slot = if generation.buffer() == 0 { even } else { odd };
        Some(Slot::new(slot.unwrap_or_else(|| number(source))))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.limits.get(usize::try_from(slot.index()).unwrap())
    }

    nothing_before!();
    no_tables!();
    no_map!();
    room_for_all!();
}
