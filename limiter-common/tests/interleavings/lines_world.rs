//! One line of two ways in loom's atomics, and sources that meet in it.

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::Cell;
use limiter_common::engine::{self, SourcePacket};
use limiter_common::entries::HostEntryTable;
use limiter_common::entries::source::name;
use limiter_common::line::{self, Entry, Line, LineBucket, Lines, Place};
use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Control, EntryKind, Limit, Moment};
use limiter_common::world as maps;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::absent::{Nothing, no_map, no_tables, nothing_before, room_for_all, unbounded};
use crate::world::{LoomWord, NOW};

/// The ways of the line.
const WAYS: usize = 2;

const LINES: Lines = Lines { count: 1, seed: 0 };

/// A source by its number, which is also the way that is looked at first.
pub(crate) fn source(number: u8) -> Source {
    let starts_there = |source: &Source| {
        let place = Place::of(name(source).unwrap(), &LINES);
        place.start & LoomLine::LAST == u32::from(number) & LoomLine::LAST
    };
    let numbered = |third| Source::V4([192, 0, third, number]);
    (0..=u8::MAX).map(numbered).find(starts_there).unwrap()
}

struct Way {
    name: LoomWord,
    word: LoomWord,
    resolved: LoomWord,
}

struct Words {
    lock: LoomWord,
    ways: [Way; WAYS],
}

/// The line in place.
#[derive(Clone)]
pub(crate) struct LoomLine(Arc<Words>);

/// A way in place.
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

    fn packets(&self) -> u64 {
        1
    }

    fn begin_counts(&self, _passed: u64, _dropped: u64) {}

    fn count_passed(&self) {}

    fn count_dropped(&self, _packets: u64) {}

    fn uncount(&self) {}
}

impl Line for LoomLine {
    const LAST: u32 = 1;

    // One more than a CPU needs that is not held up: more of them are only more orders.
    const LOCK_TRIES: u64 = 2;

    type Entry = LoomEntry;

    fn lock(&self) -> impl Cell {
        &self.0.lock
    }

    fn entry(&self, way: u32) -> Option<LoomEntry> {
        Some(LoomEntry(Arc::clone(&self.0), usize::try_from(way).unwrap()))
    }
}

/// An entry at the beginning: a source, what it owes, and its limit.
pub(crate) type Held = (u8, Word, Resolved);

/// The maps. The rule of a source is in the slot of its number, but for what [`World::everybody`]
/// says.
pub(crate) struct World {
    generation: AtomicU64,
    limits: Vec<Limit>,
    /// The slot of every source in even and odd generations.
    rules: [Option<u32>; 2],
    line: LoomLine,
    entry_table: HostEntryTable,
}

impl World {
    /// With who has the ways; `limits` by slot.
    pub(crate) fn new(limits: &[Limit], held: [Option<Held>; WAYS]) -> Self {
        let ways = held.map(|held| {
            let (name, word, resolved) = match held {
                Some((number, word, resolved)) => {
                    (name(&source(number)).unwrap(), word.raw(), resolved.raw())
                }
                None => (line::NOBODY, 0, 0),
            };
            Way {
                name: LoomWord::new(name),
                word: LoomWord::new(word),
                resolved: LoomWord::new(resolved),
            }
        });
        let line = LoomLine(Arc::new(Words { lock: LoomWord::new(0), ways }));
        let (generation, entry_table) = (AtomicU64::new(1), unbounded());
        Self { generation, limits: limits.to_vec(), rules: [None; 2], line, entry_table }
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
                source: source(number),
                generation: Generation::new(self.generation.load(Ordering::Acquire)),
                length: 60,
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
    pub(crate) fn ways(&self) -> [(u64, Word, Resolved); WAYS] {
        self.line.0.ways.each_ref().map(|way| {
            let resolved = Resolved::from_raw(way.resolved.load());
            (way.name.load(), Word::from_raw(way.word.load()), resolved)
        })
    }
}

/// True if a packet passed by a bucket of its own. A packet without an entry is dropped here, and
/// so is one that waited too long for a CPU that was held up.
pub(crate) fn conforms(reason: Reason) -> bool {
    let known = [Reason::Conforming, Reason::OverLimit, Reason::OverAggregate, Reason::Contended];
    assert!(known.contains(&reason), "{reason:?}");
    reason == Reason::Conforming
}

fn number(source: &Source) -> u32 {
    match source {
        Source::V4([.., number]) => u32::from(*number),
        Source::V6(_) => 0,
    }
}

impl maps::World for World {
    type SourceBucket = LineBucket<LoomLine>;
    type Line = LoomLine;
    type Keyed = Nothing;
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
        Some(LINES)
    }

    fn line(&self, _kind: EntryKind, _index: u32) -> Option<LoomLine> {
        Some(self.line.clone())
    }

    fn source_rule(&self, generation: Generation, source: &Source) -> Option<Slot> {
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
