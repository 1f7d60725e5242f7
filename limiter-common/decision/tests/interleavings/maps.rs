//! One source, its bucket in loom's atomics, and the rules of two generations.

use std::cell::Cell as Flag;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Control, Kind, Limit, Moment};
use limiter_decision::cell::{Cell, SourceBucket};
use limiter_decision::engine::entry::retire;
use limiter_decision::engine::{self, SourcePacket};
use limiter_decision::entries::{EvictionPolicy, HostEntryTable};
use limiter_decision::line::HostLine;
use limiter_decision::maps;
use limiter_decision::outcome::Insert;
use limiter_decision::stored::StoredIn;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};

use crate::absent::{Nothing, no_lines, no_tables, nothing_before, room_for_all, unbounded};

/// The instant of every packet: what passes at one instant is what the bucket grants.
pub(crate) const NOW: Ticks = Ticks::new(1 << 40);

/// Ticks of one packet in the limits of [`burst`].
const PACKET: u64 = 1 << 20;

/// A limit of `packets` at once, in a slot that was filled in generation `since`.
pub(crate) fn burst(packets: u64, since: u32) -> Limit {
    let tolerance = packets * PACKET;
    Limit { increment: PACKET, tolerance, since, ..Limit::default() }
}

/// A slot that lets everything pass since generation `since`.
pub(crate) fn unlimited(since: u32) -> Limit {
    Limit { kind: Kind::Unlimited as u8, since, ..Limit::default() }
}

/// The bucket word of a source that owes `packets` of a [`burst`] limit.
pub(crate) fn owing(packets: u64, scale: bool) -> Word {
    let owed = Ticks::new(packets * PACKET);
    Word::new(if packets == 0 { Ticks::ZERO } else { NOW.plus(owed) }, scale)
}

/// The second word of a bucket.
pub(crate) fn resolved(generation: u64, slot: u32, previous: Slot, scale: bool) -> Resolved {
    Resolved::new(Generation::new(generation), Slot::new(slot), previous, scale)
}

/// Every order with at most three switches away from a thread that could go on: enough for every
/// bug that was seen here, in seconds.
pub(crate) fn every_order(check: impl Fn() + Send + Sync + 'static) {
    every_order_within(3, check);
}

/// Every order with so many of them: fewer, where threads take many steps each. `LIMITER_SWITCHES`
/// allows for more of them in every test, which takes minutes.
pub(crate) fn every_order_within(switches: usize, check: impl Fn() + Send + Sync + 'static) {
    let more = env::var("LIMITER_SWITCHES").ok().and_then(|text| text.parse().ok());
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches + more.unwrap_or(0));
    model.check(check);
}

thread_local! {
    /// False while words have no fences. Threads of loom are on one thread of the host's.
    static FENCES: Flag<bool> = const { Flag::new(true) };
}

/// True if a check fails where no word keeps the order of loads.
pub(crate) fn fails_without_fences(check: impl FnOnce()) -> bool {
    FENCES.set(false);
    let result = catch_unwind(AssertUnwindSafe(check));
    FENCES.set(true);
    result.is_err()
}

/// The fence of every word here.
pub(crate) fn acquire_fence() {
    if FENCES.get() {
        fence(Ordering::Acquire);
    }
}

/// A word under loom, with no more order than the XDP program has on arm64: a load, and an exchange
/// that stores nothing, may change places with what is around them.
pub(crate) struct LoomWord(AtomicU64);

impl LoomWord {
    pub(crate) fn new(raw: u64) -> Self {
        Self(AtomicU64::new(raw))
    }
}

impl Cell for LoomWord {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn acquire_fence(&self) {
        acquire_fence();
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[derive(Default)]
struct Counts {
    passed: AtomicUsize,
    taken_back: AtomicUsize,
}

struct Words {
    word: LoomWord,
    resolved: LoomWord,
    /// Not loom's: nothing is decided by them.
    counts: Counts,
}

#[derive(Clone)]
pub(crate) struct LoomBucket(Arc<Words>);

impl LoomBucket {
    pub(crate) fn new(bucket: &Bucket) -> Self {
        let words = Words {
            word: LoomWord::new(bucket.word),
            resolved: LoomWord::new(bucket.resolved),
            counts: Counts::default(),
        };
        words.counts.passed.store(usize::try_from(bucket.passed).unwrap(), Ordering::Relaxed);
        Self(Arc::new(words))
    }

    /// Packets that were counted as passed, and how many of them were taken back.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let Counts { passed, taken_back } = &self.0.counts;
        [passed, taken_back].map(|count| count.load(Ordering::Relaxed))
    }
}

impl SourceBucket for LoomBucket {
    fn word(&self) -> impl Cell {
        &self.0.word
    }

    fn resolved(&self) -> impl Cell {
        &self.0.resolved
    }

    fn count_passed(&self, packets: u64) {
        let Counts { passed, taken_back } = &self.0.counts;
        let counter = if packets == 1 { passed } else { taken_back };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn count_dropped(&self, _packets: u64) {}

    fn packets(&self) -> u64 {
        1
    }
}

/// The work of another CPU while this one reads a slot.
type Meanwhile = (u32, Resolved);

pub(crate) struct Maps {
    generation: AtomicU64,
    /// When the last one came into force.
    moment: AtomicU64,
    /// Packets' time that has gone by since [`NOW`].
    clock: AtomicU64,
    limits: Vec<Limit>,
    /// The slot of the source in even and odd generations.
    rules: [u32; 2],
    bucket: Mutex<Option<LoomBucket>>,
    entry_table: HostEntryTable,
    /// Not one of loom's: it belongs to the test, and no interleaving depends on it.
    meanwhile: std::sync::Mutex<Option<Meanwhile>>,
}

impl Maps {
    /// No bucket yet; `limits` by slot; `rules` by the parity of the generation.
    pub(crate) fn new(generation: u64, limits: &[Limit], rules: [u32; 2]) -> Self {
        Self {
            generation: AtomicU64::new(generation),
            moment: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            limits: limits.to_vec(),
            rules,
            bucket: Mutex::new(None),
            entry_table: unbounded(),
            meanwhile: std::sync::Mutex::new(None),
        }
    }

    pub(crate) fn with_bucket(self, word: Word, resolved: Resolved) -> Self {
        let bucket = Bucket { word: word.raw(), resolved: resolved.raw(), ..Bucket::default() };
        *self.bucket.lock().unwrap() = Some(LoomBucket::new(&bucket));
        self
    }

    /// Once, when `slot` is read, another CPU leaves the bucket pointed at `resolved`.
    pub(crate) fn meanwhile(self, slot: u32, resolved: Resolved) -> Self {
        *self.meanwhile.lock().unwrap() = Some((slot, resolved));
        self
    }

    /// The daemon's last store of a commit.
    pub(crate) fn commit(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// A whole commit: its last store, and then the note of its time.
    pub(crate) fn commit_and_note(&self, generation: u64) {
        self.commit(generation);
        let moment = Moment::new(generation, self.later());
        self.moment.store(moment.raw(), Ordering::Release);
    }

    /// The clock, which goes on by the time of one packet with each look.
    fn later(&self) -> Ticks {
        let gone = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        NOW.plus(Ticks::new(gone * PACKET))
    }

    /// How often the clock was looked at.
    pub(crate) fn gone(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }

    fn in_force(&self) -> Generation {
        Generation::new(self.generation.load(Ordering::Acquire))
    }

    pub(crate) fn packet(&self) -> Reason {
        self.packet_at(NOW)
    }

    /// One packet, at the time when it looks at the clock: after it has read which rule set is in
    /// force, as in the kernel.
    pub(crate) fn packet_now(&self) -> Reason {
        let generation = self.in_force();
        let now = self.later();
        self.judge(generation, now)
    }

    fn packet_at(&self, now: Ticks) -> Reason {
        self.judge(self.in_force(), now)
    }

    fn judge(&self, generation: Generation, now: Ticks) -> Reason {
        let bucket_key = Source::V4([192, 0, 2, 1]).into();
        engine::plain_source(
            self,
            &SourcePacket {
                bucket_key,
                generation,
                size: FrameSize::of_packet(60),
                now,
                deferred: false,
            },
        )
        .unpack()
        .reason
    }

    /// Another CPU wants the room of the bucket.
    pub(crate) fn evict(&self) -> bool {
        let Some(bucket) = self.bucket.lock().unwrap().clone() else {
            return false;
        };
        let gone = retire(&bucket, &EvictionPolicy { now: NOW, keep: Ticks::ZERO });
        if gone {
            *self.bucket.lock().unwrap() = None;
        }
        gone
    }

    /// Packets that pass out of `count`, one after the other, at one look at the clock.
    pub(crate) fn pass_of_now(&self, count: usize) -> u64 {
        let now = self.later();
        (0..count).filter(|_| passes(self.packet_at(now))).fold(0, |sum, _| sum + 1)
    }

    /// Packets that pass out of `count`, one after the other.
    pub(crate) fn pass_of(&self, count: usize) -> usize {
        (0..count).filter(|_| passes(self.packet())).count()
    }
}

/// True if the packet passed; it must have been judged by its limit.
pub(crate) fn passes(reason: Reason) -> bool {
    assert!(matches!(reason, Reason::Conforming | Reason::OverLimit), "{reason:?}");
    matches!(reason, Reason::Conforming)
}

impl maps::Maps for Maps {
    const SUPER_FRAMES: bool = true;
    const DELAYS: bool = true;

    type Hashed = LoomBucket;
    type Line = &'static HostLine;
    type Keyed = Nothing;
    type Kept = maps::KeptBucket<StoredIn<Self>>;
    type Lease = Nothing;
    type Ban = Nothing;

    fn control(&self, word: Control) -> u64 {
        if word == Control::Generation { self.generation.load(Ordering::Acquire) } else { 0 }
    }

    fn moment(&self, _generation: u32) -> Moment {
        Moment::from_raw(self.moment.load(Ordering::Relaxed))
    }

    fn source_bucket(&self, _bucket_key: &BucketKey) -> Option<LoomBucket> {
        self.bucket.lock().unwrap().clone()
    }

    fn insert(&self, _bucket_key: &BucketKey, bucket: &Bucket) -> Insert {
        let mut place = self.bucket.lock().unwrap();
        if place.is_some() {
            return Insert::Exists;
        }
        *place = Some(LoomBucket::new(bucket));
        Insert::Made
    }

    fn remove(&self, _bucket_key: &BucketKey) {
        *self.bucket.lock().unwrap() = None;
    }

    fn source_rule(&self, generation: Generation, _bucket_key: &BucketKey) -> Option<Slot> {
        let [even, odd] = self.rules;
        Some(Slot::new(if generation.buffer() == 0 { even } else { odd }))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        let meanwhile = self.meanwhile.lock().unwrap().take_if(|(at, _)| *at == slot.index());
        if let Some((_, to)) = meanwhile {
            let bucket = self.bucket.lock().unwrap();
            bucket.as_ref().unwrap().0.resolved.0.store(to.raw(), Ordering::Release);
        }
        self.limits.get(usize::try_from(slot.index()).unwrap())
    }

    nothing_before!();
    no_tables!();
    no_lines!();
    room_for_all!();
}
