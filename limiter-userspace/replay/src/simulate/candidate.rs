//! One rule set of several, and what it did.

use std::collections::{BTreeMap, HashMap};

use limiter_common::source::Source;
use limiter_common::verdict::{Reason, Verdict};
use limiter_rules::{Period, RuleSet};
use serde::Serialize;

use super::peaks::{Most, Recent};
use super::queue::{Bucket, Paces};
use crate::explain::{Captured, Charge, Decision, ExplainError, Explainer, MAX_TRACKED};

/// Times of packets that are kept before those that are past are looked for.
const KEPT: usize = 4_000_000;

/// Outcome of one rule set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The rule file, and the algorithm where all are asked for.
    pub name: String,
    /// Packets that passed.
    pub passed: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets dropped by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Sources that sent.
    pub sources: u64,
    /// Sources of which any packet was dropped.
    pub sources_hit: u64,
    /// Packets that these sources sent.
    pub packets_of_hit: u64,
    /// The most packets of one source that passed within 10 ms.
    pub most_in_10ms: u64,
    /// The most packets of one source that passed within 1 s.
    pub most_in_1s: u64,
    /// The longest window of the limits, in seconds; 0 without limits.
    pub window_seconds: f64,
    /// The most packets of one source that passed within the longest window of the limits. Of a
    /// window of more than a second, up to a 1,024th of it is left out.
    pub most_in_window: u64,
    /// The longest time in which every packet of a bucket was dropped that kept to its limit on
    /// average, in seconds.
    pub starved_seconds: f64,
    /// The longest time that a packet would wait if the limiter queued and dropped none, in
    /// seconds; none where limits count what a packet alone does not tell.
    pub longest_wait_seconds: Option<f64>,
    /// The mean wait of those packets that would wait, in seconds.
    pub mean_wait_seconds: Option<f64>,
    /// Packets that would wait.
    pub packets_that_wait: Option<u64>,
}

#[derive(Debug, Default)]
struct OfSource {
    offered: u64,
    dropped: u64,
    recent: Recent,
}

/// A rule set under way.
#[derive(Debug)]
pub(super) struct Candidate {
    name: String,
    explainer: Explainer,
    max_frame: u64,
    /// The longest window of the limits, in nanoseconds; 0 without any.
    window: u64,
    sources: HashMap<Source, OfSource>,
    buckets: HashMap<Charge, Bucket>,
    paces: HashMap<u32, Paces>,
    charges: Vec<Charge>,
    passed: u64,
    dropped: u64,
    reasons: BTreeMap<&'static str, u64>,
    most: Most,
    longest_wait: u64,
    waits: u128,
    waiting: u64,
    /// The latest time so far, in nanoseconds: an earlier one counts as this.
    now: u64,
    /// Times kept, about, and how many at the next sweep.
    kept: usize,
    sweep: usize,
    /// [`MAX_TRACKED`], but in tests.
    room: usize,
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
            explainer,
            max_frame,
            window,
            sources: HashMap::new(),
            buckets: HashMap::new(),
            paces: HashMap::new(),
            charges: Vec::new(),
            passed: 0,
            dropped: 0,
            reasons: BTreeMap::new(),
            most: Most::default(),
            longest_wait: 0,
            waits: 0,
            waiting: 0,
            now: 0,
            kept: 0,
            sweep: KEPT,
            room: MAX_TRACKED,
        }
    }

    /// Judges a packet; true if it passes.
    pub(super) fn packet(&mut self, captured: &Captured) -> Result<bool, ExplainError> {
        if self.sources.len() >= self.room || self.buckets.len() >= self.room {
            return Err(ExplainError::Full { packet: captured.number });
        }
        let mut charges = std::mem::take(&mut self.charges);
        let decision = self.explainer.decide_charged(captured, &mut charges);
        let done = decision.map(|decision| self.count(captured, decision, &charges));
        self.charges = charges;
        done
    }

    fn count(&mut self, captured: &Captured, decision: Decision, charges: &[Charge]) -> bool {
        let Decision { source, reason, .. } = decision;
        self.now = self.now.max(captured.nanos);
        let passed = matches!(reason.verdict(), Verdict::Pass);
        if passed {
            self.passed += 1;
        } else {
            self.dropped += 1;
            *self.reasons.entry(Reason::name(reason)).or_default() += 1;
        }
        if let Some(source) = source {
            let of_source = self.sources.entry(source).or_default();
            of_source.offered += 1;
            if passed {
                let before = of_source.recent.kept();
                self.most = self.most.max(of_source.recent.add(self.now, self.window));
                self.kept += of_source.recent.kept().saturating_sub(before);
            } else {
                of_source.dropped += 1;
            }
        }
        let mut wait = 0;
        for charge in charges {
            let number = charge.number;
            let (explainer, max_frame) = (&self.explainer, self.max_frame);
            let paces = self.paces.entry(number).or_insert_with(|| {
                let limits = explainer.limits(number);
                limits.map_or_else(Paces::default, |limits| Paces::new(limits, max_frame))
            });
            let bucket = self.buckets.entry(*charge).or_default();
            wait = wait.max(bucket.add(paces, self.now, captured.length, passed));
        }
        if wait > 0 {
            self.longest_wait = self.longest_wait.max(wait);
            self.waits += u128::from(wait);
            self.waiting += 1;
        }
        if self.kept > self.sweep {
            self.forget();
        }
        passed
    }

    /// Forgets times that are past, of all sources.
    fn forget(&mut self) {
        self.kept = 0;
        for source in self.sources.values_mut() {
            source.recent.forget(self.now, self.window);
            source.recent.shrink();
            self.kept += source.recent.kept();
        }
        self.sweep = KEPT.max(self.kept * 2);
    }

    /// Outcome so far.
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub(super) fn row(&self) -> Row {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let hit = self.sources.values().filter(|source| source.dropped > 0);
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let starved = self.buckets.iter().filter_map(|(charge, bucket)| {
            self.paces.get(&charge.number).map(|paces| bucket.starved(paces))
        });
        let told = !self.paces.values().any(|paces| paces.partly);
        let mean =
            if self.waiting == 0 { 0.0 } else { self.waits as f64 / self.waiting as f64 / 1e9 };
        Row {
            name: self.name.clone(),
            passed: self.passed,
            dropped: self.dropped,
            reasons: self.reasons.clone(),
            sources: count(self.sources.len()),
            sources_hit: count(hit.clone().count()),
            packets_of_hit: hit.map(|source| source.offered).sum(),
            most_in_10ms: self.most.short,
            most_in_1s: self.most.second,
            window_seconds: seconds(self.window),
            most_in_window: self.most.window,
            starved_seconds: seconds(starved.max().unwrap_or(0)),
            longest_wait_seconds: told.then(|| seconds(self.longest_wait)),
            mean_wait_seconds: told.then_some(mean),
            packets_that_wait: told.then_some(self.waiting),
        }
    }
}
