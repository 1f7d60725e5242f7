//! The data path in memory: the same decision over ordinary collections. The reference for the
//! kernel program in tests, and the engine for everything offline.

mod actions;
mod changes;
mod entries;
mod excerpt;
mod found;
mod keyed;
mod lines;
mod look;
mod part;
mod reading;
mod source_bucket;
mod tables;
mod trail;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use limiter_common::owner::Owner;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::window::WallOffset;
use limiter_common::wire::{
    Admission, Ask, Bucket, EntryKind, EntryTable, HostLease, InterfaceCounters, KeyLeases,
    KeyedBucket, Limit, ListEntry, RuleCounters, TableKey, Tally,
};
use limiter_decision::cell::Cell as _;
use limiter_decision::host;
use limiter_decision::outcome::Outcome;
use limiter_decision::packet::{Bytes, Layer3};
use limiter_decision::table::Scratch;

use self::entries::ModelEntries;
use crate::datapath::{Framing, of_narrow};
use crate::rules::model::TriePrefix;
use crate::rules::{Installed, Selector};
use actions::{Left, ModelBans};
use lines::ModelLines;
use part::{Entry, Part};
use source_bucket::ModelSourceBucketRef;
use tables::ModelTables;
use trail::Steps;

pub use excerpt::{Excerpt, Judged, Packet};
pub use found::{Found, FoundKeyed};
pub use keyed::used_share;
pub use lines::ModelSource;
pub use look::{Held, Holder, Looked, LookedLimit, LookedSource, LookedTable, Standing};
pub use trail::{Step, Trail};

/// Entries of a model that nobody said a size for.
const ENTRIES: u32 = 1 << 16;

/// The whole data path.
#[derive(Debug)]
pub struct Model {
    brake: bool,
    generation: u64,
    installed: Installed,
    /// Rules of the generation before.
    before: Installed,
    trial_end: Ticks,
    /// Time at which the daemon is lost.
    daemon_lost: Ticks,
    limits: BTreeMap<u32, Limit>,
    moments: changes::Moments,
    tries: [Vec<(TriePrefix, u32)>; 2],
    buckets: RwLock<HashMap<Owner, ModelSourceBucketRef>>,
    /// Lines, in place of `buckets`, if the buckets of sources are stored so.
    lines: Option<ModelLines>,
    lists: BTreeMap<TriePrefix, ListEntry>,
    reasons: [Tally; Reason::COUNT],
    /// Counters of interfaces, by [`InterfaceCounters::place`].
    interfaces: BTreeMap<u32, InterfaceCounters>,
    rules: RwLock<BTreeMap<u32, RuleCounters>>,
    tables: ModelTables,
    bans: ModelBans,
    left: Left,
    entries: ModelEntries,
    /// Age of readings of the clock.
    lag: Ticks,
    /// Exact time of the last packet.
    judged_at: Ticks,
    /// The steps that the packet under way has come to.
    steps: Steps,
    /// Part of the maps that the model has, if that is not all of them.
    part: Option<Part>,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Model without rules.
    pub fn new() -> Self {
        Self::with_room(ENTRIES, ENTRIES, 0)
    }

    /// One without rules, with room for so many sources of each family and so many keys of tables.
    /// `seed` decides which prefixes share a bucket when there is none.
    pub fn with_room(sources: u32, keys: u32, seed: u64) -> Self {
        Self {
            brake: false,
            generation: 0,
            installed: Installed::default(),
            before: Installed::default(),
            trial_end: Ticks::ZERO,
            daemon_lost: Ticks::ZERO,
            limits: BTreeMap::new(),
            moments: changes::Moments::default(),
            tries: <[Vec<_>; 2]>::default(),
            buckets: RwLock::default(),
            lines: None,
            lists: BTreeMap::new(),
            reasons: [Tally::default(); Reason::COUNT],
            interfaces: BTreeMap::new(),
            rules: RwLock::default(),
            tables: ModelTables::default(),
            bans: ModelBans::default(),
            left: Left::default(),
            entries: ModelEntries::new(sources, keys, seed),
            lag: Ticks::ZERO,
            judged_at: Ticks::ZERO,
            steps: Steps::default(),
            part: None,
        }
    }

    /// As [`Model::with_room`], with the buckets of sources in lines; `seed` decides as well which
    /// line a source has.
    pub fn with_lines(sources: u32, keys: u32, seed: u64) -> Self {
        let lines = Some(ModelLines::new(sources, keys, seed));
        Self { lines, ..Self::with_room(sources, keys, seed) }
    }

    /// The model with readings of the clock that are so old, as the kernel's program has them: at
    /// most [`limiter_decision::clock::SLACK`]. List entries do not end that much later here.
    #[must_use]
    pub fn with_old_readings(self, lag: Ticks) -> Self {
        Self { lag, ..self }
    }

    /// As [`super::Observed::entries`].
    pub fn entries(&self, kind: EntryKind) -> (EntryTable, Admission) {
        // As summed over CPUs.
        (
            self.entries.entry_table(kind),
            Admission { tat: 0, returned: 0, ..self.entries.admission(kind) },
        )
    }

    /// As [`super::Kernel::set_daemon_lost`].
    pub fn set_daemon_lost(&mut self, from: Ticks) {
        self.daemon_lost = from;
    }

    /// As [`super::Datapath::set_brake`].
    pub fn set_brake(&mut self, engaged: bool) {
        self.brake = engaged;
    }

    /// As [`super::Datapath::list`].
    pub fn list(&mut self, selector: &Selector, entry: ListEntry) {
        self.unlist(selector);
        self.lists.extend(selector.trie_prefixes().into_iter().map(|prefix| (prefix, entry)));
    }

    /// As [`super::Datapath::unlist`].
    pub fn unlist(&mut self, selector: &Selector) {
        for prefix in selector.trie_prefixes() {
            self.lists.remove(&prefix);
        }
    }

    /// The list entry of the longest prefix around a source, itself not included.
    fn listed_around(&self, source: &Source) -> Option<&ListEntry> {
        let own = TriePrefix::of_source(source.trie_key());
        longest(self.lists.iter().filter(|(prefix, _)| **prefix != own), source.trie_key())
    }

    /// As [`super::Observed::installed`].
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// As [`super::Observed::generation`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many sources, keys, flows and bans there are.
    pub fn tracked(&self) -> usize {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        let sources = self.lines.as_ref().map_or(buckets.len(), ModelLines::tracked);
        sources + self.tables.tracked() + self.bans.tracked()
    }

    /// As [`super::Observed::reasons`].
    pub fn reasons(&self) -> [Tally; Reason::COUNT] {
        self.reasons
    }

    /// As [`super::Observed::interface_counters`].
    pub fn interface_counters(&self, index: u32) -> InterfaceCounters {
        let place = InterfaceCounters::place(index);
        self.interfaces.get(&place).copied().unwrap_or_default()
    }

    /// As [`super::Observed::rule_counters`].
    pub fn rule_counters(&self, number: u32) -> RuleCounters {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.get(&number).copied().unwrap_or_default()
    }

    /// Puts the bucket of a source in its place.
    fn put_bucket(&mut self, owner: Owner, bucket: &Bucket) {
        let buckets = self.buckets.get_mut().unwrap_or_else(PoisonError::into_inner);
        buckets.insert(owner, ModelSourceBucketRef::of(bucket));
    }

    /// The buckets of sources, apart from these.
    fn copied_buckets(&self) -> RwLock<HashMap<Owner, ModelSourceBucketRef>> {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        let copy = |(owner, meter): (&Owner, &ModelSourceBucketRef)| {
            (*owner, ModelSourceBucketRef::of(&meter.bucket()))
        };
        RwLock::new(buckets.iter().map(copy).collect())
    }

    fn rules_mut(&mut self) -> &mut BTreeMap<u32, RuleCounters> {
        self.rules.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`super::Reading::keyed`].
    pub fn keyed(&self, key: &TableKey) -> Option<KeyedBucket> {
        match self.installed.tables.narrow_owner(key) {
            Some(owner) => self.bucket_of(&owner).as_ref().map(of_narrow),
            None => self.tables.bucket(key),
        }
    }

    /// The state of every key of every table.
    pub fn keyed_all(&self) -> Vec<(TableKey, KeyedBucket)> {
        let tables = &self.installed.tables;
        let mut all = self.tables.all_buckets();
        // Left from when the table was not narrow.
        all.retain(|(key, _)| tables.narrow_owner(key).is_none());
        let narrow = if let Some(lines) = &self.lines {
            lines.narrow()
        } else {
            let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
            buckets.iter().map(|(owner, bucket)| (*owner, bucket.bucket())).collect()
        };
        let key = |(owner, bucket): &_| Some((tables.narrow_key(owner)?, of_narrow(bucket)));
        all.extend(narrow.iter().filter_map(key));
        all
    }

    /// As [`super::Kernel::budget`].
    pub fn budget(&self, index: u32) -> Option<KeyedBucket> {
        self.tables.budget(index)
    }

    /// A lease of a shared limit, by [`limiter_common::wire::lease_of_budget`].
    pub fn lease(&self, index: u32) -> Arc<HostLease> {
        self.tables.lease(index)
    }

    /// Takes the keys that have asked for leases since the last time, the oldest first.
    pub fn take_asks(&self) -> Vec<Ask> {
        self.tables.take_asks()
    }

    /// The leases of a key; none where it has none and did not ask.
    pub fn leased(&self, key: &TableKey) -> Option<KeyLeases> {
        self.tables.leased(key).map(|word| KeyLeases::from_raw(word.load()))
    }

    /// Takes the leases of all keys away, and what they have asked.
    pub fn forget_keys(&self) {
        self.tables.forget_keys();
    }

    /// Gives a key leases, or takes them away, and what it has asked.
    pub fn set_leased(&self, key: &TableKey, leases: Option<KeyLeases>) {
        self.tables.set_leased(key, leases);
    }

    /// Sets the beginning of the windows of the wall clock.
    pub fn set_wall_offset(&mut self, offset: WallOffset) {
        self.tables.offset = offset;
    }

    /// As [`super::Reading::bucket`].
    pub fn bucket(&self, source: &Source) -> Option<Bucket> {
        self.bucket_of(&Owner::from(*source))
    }

    /// As [`super::Reading::bucket_of`].
    pub fn bucket_of(&self, owner: &Owner) -> Option<Bucket> {
        if let Some(lines) = &self.lines {
            return lines.bucket(owner);
        }
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        buckets
            .get(owner)
            .map(ModelSourceBucketRef::bucket)
            .or_else(|| self.missing(Entry::Bucket(*owner)))
    }

    /// Judges a frame, whole and in one piece, carries out what follows, and counts it. It came in
    /// by the interface with the index 1, as in a test run of the kernel. [`Model::way`] and
    /// [`Model::frame`] say how it left.
    pub fn judge(&mut self, frame: &[u8], now: Ticks) -> Outcome {
        let length = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        self.judge_captured(Framing::Ethernet, frame, length, INTERFACE, now)
    }

    /// As [`Model::judge`], of a frame of `length` bytes, of which `frame` may be only the
    /// beginning, that came in by an interface.
    pub fn judge_captured(
        &mut self,
        framing: Framing,
        frame: &[u8],
        length: u64,
        interface: u32,
        now: Ticks,
    ) -> Outcome {
        match framing {
            Framing::Ethernet => self.judge_bytes(&frame, frame, length, interface, now),
            Framing::Layer3 => self.judge_bytes(&Layer3(frame), frame, length, interface, now),
        }
    }

    fn judge_bytes(
        &mut self,
        read: &impl Bytes,
        frame: &[u8],
        length: u64,
        interface: u32,
        now: Ticks,
    ) -> Outcome {
        let mut scratch = Scratch::empty();
        let recent = now.since(self.lag);
        self.judged_at = now;
        self.steps.begin();
        let judged = host::judge(&*self, &mut scratch, read, interface, length, recent);
        let trail = self.steps.trail(&scratch, judged.unpack().reason);
        let (outcome, left) = actions::carry_out(self, &scratch, judged, frame, trail);
        self.left = left;
        let outcome = outcome.unpack();
        if let Some(tally) =
            usize::try_from(outcome.reason.index()).ok().and_then(|i| self.reasons.get_mut(i))
        {
            tally.add(length);
        }
        let place = InterfaceCounters::place(interface);
        self.interfaces.entry(place).or_default().add(outcome.reason, length);
        self.rules_mut().entry(outcome.rule).or_default().add(outcome.counted, length);
        outcome
    }
}

/// Interface that every frame of a test run comes in by.
const INTERFACE: u32 = 1;

/// The value of the longest prefix that has an address.
fn longest<'a, V>(
    trie: impl IntoIterator<Item = (&'a TriePrefix, &'a V)>,
    address: [u8; 16],
) -> Option<&'a V> {
    let source = TriePrefix { length: 128, address };
    trie.into_iter()
        .filter(|(prefix, _)| prefix.contains(&source))
        .max_by_key(|(prefix, _)| prefix.length)
        .map(|(_, value)| value)
}
