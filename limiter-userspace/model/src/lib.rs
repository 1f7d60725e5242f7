//! The data path in memory: the same decision over ordinary collections. The reference for the
//! kernel program in tests, and the engine for everything offline.

mod actions;
mod bans;
mod changes;
mod copy;
mod entries;
mod excerpt;
mod found;
mod judge;
mod left;
mod look;
mod maps;
mod moments;
mod part;
mod reading;
mod size;
mod tables;
mod trail;
mod way;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use limiter_common::bucket_key::BucketKey;
use limiter_common::header::Direction;
use limiter_common::source::{MAPPED_BITS, Source};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::window::WallOffset;
use limiter_common::wire::{
    Admission, Ask, Bucket, EntryKind, EntryTable, HostLease, InterfaceCounters, KeyLeases,
    KeyedBucket, Limit, ListEntry, RuleCounters, TableKey, Tally,
};
use limiter_decision::cell::Cell as _;
use limiter_rules::model::TriePrefix;
use limiter_rules::{Installed, Selector};

use self::entries::ModelEntries;
use bans::ModelBans;
use left::Left;
use moments::Moments;
use part::Part;
use tables::ModelTables;
use tables::lines::ModelLines;
use trail::Steps;

pub use excerpt::{Excerpt, Judged, Packet};
pub use found::{Found, FoundKeyed};
pub use look::{Held, Holder, Looked, LookedLimit, LookedSource, LookedTable, Standing};
pub use reading::{Entry, KEY_BITS, Read, Reading, SOURCE_BITS, Value};
pub use size::of_growing;
pub use tables::keyed::{of_compact, used_share};
pub use tables::lines::ModelLine;
pub use tables::source_bucket::ModelSourceBucketRef;
pub use trail::{Step, Trail};
pub use way::{Framing, Way};

/// Default number of entries.
const ENTRIES: u32 = 1 << 16;

/// The whole data path.
#[derive(Debug)]
pub struct Model {
    bypass: bool,
    generation: u64,
    installed: Installed,
    /// Rules of the previous generation.
    before: Installed,
    trial_end: Ticks,
    /// Time from which the daemon counts as lost.
    daemon_lost: Ticks,
    limits: BTreeMap<u32, Limit>,
    moments: Moments,
    tries: [Vec<(TriePrefix, u32)>; 2],
    buckets: RwLock<HashMap<BucketKey, ModelSourceBucketRef>>,
    /// Used instead of `buckets` if the buckets of sources are stored in lines.
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
    /// Age of clock readings.
    lag: Ticks,
    /// Exact time of the last packet.
    judged_at: Ticks,
    steps: Steps,
    /// Set if the model holds only a part of the maps.
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

    /// A model without rules, with space for so many sources of each family and so many keys of
    /// tables. `seed` decides which prefixes share a bucket when there is none left.
    pub fn with_room(sources: u32, keys: u32, seed: u64) -> Self {
        Self {
            bypass: false,
            generation: 0,
            installed: Installed::default(),
            before: Installed::default(),
            trial_end: Ticks::ZERO,
            daemon_lost: Ticks::ZERO,
            limits: BTreeMap::new(),
            moments: Moments::default(),
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

    /// Like [`Model::with_room`], but with the buckets of sources in lines. `seed` also decides
    /// which line a source uses.
    pub fn with_lines(sources: u32, keys: u32, seed: u64) -> Self {
        let lines = Some(ModelLines::new(sources, keys, seed));
        Self { lines, ..Self::with_room(sources, keys, seed) }
    }

    /// Makes clock readings this old, as in the kernel's program: at most
    /// [`limiter_decision::clock::SLACK`]. List entries still end on time here.
    #[must_use]
    pub fn with_old_readings(self, lag: Ticks) -> Self {
        Self { lag, ..self }
    }

    /// See `Observed::entries` of a data path.
    pub fn entries(&self, kind: EntryKind) -> (EntryTable, Admission) {
        // Like the sum over CPUs, without the budgets.
        (
            self.entries.entry_table(kind),
            Admission { tat: 0, returned: 0, ..self.entries.admission(kind) },
        )
    }

    /// See `Kernel::set_daemon_lost` of a data path.
    pub fn set_daemon_lost(&mut self, from: Ticks) {
        self.daemon_lost = from;
    }

    /// See `Datapath::set_bypass` of a data path.
    pub fn set_bypass(&mut self, engaged: bool) {
        self.bypass = engaged;
    }

    /// See `Datapath::list` of a data path.
    pub fn list(&mut self, selector: &Selector, entry: ListEntry) {
        self.unlist(selector);
        self.lists.extend(selector.trie_prefixes().into_iter().map(|prefix| (prefix, entry)));
    }

    /// See `Datapath::unlist` of a data path.
    pub fn unlist(&mut self, selector: &Selector) {
        for prefix in selector.trie_prefixes() {
            self.lists.remove(&prefix);
        }
    }

    /// The list entry of the longest prefix that contains a source, except the source's own.
    fn listed_around(&self, source: &Source) -> Option<&ListEntry> {
        let own = TriePrefix::of_source(source.trie_key());
        // In the tries IPv4 lies inside IPv6, but IPv6 prefixes do not apply to it.
        let widest = if let Source::V4(_) = source { MAPPED_BITS } else { 0 };
        // The lists of a rule file may be long.
        if self.lists.len() > own.length as usize {
            let wider = (widest..own.length).rev().map(|length| own.shortened(length));
            return wider.into_iter().find_map(|prefix| self.lists.get(&prefix));
        }
        let around = |prefix: &TriePrefix| *prefix != own && prefix.length >= widest;
        longest(self.lists.iter().filter(|(prefix, _)| around(prefix)), source.trie_key())
    }

    /// See `Observed::installed` of a data path.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// See `Observed::generation` of a data path.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of sources, keys, flows and bans.
    pub fn tracked(&self) -> usize {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        let sources = self.lines.as_ref().map_or(buckets.len(), ModelLines::tracked);
        sources + self.tables.tracked() + self.bans.tracked()
    }

    /// See `Observed::reasons` of a data path.
    pub fn reasons(&self) -> [Tally; Reason::COUNT] {
        self.reasons
    }

    /// See `Observed::interface_counters` of a data path.
    pub fn interface_counters(&self, index: u32, direction: Direction) -> InterfaceCounters {
        let place = InterfaceCounters::place(index, direction);
        self.interfaces.get(&place).copied().unwrap_or_default()
    }

    /// See `Observed::rule_counters` of a data path.
    pub fn rule_counters(&self, number: u32) -> RuleCounters {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.get(&number).copied().unwrap_or_default()
    }

    fn put_bucket(&mut self, bucket_key: BucketKey, bucket: &Bucket) {
        let buckets = self.buckets.get_mut().unwrap_or_else(PoisonError::into_inner);
        buckets.insert(bucket_key, ModelSourceBucketRef::of(bucket));
    }

    /// Copies of the buckets of sources, independent of the originals.
    fn copied_buckets(&self) -> RwLock<HashMap<BucketKey, ModelSourceBucketRef>> {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        let copy = |(bucket_key, meter): (&BucketKey, &ModelSourceBucketRef)| {
            (*bucket_key, ModelSourceBucketRef::of(&meter.bucket()))
        };
        RwLock::new(buckets.iter().map(copy).collect())
    }

    fn rules_mut(&mut self) -> &mut BTreeMap<u32, RuleCounters> {
        self.rules.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// See `Reading::keyed` of a data path.
    pub fn keyed(&self, key: &TableKey) -> Option<KeyedBucket> {
        match self.installed.tables.compact_bucket_key(key) {
            Some(bucket_key) => self.bucket_of(&bucket_key).as_ref().map(of_compact),
            None => self.tables.bucket(key),
        }
    }

    /// The state of every key of every table.
    pub fn keyed_all(&self) -> Vec<(TableKey, KeyedBucket)> {
        let tables = &self.installed.tables;
        let mut all = self.tables.all_buckets();
        // Left over from when the table was not compact.
        all.retain(|(key, _)| tables.compact_bucket_key(key).is_none());
        let compact = if let Some(lines) = &self.lines {
            lines.compact()
        } else {
            let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
            buckets.iter().map(|(bucket_key, bucket)| (*bucket_key, bucket.bucket())).collect()
        };
        let key =
            |(bucket_key, bucket): &_| Some((tables.compact_key(bucket_key)?, of_compact(bucket)));
        all.extend(compact.iter().filter_map(key));
        all
    }

    /// See `Kernel::budget` of a data path.
    pub fn budget(&self, index: u32) -> Option<KeyedBucket> {
        self.tables.budget(index)
    }

    /// A lease of a shared limit, by [`limiter_common::wire::lease_of_budget`].
    pub fn lease(&self, index: u32) -> Arc<HostLease> {
        self.tables.lease(index)
    }

    /// Takes the keys that have asked for leases since the last call, the oldest first.
    pub fn take_asks(&self) -> Vec<Ask> {
        self.tables.take_asks()
    }

    /// The leases of a key; `None` if it has none and did not ask.
    pub fn leased(&self, key: &TableKey) -> Option<KeyLeases> {
        self.tables.leased(key).map(|word| KeyLeases::from_raw(word.load()))
    }

    /// Removes the leases of all keys, and their requests.
    pub fn forget_keys(&self) {
        self.tables.forget_keys();
    }

    /// Sets the leases of a key. `None` removes its entry.
    pub fn set_leased(&self, key: &TableKey, leases: Option<KeyLeases>) {
        self.tables.set_leased(key, leases);
    }

    /// Sets the beginning of the windows of the wall clock.
    pub fn set_wall_offset(&mut self, offset: WallOffset) {
        self.tables.offset = offset;
    }

    /// See `Reading::bucket` of a data path.
    pub fn bucket(&self, source: &Source) -> Option<Bucket> {
        self.bucket_of(&BucketKey::from(*source))
    }

    /// See `Reading::bucket_of` of a data path.
    pub fn bucket_of(&self, bucket_key: &BucketKey) -> Option<Bucket> {
        if let Some(lines) = &self.lines {
            return lines.bucket(bucket_key);
        }
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        buckets
            .get(bucket_key)
            .map(ModelSourceBucketRef::bucket)
            .or_else(|| self.missing(Entry::Bucket(*bucket_key)))
    }
}

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
