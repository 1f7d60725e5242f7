//! The decision over two homes: a table of lines, and a map that holds any number of sources.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use limiter_common::bucket::{Generation, Slot, Word};
use limiter_common::cell::{Cell, Meter};
use limiter_common::change::Changes;
use limiter_common::engine::{self, Arriving};
use limiter_common::line::{self, HostLine, Place, Tenant};
use limiter_common::outcome::Insert;
use limiter_common::room::source::name;
use limiter_common::room::{AdmissionCells, HostSpace, Leave, SpaceWords, Spaces};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Lane, Limit, LineEntry, Listed, Moment};
use limiter_common::world::Maps;

pub(crate) const SEED: u64 = 0x5eed;

/// The source with a number.
pub(crate) fn source(number: u32) -> Source {
    Source::V4(number.to_be_bytes())
}

/// Where buckets are.
pub(crate) trait Home {
    type Meter: Meter;

    fn meter(&self, source: &Source) -> Option<Self::Meter>;

    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert;
}

/// A table of lines.
pub(crate) struct Lines(Vec<HostLine>);

impl Lines {
    pub(crate) fn new(lines: usize) -> Self {
        Self((0..lines).map(|_| HostLine::default()).collect())
    }

    fn place(&self, name: u64) -> (&HostLine, u32) {
        let place = Place::of(name, SEED, u32::try_from(self.0.len()).unwrap());
        (&self.0[usize::try_from(place.line).unwrap()], place.start)
    }

    /// Whether the line of a source has nobody in it but others that owe.
    pub(crate) fn is_full_for(&self, source: &Source, now: Ticks) -> bool {
        let name = name(source).unwrap();
        let (line, _) = self.place(name);
        line.read().entries.iter().all(|entry| {
            let tat = Word::from_raw(entry.word).tat();
            entry.name != name && entry.name != line::NOBODY && tat >= now
        })
    }

    /// Whether a source has an entry.
    pub(crate) fn has(&self, source: &Source) -> bool {
        let name = name(source).unwrap();
        self.entries().iter().any(|entry| entry.name == name)
    }

    /// All entries that are somebody's.
    pub(crate) fn entries(&self) -> Vec<LineEntry> {
        let all = self.0.iter().flat_map(|line| line.read().entries);
        all.filter(|entry| entry.name != line::NOBODY).collect()
    }
}

impl<'a> Home for &'a Lines {
    type Meter = Tenant<&'a HostLine>;

    fn meter(&self, source: &Source) -> Option<Self::Meter> {
        let name = name(source)?;
        let (line, start) = self.place(name);
        line::tenant(&line, start, name)
    }

    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        let Some(name) = name(source) else {
            return Insert::Refused;
        };
        let (line, start) = self.place(name);
        let leave = Leave { now, keep: Ticks::ZERO };
        line::insert(&line, start, name, bucket, &leave, leave.keep).insert
    }
}

/// A bucket of its own.
#[derive(Clone)]
pub(crate) struct Alone(Arc<[AtomicU64; 2]>);

impl Meter for Alone {
    fn word(&self) -> &impl Cell {
        &self.0[0]
    }

    fn resolved(&self) -> &impl Cell {
        &self.0[1]
    }

    fn count(&self, _passed: bool) {}

    fn uncount(&self) {}
}

/// A map without bounds.
#[derive(Default)]
pub(crate) struct Unbounded(Mutex<HashMap<Source, Alone>>);

impl Unbounded {
    /// Forgets a source. Says whether it had drained, under the limit that it was charged under.
    pub(crate) fn forget(&self, source: &Source, now: Ticks) -> bool {
        self.0
            .lock()
            .unwrap()
            .remove(source)
            .is_none_or(|bucket| Word::from_raw(bucket.word().load()).tat() <= now)
    }
}

impl Home for Unbounded {
    type Meter = Alone;

    fn meter(&self, source: &Source) -> Option<Alone> {
        self.0.lock().unwrap().get(source).cloned()
    }

    fn insert(&self, source: &Source, bucket: &Bucket, _now: Ticks) -> Insert {
        let words = [AtomicU64::new(bucket.word), AtomicU64::new(bucket.resolved)];
        self.0.lock().unwrap().insert(*source, Alone(Arc::new(words)));
        Insert::Made
    }
}

/// The rules: limits by slot, and which of them a source has in a generation.
pub(crate) struct Rules {
    pub(crate) limits: Vec<Limit>,
    pub(crate) slot: fn(generation: u64, source: &Source) -> u32,
    pub(crate) generation: AtomicU64,
}

/// The maps of the decision.
pub(crate) struct World<'a, H> {
    pub(crate) home: H,
    pub(crate) rules: &'a Rules,
}

impl<H: Home> World<'_, H> {
    /// One packet of 60 bytes.
    pub(crate) fn packet(&self, source: &Source, now: Ticks) -> Reason {
        engine::plain_source(
            self,
            &Arriving {
                source: *source,
                generation: self.generation(),
                length: 60,
                now,
                deferred: false,
            },
        )
        .unpack()
        .reason
    }
}

impl<H> Changes for World<'_, H> {
    /// Not known: a change counts from the packet that meets it.
    fn moment(&self, _generation: u32) -> Moment {
        Moment::UNKNOWN
    }
}

impl<H> Spaces for World<'_, H> {
    fn space(&self, _lane: Lane) -> Option<impl SpaceWords> {
        None::<&HostSpace>
    }

    fn admission(&self, _lane: Lane) -> Option<&AdmissionCells> {
        None
    }
}

impl<H: Home> Maps for World<'_, H> {
    type Meter = H::Meter;

    fn brake(&self) -> bool {
        false
    }

    fn listed(&self, _source: &Source, _now: Ticks) -> Option<Listed> {
        None
    }

    fn generation(&self) -> Generation {
        Generation::new(self.rules.generation.load(Ordering::Acquire))
    }

    fn meter(&self, source: &Source) -> Option<H::Meter> {
        self.home.meter(source)
    }

    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        self.home.insert(source, bucket, now)
    }

    fn aggregate(&self, _index: u32) -> Option<impl Cell> {
        None::<&AtomicU64>
    }

    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot> {
        Some(Slot::new((self.rules.slot)(u64::from(generation.get()), source)))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.rules.limits.get(usize::try_from(slot.index()).unwrap())
    }
}

/// A limit of `burst` packets, one every `ticks`.
pub(crate) fn limit(ticks: u64, burst: u64, since: u32) -> Limit {
    let tolerance = ticks * burst;
    Limit { increment: ticks, tolerance, since, ..Limit::default() }
}
