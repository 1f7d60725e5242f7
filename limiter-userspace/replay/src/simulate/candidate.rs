//! One of several rule sets, and its outcome.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use limiter_common::verdict::{Reason, Verdict};
use limiter_model::of_growing;
use limiter_rules::{Period, RuleSet};
use serde::Serialize;

use super::First;
use super::peaks::{Most, Recent};
use super::queue::{BucketQueue, Paces};
use crate::explain::{Bucket, Captured, Charge, Decision, ExplainError, Explainer};

/// Bytes of packet times that are kept before old ones are removed.
const SWEEP: usize = 16_000_000;

/// Outcome of one rule set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The rule file, and the algorithm if all algorithms are compared.
    pub name: String,
    /// Packets that passed.
    pub passed: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Dropped packets by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Sources that sent.
    pub sources: u64,
    /// Sources with at least one dropped packet.
    pub sources_hit: u64,
    /// Packets that these sources sent.
    pub packets_of_hit: u64,
    /// The most packets of one source that passed within 10 ms.
    pub most_in_10ms: u64,
    /// The most packets of one source that passed within 1 s.
    pub most_in_1s: u64,
    /// The longest window of the limits, in seconds; 0 without limits.
    pub window_seconds: f64,
    /// The most packets of one source that passed within the longest window of the limits. For a
    /// window of more than a second, up to a 1,024th of the window is not covered.
    pub most_in_window: u64,
    /// The longest time, in seconds, in which every packet of a bucket was dropped though the
    /// bucket kept to its limit on average.
    pub starved_seconds: f64,
    /// The longest time, in seconds, that a packet would wait if limiter queued packets instead of
    /// dropping them; `None` if limits count what a packet alone does not show.
    pub longest_wait_seconds: Option<f64>,
    /// The mean wait of the packets that would wait, in seconds.
    pub mean_wait_seconds: Option<f64>,
    /// Number of packets that would wait.
    pub packets_that_wait: Option<u64>,
}

#[derive(Debug)]
struct OfSource {
    dropped: u64,
    recent: Recent,
    /// Bucket of its rule in the source table, and the rule's number.
    bucket: Option<(u32, BucketQueue)>,
}

/// State of a source. Most sources of a flood send one packet, and only this is kept of them:
/// [`First`] has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    Passed,
    Dropped,
    /// Index among the sources with several packets.
    More(u32),
}

#[derive(Debug)]
enum OfKey {
    /// After one packet.
    One { now: u64, length: u32, passed: bool },
    /// Index among the buckets with several packets.
    More(u32),
}

/// A rule set during the simulation.
#[derive(Debug)]
pub(super) struct Candidate {
    name: String,
    explainer: Explainer,
    max_frame: u64,
    /// The longest window of the limits, in nanoseconds; 0 without any.
    window: u64,
    /// Indexed by the number of the source.
    states: Vec<SourceState>,
    sources: Vec<OfSource>,
    /// By a hash of rule and key, keyed with a secret: 64 bits instead of 64 bytes.
    keys: HashMap<u64, OfKey>,
    buckets: Vec<(u32, BucketQueue)>,
    hash: RandomState,
    paces: HashMap<u32, Paces>,
    charges: Vec<Charge>,
    passed: u64,
    dropped: u64,
    reasons: BTreeMap<&'static str, u64>,
    most: Most,
    longest_wait: u64,
    waits: u128,
    waiting: u64,
    /// Bytes of times and queues that sources and buckets allocate.
    kept: usize,
    /// Value of `kept` at which the next sweep begins.
    sweep: usize,
}

impl Candidate {
    pub(super) fn new(name: String, explainer: Explainer, set: &RuleSet, max_frame: u64) -> Self {
        let of_rules = set.rules.iter().filter_map(|rule| rule.terms.limits());
        let all = of_rules.chain(set.budgets.iter().map(|budget| &budget.limits));
        let windows =
            all.flat_map(|limits| limits.limits.iter().map(|limit| limit.meter.quota().period));
        let window = windows.map(Period::nanos).max().unwrap_or(0);
        Self {
            name,
            explainer: explainer.unbounded(),
            max_frame,
            window,
            states: Vec::new(),
            sources: Vec::new(),
            keys: HashMap::new(),
            buckets: Vec::new(),
            hash: RandomState::new(),
            paces: HashMap::new(),
            charges: Vec::new(),
            passed: 0,
            dropped: 0,
            reasons: BTreeMap::new(),
            most: Most::default(),
            longest_wait: 0,
            waits: 0,
            waiting: 0,
            kept: 0,
            sweep: SWEEP,
        }
    }

    /// Approximate bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.explainer.bytes()
            + self.states.len() * size_of::<SourceState>()
            + self.sources.len() * size_of::<OfSource>()
            + of_growing(self.keys.len(), self.keys.capacity(), size_of::<(u64, OfKey)>())
            + self.buckets.len() * size_of::<(u32, BucketQueue)>()
            + self.kept
    }

    /// Judges a packet at `now`, no earlier than previous packets, of a source whose first packet
    /// is given. Returns true if it passes.
    pub(super) fn packet(
        &mut self,
        captured: &Captured,
        now: u64,
        first: Option<(usize, First)>,
    ) -> Result<bool, ExplainError> {
        let mut charges = std::mem::take(&mut self.charges);
        let decision = self.explainer.decide_charged(captured, &mut charges);
        let done = decision.map(|Decision { reason, .. }| {
            let passed = matches!(reason.verdict(), Verdict::Pass);
            if passed {
                self.passed += 1;
            } else {
                self.dropped += 1;
                *self.reasons.entry(Reason::name(reason)).or_default() += 1;
            }
            self.count(captured.length, now, first, passed, &charges);
            passed
        });
        self.charges = charges;
        done
    }

    fn count(
        &mut self,
        length: u64,
        now: u64,
        first: Option<(usize, First)>,
        passed: bool,
        charges: &[Charge],
    ) {
        let by_source = charges.iter().find(|charge| matches!(charge.bucket, Bucket::Source(_)));
        let by_source = by_source.map(|charge| charge.number);
        let mut wait = 0;
        if let Some((place, first)) = first {
            wait = self.source(place, &first, (length, now, passed), by_source);
        }
        for charge in charges.iter().filter(|charge| !matches!(charge.bucket, Bucket::Source(_))) {
            wait = wait.max(self.key(charge, (length, now, passed)));
        }
        if wait > 0 {
            self.longest_wait = self.longest_wait.max(wait);
            self.waits += u128::from(wait);
            self.waiting += 1;
        }
        if self.kept > self.sweep {
            self.forget(now);
        }
    }

    /// Counts a packet of a source under its rule in the source table. Returns the time that it
    /// would wait there.
    fn source(
        &mut self,
        place: usize,
        first: &First,
        (length, now, passed): (u64, u64, bool),
        number: Option<u32>,
    ) -> u64 {
        let window = self.window;
        let Some(state) = self.states.get_mut(place) else {
            if passed {
                self.most = self.most.max(Most::first(window));
            }
            self.states.push(if passed { SourceState::Passed } else { SourceState::Dropped });
            return number.map_or(0, |number| self.paces(number).first_wait(length));
        };
        let at = if let SourceState::More(at) = *state {
            at
        } else {
            // Count the first packet like any other, now that there is a second one.
            let at = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
            let had_passed = *state == SourceState::Passed;
            *state = SourceState::More(at);
            let mut recent = Recent::default();
            if had_passed {
                recent.add(first.now, window);
            }
            let bucket = number.map(|number| {
                let paces = self.paces(number);
                let heap = paces.heap();
                let (bucket, _) =
                    BucketQueue::begin(paces, first.now, first.length.into(), had_passed);
                self.kept += heap;
                (number, bucket)
            });
            self.kept += recent.bytes();
            self.sources.push(OfSource { dropped: u64::from(!had_passed), recent, bucket });
            at
        };
        let Some(of) = self.sources.get_mut(at as usize) else { return 0 };
        if passed {
            let before = of.recent.bytes();
            self.most = self.most.max(of.recent.add(now, window));
            self.kept += of.recent.bytes().saturating_sub(before);
        } else {
            of.dropped += 1;
        }
        match (&mut of.bucket, number.and_then(|number| self.paces.get(&number))) {
            (Some((_, bucket)), Some(paces)) => bucket.add(paces, now, length, passed),
            _ => 0,
        }
    }

    /// Counts a packet under a rule of another table or a budget. Returns the time that it would
    /// wait.
    fn key(&mut self, charge: &Charge, (length, now, passed): (u64, u64, bool)) -> u64 {
        let number = charge.number;
        let hash = self.hash.hash_one(charge);
        match self.keys.get_mut(&hash) {
            None => {
                let bytes = u32::try_from(length).unwrap_or(u32::MAX);
                self.keys.insert(hash, OfKey::One { now, length: bytes, passed });
                self.paces(number).first_wait(length)
            }
            Some(OfKey::More(at)) => {
                let bucket = self.buckets.get_mut(*at as usize);
                let (Some((_, bucket)), Some(paces)) = (bucket, self.paces.get(&number)) else {
                    return 0;
                };
                bucket.add(paces, now, length, passed)
            }
            Some(of) => {
                let OfKey::One { now: before, length: bytes, passed: had_passed } = *of else {
                    return 0;
                };
                *of = OfKey::More(u32::try_from(self.buckets.len()).unwrap_or(u32::MAX));
                let paces = self.paces(number);
                let heap = paces.heap();
                let (mut bucket, _) = BucketQueue::begin(paces, before, bytes.into(), had_passed);
                let wait = bucket.add(paces, now, length, passed);
                self.kept += heap;
                self.buckets.push((number, bucket));
                wait
            }
        }
    }

    /// The limits of a rule or budget.
    fn paces(&mut self, number: u32) -> &Paces {
        let (explainer, max_frame) = (&self.explainer, self.max_frame);
        self.paces.entry(number).or_insert_with(|| {
            let limits = explainer.limits(number);
            limits.map_or_else(Paces::default, |limits| Paces::new(limits, max_frame))
        })
    }

    /// Removes old times of all sources.
    fn forget(&mut self, now: u64) {
        for source in &mut self.sources {
            let before = source.recent.bytes();
            source.recent.forget(now, self.window);
            source.recent.shrink();
            self.kept -= before.saturating_sub(source.recent.bytes()).min(self.kept);
        }
        self.sweep = SWEEP.max(self.kept.saturating_mul(2));
    }

    /// Outcome so far. `firsts` contains all sources.
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub(super) fn row(&self, firsts: &[First]) -> Row {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let (mut hit, mut of_hit) = (0, 0);
        for (state, first) in self.states.iter().zip(firsts) {
            let lost = match state {
                SourceState::Passed => false,
                SourceState::Dropped => true,
                SourceState::More(at) => {
                    self.sources.get(*at as usize).is_some_and(|source| source.dropped > 0)
                }
            };
            if lost {
                hit += 1;
                of_hit += first.offered;
            }
        }
        // A bucket of one packet does not starve.
        let of_sources = self.sources.iter().filter_map(|source| source.bucket.as_ref());
        let starved = of_sources.chain(&self.buckets).filter_map(|(number, bucket)| {
            self.paces.get(number).map(|paces| bucket.starved(paces))
        });
        let reported = !self.paces.values().any(|paces| paces.partly);
        let mean =
            if self.waiting == 0 { 0.0 } else { self.waits as f64 / self.waiting as f64 / 1e9 };
        Row {
            name: self.name.clone(),
            passed: self.passed,
            dropped: self.dropped,
            reasons: self.reasons.clone(),
            sources: u64::try_from(firsts.len()).unwrap_or(u64::MAX),
            sources_hit: hit,
            packets_of_hit: of_hit,
            most_in_10ms: self.most.short,
            most_in_1s: self.most.second,
            window_seconds: seconds(self.window),
            most_in_window: self.most.window,
            starved_seconds: seconds(starved.max().unwrap_or(0)),
            longest_wait_seconds: reported.then(|| seconds(self.longest_wait)),
            mean_wait_seconds: reported.then_some(mean),
            packets_that_wait: reported.then_some(self.waiting),
        }
    }
}
