//! The data path in memory: the same decision over ordinary collections. The reference for the
//! kernel program in tests, and the engine for everything offline.

mod actions;
mod changes;
mod found;
mod lines;
mod reading;
pub mod rehearsal;
mod room;
mod tables;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use limiter_common::algorithm::window::WallOffset;
use limiter_common::cell::{Cell, Meter};
use limiter_common::host;
use limiter_common::line::{NoLine, Tenant};
use limiter_common::outcome::Outcome;
use limiter_common::packet::{Bytes, Layer3};
use limiter_common::source::Source;
use limiter_common::table::Scratch;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, Bucket, KeyedBucket, Lane, Limit, ListEntry, RuleCounters, Space, TableKey, Tally,
};

use self::room::ModelRoom;
use crate::datapath::Framing;
use crate::rules::model::TriePrefix;
use crate::rules::{Installed, Plan, Selector};
use actions::{Left, ModelBans};
use lines::ModelLines;
use tables::ModelTables;

pub use found::{Found, FoundKeyed};
pub use lines::ModelSource;

/// A bucket whose words are atomics.
#[derive(Debug, Default)]
pub struct ModelMeter {
    word: AtomicU64,
    resolved: AtomicU64,
    passed: AtomicU64,
    dropped: AtomicU64,
}

impl ModelMeter {
    fn new(bucket: &Bucket) -> Self {
        let Bucket { word, resolved, passed, dropped } = *bucket;
        Self {
            word: word.into(),
            resolved: resolved.into(),
            passed: passed.into(),
            dropped: dropped.into(),
        }
    }

    fn bucket(&self) -> Bucket {
        Bucket {
            word: self.word.load(Ordering::Acquire),
            resolved: self.resolved.load(Ordering::Acquire),
            passed: self.passed.load(Ordering::Acquire),
            dropped: self.dropped.load(Ordering::Acquire),
        }
    }
}

/// A shared [`ModelMeter`].
#[derive(Clone, Debug)]
pub struct ModelMeterRef(Arc<ModelMeter>);

impl From<Tenant<NoLine>> for ModelMeterRef {
    fn from(tenant: Tenant<NoLine>) -> Self {
        match *tenant.entry() {}
    }
}

impl Meter for ModelMeterRef {
    fn word(&self) -> &impl Cell {
        &self.0.word
    }

    fn resolved(&self) -> &impl Cell {
        &self.0.resolved
    }

    fn count_passed(&self) {
        self.0.passed.fetch_add(1, Ordering::Relaxed);
    }

    fn count_dropped(&self, packets: u64) {
        self.0.dropped.fetch_add(packets, Ordering::Relaxed);
    }

    fn uncount(&self) {
        self.0.passed.fetch_sub(1, Ordering::Relaxed);
    }

    fn packets(&self) -> u64 {
        let Bucket { passed, dropped, .. } = self.0.bucket();
        passed.wrapping_add(dropped)
    }
}

/// The whole data path.
#[derive(Debug, Default)]
pub struct Model {
    brake: bool,
    generation: u64,
    installed: Installed,
    /// Of the generation before.
    before: Installed,
    trial_end: Ticks,
    /// When the daemon is lost.
    daemon_lost: Ticks,
    limits: BTreeMap<u32, Limit>,
    moments: changes::Moments,
    tries: [Vec<(TriePrefix, u32)>; 2],
    buckets: RwLock<HashMap<Source, ModelMeterRef>>,
    /// The home of the source table in their place, if it is that.
    lines: Option<ModelLines>,
    lists: BTreeMap<TriePrefix, ListEntry>,
    reasons: [Tally; Reason::COUNT],
    rules: RwLock<BTreeMap<u32, RuleCounters>>,
    tables: ModelTables,
    bans: ModelBans,
    left: Left,
    room: ModelRoom,
    /// How old readings of the clock are.
    lag: Ticks,
    /// When the last packet came, exactly.
    judged_at: Ticks,
}

impl Model {
    /// One without rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// One without rules, with room for so many sources of each family and so many keys of tables.
    /// `seed` decides which prefixes share a bucket when there is none.
    pub fn with_room(sources: u32, keys: u32, seed: u64) -> Self {
        Self { room: ModelRoom::new(sources, keys, seed), ..Self::default() }
    }

    /// As [`Model::with_room`], with the buckets of sources in lines; `seed` decides as well which one a source has.
    pub fn with_lines(sources: u32, keys: u32, seed: u64) -> Self {
        let lines = Some(ModelLines::new(sources, seed));
        Self { lines, ..Self::with_room(sources, keys, seed) }
    }

    /// The same with readings of the clock that are so old, as the kernel's program has them: at most
    /// [`limiter_common::clock::SLACK`]. That entries of lists end that much later is left out.
    #[must_use]
    pub fn with_old_readings(self, lag: Ticks) -> Self {
        Self { lag, ..self }
    }

    /// As [`super::Datapath::room`].
    pub fn room(&self, lane: Lane) -> (Space, Admission) {
        // As summed over CPUs.
        (self.room.space(lane), Admission { tat: 0, ..self.room.admission(lane) })
    }

    /// As [`super::Kernel::commit`], at a time.
    pub fn commit(&mut self, plan: Plan, now: Ticks) -> u64 {
        self.generation += 1;
        for number in plan.begun {
            self.rules_mut().insert(number, RuleCounters::default());
        }
        self.before = std::mem::take(&mut self.installed);
        self.tables.commit(self.generation, plan.tables);
        self.limits.extend(plan.limits);
        self.tries[usize::from(self.generation % 2 == 1)] = plan.trie;
        self.installed = plan.installed;
        self.note_change(now);
        self.generation
    }

    /// As [`super::Kernel::commit_on_trial`].
    pub fn commit_on_trial(&mut self, plan: Plan, end: Ticks, now: Ticks) -> u64 {
        let generation = self.commit(plan, now);
        self.note_trial(end);
        self.tables.set_trial(generation, true);
        self.trial_end = end;
        generation
    }

    /// As [`super::Kernel::confirm_by`], in time.
    pub fn confirm(&mut self) {
        self.tables.set_trial(self.generation, false);
        self.note_confirmed();
    }

    /// As [`super::Kernel::revert_by`], at a time.
    pub fn revert(&mut self, now: Ticks) {
        self.generation += 1;
        let tried = std::mem::take(&mut self.installed);
        self.installed = std::mem::take(&mut self.before).after_trial_of(&tried);
        self.note_reverted(&tried, now);
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

    /// As [`super::Datapath::installed`].
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// As [`super::Datapath::generation`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many sources, keys, flows and bans there are.
    pub fn tracked(&self) -> usize {
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        let sources = self.lines.as_ref().map_or(buckets.len(), ModelLines::tracked);
        sources + self.tables.tracked() + self.bans.tracked()
    }

    /// As [`super::Datapath::reasons`].
    pub fn reasons(&self) -> [Tally; Reason::COUNT] {
        self.reasons
    }

    /// As [`super::Datapath::rule_counters`].
    pub fn rule_counters(&self, number: u32) -> RuleCounters {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.get(&number).copied().unwrap_or_default()
    }

    fn rules_mut(&mut self) -> &mut BTreeMap<u32, RuleCounters> {
        self.rules.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`super::Reading::keyed`].
    pub fn keyed(&self, key: &TableKey) -> Option<KeyedBucket> {
        self.tables.bucket(key)
    }

    /// The state of every key of every table.
    pub fn keyed_all(&self) -> Vec<(TableKey, KeyedBucket)> {
        self.tables.all_buckets()
    }

    /// As [`super::Kernel::budget`].
    pub fn budget(&self, index: u32) -> Option<KeyedBucket> {
        self.tables.budget(index)
    }

    /// Where the windows of the wall clock begin.
    pub fn set_wall_offset(&mut self, offset: WallOffset) {
        self.tables.offset = offset;
    }

    /// As [`super::Reading::bucket`].
    pub fn bucket(&self, source: &Source) -> Option<Bucket> {
        if let Some(lines) = &self.lines {
            return lines.bucket(source);
        }
        let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
        buckets.get(source).map(|meter| meter.0.bucket())
    }

    /// Judges a frame, whole and in one piece, carries out what follows, and counts it. It came in by
    /// the interface with the index 1, as in a test run of the kernel. [`Model::way`] and
    /// [`Model::frame`] say how it left.
    pub fn judge(&mut self, frame: &[u8], now: Ticks) -> Outcome {
        let length = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        self.judge_captured(Framing::Ethernet, frame, length, INTERFACE, now)
    }

    /// As [`Model::judge`], of a frame of `length` bytes, of which `frame` may be only the beginning,
    /// that came in by an interface.
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
        let judged = host::judge(&*self, &mut scratch, read, interface, length, recent);
        let (outcome, left) = actions::carry_out(self, &scratch, judged, frame);
        self.left = left;
        let outcome = outcome.unpack();
        if let Some(tally) =
            usize::try_from(outcome.reason.index()).ok().and_then(|i| self.reasons.get_mut(i))
        {
            tally.add(length);
        }
        self.rules_mut().entry(outcome.rule).or_default().add(outcome.counted, length);
        outcome
    }
}

/// Where every frame of a test run comes in.
const INTERFACE: u32 = 1;

/// The value of the longest prefix that has the source.
fn longest<'a, V>(
    trie: impl IntoIterator<Item = (&'a TriePrefix, &'a V)>,
    source: &Source,
) -> Option<&'a V> {
    let source = TriePrefix { length: 128, address: source.trie_key() };
    trie.into_iter()
        .filter(|(prefix, _)| prefix.contains(&source))
        .max_by_key(|(prefix, _)| prefix.length)
        .map(|(_, value)| value)
}
