//! One line of two ways in loom's atomics, and sources that meet in it.

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::Cell;
use limiter_common::change::Changes;
use limiter_common::engine::{self, Arriving};
use limiter_common::line::{self, Entry, Line, Tenant};
use limiter_common::outcome::Insert;
use limiter_common::room::source::name;
use limiter_common::room::{AdmissionCells, HostSpace, Leave, SpaceWords, Spaces};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Lane, Limit, Listed, Moment};
use limiter_common::world::Maps;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::world::{LoomWord, NOW};

/// The ways of the line.
const WAYS: usize = 2;

/// A source by its number.
pub(crate) fn source(number: u8) -> Source {
    Source::V4([192, 0, 2, number])
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

    fn count(&self, _passed: bool) {}

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

/// Who has a way at the beginning: a source, what it owes, and its limit.
pub(crate) type Held = (u8, Word, Resolved);

/// The maps. The rule of a source is in the slot of its number, but for what [`World::everybody`] says.
pub(crate) struct World {
    generation: AtomicU64,
    limits: Vec<Limit>,
    /// The slot of every source in even and odd generations.
    rules: [Option<u32>; 2],
    line: LoomLine,
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
        Self { generation: AtomicU64::new(1), limits: limits.to_vec(), rules: [None; 2], line }
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
            &Arriving {
                source: source(number),
                generation: self.generation(),
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

    /// What stands in the ways: names, times and limits.
    pub(crate) fn ways(&self) -> [(u64, Word, Resolved); WAYS] {
        self.line.0.ways.each_ref().map(|way| {
            let resolved = Resolved::from_raw(way.resolved.load());
            (way.name.load(), Word::from_raw(way.word.load()), resolved)
        })
    }
}

/// Whether a packet passed by a bucket of its own. One without an entry goes without: here, it is dropped. So is one that
/// waited too long for a CPU that was held up.
pub(crate) fn conforms(reason: Reason) -> bool {
    let known = [Reason::Conforming, Reason::OverLimit, Reason::OverAggregate, Reason::Contended];
    assert!(known.contains(&reason), "{reason:?}");
    reason == Reason::Conforming
}

fn start(source: &Source) -> u32 {
    match source {
        Source::V4([.., number]) => u32::from(*number),
        Source::V6(_) => 0,
    }
}

impl Changes for World {
    /// Not known: a change counts from the packet that meets it.
    fn moment(&self, _generation: u32) -> Moment {
        Moment::UNKNOWN
    }
}

impl Spaces for World {
    fn space(&self, _lane: Lane) -> Option<impl SpaceWords> {
        None::<&HostSpace>
    }

    fn admission(&self, _lane: Lane) -> Option<&AdmissionCells> {
        None
    }
}

impl Maps for World {
    type Meter = Tenant<LoomLine>;

    fn brake(&self) -> bool {
        false
    }

    fn listed(&self, _source: &Source, _now: Ticks) -> Option<Listed> {
        None
    }

    fn generation(&self) -> Generation {
        Generation::new(self.generation.load(Ordering::Acquire))
    }

    fn meter(&self, source: &Source) -> Option<Tenant<LoomLine>> {
        let name = name(source)?;
        line::tenant(&self.line, start(source), name)
    }

    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        let Some(name) = name(source) else {
            return Insert::Refused;
        };
        let leave = Leave { now, keep: Ticks::ZERO };
        line::insert(&self.line, start(source), name, bucket, &leave, leave.keep).insert
    }

    fn aggregate(&self, _index: u32) -> Option<impl Cell> {
        None::<&LoomWord>
    }

    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot> {
        let [even, odd] = self.rules;
        let slot = if generation.buffer() == 0 { even } else { odd };
        Some(Slot::new(slot.unwrap_or_else(|| start(source))))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.limits.get(usize::try_from(slot.index()).unwrap())
    }
}
