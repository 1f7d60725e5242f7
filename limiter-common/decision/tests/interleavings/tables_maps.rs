//! One packet's key in a few tables, its buckets and a lease in loom's atomics, and two rule sets.

use core::cell;

use limiter_common::bucket::{self, Generation, Resolved, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::window::WindowLimit;
use limiter_common::wire::{
    Algorithm, Bucket, Control, KeyedEntry, Limit, LimitSpec, MAX_LIMITS, MAX_SHAPES, Moment,
    Record, Role, RuleSetHeader, Shape, Table, TableKey, TrieValue, field,
};
use limiter_decision::algorithm::Words;
use limiter_decision::cell::{Cell as _, SourceBucket as _};
use limiter_decision::entries::HostEntryTable;
use limiter_decision::host;
use limiter_decision::line::HostLine;
use limiter_decision::maps::{self, Keyed};
use limiter_decision::outcome::Insert;
use limiter_decision::stored::StoredIn;
use limiter_decision::table::{self, KeyCell, Plain};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};

use crate::absent::{Nothing, no_key_leases, no_lines, nothing_before, room_for_all, unbounded};
use crate::maps::{LoomBucket, LoomWord, acquire_fence, burst};

/// Words of a bucket here: as few as the limits need, because every one is exchanged.
const WORDS: usize = 2;

/// In the middle of the hundredth second.
const NOW: u64 = 100_500_000_000;

/// An IPv4 packet of a protocol without ports.
const FRAME: [u8; 34] = [
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 47, 0, 0, 192, 0, 2,
    1, 192, 0, 2, 2,
];

/// A word whose loads see the last store. A packet that waits for a conversion reads it 64 times:
/// if each could see an older value, there were more orders than can be tried.
struct Latest(AtomicU64);

impl limiter_decision::cell::Cell for Latest {
    fn load(&self) -> u64 {
        self.0.fetch_or(0, Ordering::Relaxed)
    }

    fn acquire_fence(&self) {
        acquire_fence();
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

struct State {
    resolved: Latest,
    words: [LoomWord; WORDS],
}

#[derive(Clone)]
pub(crate) struct LoomKeyed(Arc<State>);

pub(crate) struct Word(Arc<State>, usize);

impl limiter_decision::cell::Cell for Word {
    fn load(&self) -> u64 {
        self.0.words[self.1].load()
    }

    fn acquire_fence(&self) {
        self.0.words[self.1].acquire_fence();
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.words[self.1].compare_exchange(current, new)
    }
}

impl Words for LoomKeyed {
    type Cell = Word;

    fn cell(&self, index: u32) -> Option<Word> {
        let index = usize::try_from(index).ok().filter(|index| *index < WORDS)?;
        Some(Word(Arc::clone(&self.0), index))
    }
}

impl Keyed for LoomKeyed {
    fn first(&self) -> impl limiter_decision::cell::Cell {
        Word(Arc::clone(&self.0), 0)
    }

    fn second(&self) -> impl limiter_decision::cell::Cell {
        Word(Arc::clone(&self.0), 1)
    }

    fn resolved(&self) -> impl limiter_decision::cell::Cell {
        &self.0.resolved
    }

    fn count(&self, _passed: bool, _packets: u64) {}

    fn touch(&self, _now: Ticks) {}

    fn used(&self) -> u64 {
        0
    }

    fn packets(&self) -> u64 {
        0
    }
}

struct LeaseWords {
    granted: AtomicU64,
    expires: AtomicU64,
    used: LoomWord,
    /// Not one of loom's: nothing is decided by it, and every one is read by the others.
    denied: std::sync::atomic::AtomicU64,
}

#[derive(Clone)]
pub(crate) struct LoomLease(Arc<LeaseWords>);

impl LoomLease {
    /// The daemon's stores, in its order.
    pub(crate) fn grant(&self, granted: u64, expires: Ticks) {
        self.0.granted.store(granted, Ordering::Release);
        self.0.expires.store(expires.get(), Ordering::Release);
    }

    /// The units used, as the daemon reads them.
    pub(crate) fn used(&self) -> u64 {
        limiter_decision::cell::Cell::load(&self.0.used)
    }
}

impl maps::Lease for LoomLease {
    fn granted(&self) -> u64 {
        self.0.granted.load(Ordering::Relaxed)
    }

    fn expires(&self) -> Ticks {
        Ticks::new(self.0.expires.load(Ordering::Relaxed))
    }

    fn used(&self) -> impl limiter_decision::cell::Cell {
        &self.0.used
    }

    fn deny(&self, units: u64) {
        self.0.denied.fetch_add(units, Ordering::Relaxed);
    }
}

/// A limit of so many packets at once, of a bucket or of a window.
pub(crate) fn limit_of(algorithm: Algorithm, packets: u64) -> LimitSpec {
    let tolerance = packets << 20;
    let rate = Limit { increment: 1 << 20, tolerance, ..Limit::default() };
    let width = 1_000_000_000;
    let count_bits = WindowLimit::count_bits_of(width);
    let window =
        WindowLimit { width, limit: packets, count_bits, slots: 1, ..WindowLimit::default() };
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            LimitSpec::of_rate(algorithm, &rate, Role::Hard)
        }
        _ => LimitSpec::of_window(algorithm, &window, Role::Hard),
    }
}

/// A rule with these limits one after the other, in a slot that was filled in generation `since`.
pub(crate) fn rule(limits: &[LimitSpec], since: u32) -> Record {
    let mut record = Record { rule: 2, since, ..Record::default() };
    let mut all = [LimitSpec::default(); MAX_LIMITS];
    let mut first = 0;
    for (place, limit) in all.iter_mut().zip(limits) {
        *place = limit.at(first);
        first += limit.words;
        record.count += 1;
    }
    Record { limits: all, ..record }
}

/// The way of a packet through the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// [`table::judge_plain`], and the long one for what that leaves.
    Short,
    Long,
}

impl Way {
    /// The ways of two packets.
    pub(crate) const PAIRS: [[Self; 2]; 3] =
        [[Self::Short, Self::Short], [Self::Short, Self::Long], [Self::Long, Self::Long]];
}

#[derive(Debug)]
pub(crate) struct Used {
    pub(crate) owed: usize,
    /// Packets that it counts as passed.
    pub(crate) passed: usize,
    /// Packets that it counted, and does no longer.
    pub(crate) taken_back: usize,
}

/// The maps. Table `n` has the bucket `n`, which is that of its key or its budget; the tables
/// behind those have compact keys.
pub(crate) struct Maps {
    generation: AtomicU64,
    records: Vec<Record>,
    /// By table, the slot of its rule in even and odd generations.
    rules: Vec<[u32; 2]>,
    tables: Vec<Table>,
    shape: Shape,
    buckets: Vec<LoomKeyed>,
    /// The lease of the first limit of the budget that is bucket 0.
    lease: LoomLease,
    /// The limits of the bucket keys, by slot.
    limits: Vec<Limit>,
    /// The bucket keys, with the slots of their rules.
    bucket_keys: Vec<(BucketKey, u32)>,
    made: Mutex<Vec<(BucketKey, LoomBucket)>>,
    entry_table: HostEntryTable,
}

impl Maps {
    /// In generation 1, with untouched buckets.
    pub(crate) fn new(records: &[Record], rules: &[[u32; 2]]) -> Self {
        let fields = [field::PROTOCOL, field::DSCP];
        // A budget needs no bucket of a key.
        let fixed = |[_, odd]: &[u32; 2]| {
            let is_budget = records[usize::try_from(*odd).unwrap()].budget != 0;
            if is_budget { *odd } else { Slot::NONE.index() }
        };
        let table = |((id, fields), slots): ((u32, &u32), &[u32; 2])| Table {
            id,
            fields: fields | field::V4,
            shapes: 1,
            fixed: fixed(slots),
            words: TableKey::mask(*fields),
            ..Table::default()
        };
        let bucket = |[_, odd]: &[u32; 2]| {
            let resolved = Resolved::new(Generation::new(1), Slot::new(*odd), Slot::NONE, false);
            LoomKeyed(Arc::new(State {
                resolved: Latest(AtomicU64::new(resolved.raw())),
                words: [LoomWord::new(0), LoomWord::new(0)],
            }))
        };
        Self {
            generation: AtomicU64::new(1),
            records: records.to_vec(),
            rules: rules.to_vec(),
            tables: (0..).zip(&fields).zip(rules).map(table).collect(),
            shape: Shape::default(),
            buckets: rules.iter().map(bucket).collect(),
            lease: LoomLease(Arc::new(LeaseWords {
                granted: AtomicU64::new(0),
                expires: AtomicU64::new(0),
                used: LoomWord::new(0),
                denied: std::sync::atomic::AtomicU64::new(0),
            })),
            limits: Vec::new(),
            bucket_keys: Vec::new(),
            made: Mutex::new(Vec::new()),
            entry_table: unbounded(),
        }
    }

    /// With a table more for each of `rooms`, where the packet's key is compact and its rule has
    /// room for so many packets.
    pub(crate) fn with_compact(mut self, rooms: &[u64]) -> Self {
        for (compact, room) in (1..).zip(rooms) {
            let table = Table {
                id: u32::try_from(self.tables.len()).unwrap(),
                fields: field::V4,
                shapes: 1,
                fixed: Slot::NONE.index(),
                compact,
                ..Table::default()
            };
            self.tables.push(table);
            self.own(BucketKey::compact(compact), *room);
        }
        self
    }

    /// With a rule for the packet's source that has room for so many packets.
    pub(crate) fn with_source(mut self, room: u64) -> Self {
        let [.., a, b, c, d, _, _, _, _] = FRAME;
        self.own(Source::V4([a, b, c, d]).into(), room);
        self
    }

    fn own(&mut self, bucket_key: BucketKey, room: u64) {
        self.bucket_keys.push((bucket_key, u32::try_from(self.limits.len()).unwrap()));
        self.limits.push(burst(room, 1));
    }

    /// With a bucket for each bucket key, of which nothing is used.
    pub(crate) fn with_buckets(self) -> Self {
        let generation = Generation::new(1);
        let bucket = |(bucket_key, slot): &(BucketKey, u32)| {
            let resolved = Resolved::new(generation, Slot::new(*slot), Slot::NONE, false);
            let bucket = Bucket { resolved: resolved.raw(), ..Bucket::default() };
            (*bucket_key, LoomBucket::new(&bucket))
        };
        *self.made.lock().unwrap() = self.bucket_keys.iter().map(bucket).collect();
        self
    }

    /// The use of each key's bucket, in the order in which they came here.
    pub(crate) fn used(&self) -> Vec<Used> {
        let now = Ticks::from_nanos(NOW);
        let used = |(bucket_key, slot): &(BucketKey, u32)| {
            let bucket = maps::Maps::source_bucket(self, bucket_key).unwrap();
            let tat = bucket::Word::from_raw(bucket.word().load()).tat();
            let increment = self.limits[usize::try_from(*slot).unwrap()].increment;
            let owed = usize::try_from(tat.since(now).get() / increment).unwrap();
            let [counted, taken_back] = bucket.counts();
            Used { owed, passed: counted - taken_back, taken_back }
        };
        self.bucket_keys.iter().map(used).collect()
    }

    /// The lease of the first limit of the budget that is bucket 0.
    pub(crate) fn lease(&self) -> &LoomLease {
        &self.lease
    }

    /// The daemon's last store of a commit.
    pub(crate) fn commit(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// One packet through every table, as the XDP program has it go: the short way, if that is one
    /// for it.
    pub(crate) fn packet(&self) -> Reason {
        self.packet_by(Way::Short)
    }

    /// One packet through every table.
    pub(crate) fn packet_by(&self, way: Way) -> Reason {
        let frame = &FRAME[..];
        let tables = u32::try_from(self.tables.len()).unwrap();
        let has_sources =
            self.bucket_keys.iter().any(|(bucket_key, _)| bucket_key.source().is_some());
        let generation = Generation::new(self.generation.load(Ordering::Acquire));
        let rules = (generation, RuleSetHeader::new(tables, has_sources, false));
        let scratch =
            host::begin(self, &frame, 1, rules, FrameSize::of_packet(34), Ticks::from_nanos(NOW));
        let plain = match way {
            Way::Short => table::judge_plain(self, &scratch, tables),
            Way::Long => Plain::General,
        };
        let outcome = match plain {
            Plain::Judged(outcome) => outcome,
            _ => table::run_tables(self, &scratch, tables),
        };
        outcome.unpack().reason
    }

    /// The packets that still pass, one after the other.
    pub(crate) fn rest(&self) -> usize {
        std::iter::repeat_with(|| self.packet()).take_while(|reason| passes(*reason)).count()
    }
}

pub(crate) fn passes(reason: Reason) -> bool {
    let known = matches!(reason, Reason::Conforming | Reason::OverLimit | Reason::Contended);
    assert!(known, "{reason:?}");
    matches!(reason, Reason::Conforming)
}

impl maps::Maps for Maps {
    const SUPER_FRAMES: bool = true;
    const DELAYS: bool = true;

    type Hashed = LoomBucket;
    type Line = &'static HostLine;
    type Keyed = LoomKeyed;
    type Kept = maps::KeptBucket<StoredIn<Self>>;
    type Lease = LoomLease;
    type Ban = Nothing;

    fn control(&self, word: Control) -> u64 {
        if word == Control::Generation { self.generation.load(Ordering::Acquire) } else { 0 }
    }

    /// Not known: a change counts from the packet that meets it.
    fn moment(&self, _generation: u32) -> Moment {
        Moment::UNKNOWN
    }

    fn source_rule(&self, _generation: Generation, bucket_key: &BucketKey) -> Option<Slot> {
        let (_, slot) = self.bucket_keys.iter().find(|(of, _)| of == bucket_key)?;
        Some(Slot::new(*slot))
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.limits.get(usize::try_from(slot.index()).unwrap())
    }

    fn source_bucket(&self, bucket_key: &BucketKey) -> Option<LoomBucket> {
        let made = self.made.lock().unwrap();
        made.iter().find(|(of, _)| of == bucket_key).map(|(_, bucket)| bucket.clone())
    }

    fn insert(&self, bucket_key: &BucketKey, bucket: &Bucket) -> Insert {
        let mut made = self.made.lock().unwrap();
        if made.iter().any(|(of, _)| of == bucket_key) {
            return Insert::Exists;
        }
        made.push((*bucket_key, LoomBucket::new(bucket)));
        Insert::Made
    }

    fn remove(&self, bucket_key: &BucketKey) {
        self.made.lock().unwrap().retain(|(of, _)| of != bucket_key);
    }

    fn table(&self, _generation: Generation, index: u32) -> Option<&Table> {
        self.tables.get(usize::try_from(index).unwrap())
    }

    fn shape(&self, _generation: Generation, _table: u32, _shape: u32) -> Option<&Shape> {
        Some(&self.shape)
    }

    fn table_rule(&self, generation: Generation, key: &cell::Cell<TableKey>) -> TrieValue {
        let [even, odd] = self.rules[usize::try_from(key.get().table / MAX_SHAPES).unwrap()];
        TrieValue::new(1, if generation.buffer() == 0 { even } else { odd })
    }

    fn record(&self, slot: Slot) -> Option<&Record> {
        self.records.get(usize::try_from(slot.index()).unwrap())
    }

    fn keyed(&self, key: &KeyCell) -> Option<LoomKeyed> {
        self.buckets.get(usize::try_from(key.get().table).unwrap()).cloned()
    }

    fn insert_keyed(
        &self,
        _key: &KeyCell,
        _room: &cell::Cell<KeyedEntry>,
        _resolved: u64,
    ) -> Insert {
        Insert::Exists
    }

    fn remove_keyed(&self, _key: &KeyCell) {}

    fn budget(&self, index: u32) -> Option<LoomKeyed> {
        self.buckets.get(usize::try_from(index).unwrap()).cloned()
    }

    fn lease(&self, index: u32) -> Option<LoomLease> {
        (index == 0).then(|| self.lease.clone())
    }

    no_key_leases!();

    nothing_before!();
    no_lines!();
    room_for_all!();
}
