//! The keys that are refused most: a bounded table, which only refusals touch.
//!
//! Space-Saving with decay. A key without a row takes that of the key with the least weight, and
//! its weight with it, so a key that is refused often enough now always has one. What a row counts
//! is exact since the key has it; before, the key was refused at most as often as any that lost its
//! row.

use std::cmp::Ordering;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use limiter_common::time::Ticks;

use crate::buckets::key::Key;
use crate::daemon::bounded;
use crate::rules::{EntryOf, Rule};

/// Parts of the table, so that threads seldom wait for each other.
const PARTS: usize = 32;

/// Rows of a part.
const ROWS: usize = 32;

/// Nanoseconds after which a refusal weighs a third of a new one (one part in e).
const MEMORY: f64 = 10e9;

/// The least nanoseconds over which a rate is a mean.
const SECOND: f64 = 1e9;

/// Who is refused, and by what.
#[derive(Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) key: Key,
    /// The number of the aggregate of the rule, from 1; 0 for its own limits.
    pub(crate) aggregate: u64,
    pub(crate) entries: &'a [EntryOf<'a>],
}

/// A key that is refused.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// The identity of its rule.
    pub(crate) rule: Key,
    /// How often it was refused since it has this row.
    pub(crate) refused: u64,
    /// How often it may have been refused before, at most.
    pub(crate) missed: u64,
    /// When it was first and last refused since then, in nanoseconds since boot.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Bits of the prefix that it is, if it is that of an aggregate.
    pub(crate) prefix: Option<u8>,
    /// Its values, if its rule shows them in metrics.
    pub(crate) shown: Option<Box<str>>,
    /// Refusals, newer ones with more weight, and those that came with the row.
    weight: f64,
    inherited: f64,
}

#[derive(Debug, Default)]
struct Part {
    rows: Vec<Row>,
    /// The most that a key was refused that has lost its row.
    lost: u64,
    /// When a refusal weighs 1, in nanoseconds since boot; later ones weigh more.
    zero: u64,
}

/// Keys that are refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedKeys {
    parts: [Mutex<Part>; PARTS],
    /// Makes the ids of keys, which are those of this process alone.
    ids: RandomState,
}

/// A lock of which a thread that panics leaves nothing half done.
fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RefusedKeys {
    /// Counts refused descriptors of a key.
    pub(crate) fn count(&self, who: Who<'_>, count: u64, now: Ticks) {
        if let Some(part) = self.parts.get(who.key.shard(PARTS)).filter(|_| count > 0) {
            lock(part).count(who, count, now.as_nanos());
        }
    }

    /// Forgets rules that are no more, and values, which the new rules may not show.
    pub(crate) fn reloaded(&self, rules: &[Arc<Rule>]) {
        for mut part in self.parts.iter().map(lock) {
            part.rows.retain(|row| rules.iter().any(|rule| rule.identity() == row.rule));
            part.rows.iter_mut().for_each(|row| row.shown = None);
        }
    }

    /// All rows with their refusals a second, and the most that any other key was refused.
    pub(crate) fn rows(&self, now: Ticks) -> (Vec<(f64, Row)>, u64) {
        let (mut rows, mut lost) = (Vec::new(), 0);
        for part in self.parts.iter().map(lock) {
            let rated = |row: &Row| (row.per_second(part.zero, now.as_nanos()), row.clone());
            rows.extend(part.rows.iter().map(rated));
            lost = lost.max(part.lost);
        }
        (rows, lost)
    }

    /// A short name of a key, by which nobody finds its values.
    pub(crate) fn id(&self, key: Key) -> String {
        format!("{:012x}", self.ids.hash_one(key.raw()) >> 16)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
const fn float(number: u64) -> f64 {
    number as f64
}

impl Part {
    fn count(&mut self, who: Who<'_>, count: u64, now: u64) {
        let weight = self.weight(now) * float(count);
        let known = self.rows.iter().position(|row| row.key == who.key);
        let at = known.unwrap_or_else(|| self.add(who, now));
        let Some(row) = self.rows.get_mut(at) else { return };
        row.refused = row.refused.saturating_add(count);
        row.weight += weight;
        row.last = row.last.max(now);
        if row.shown.is_none() && who.rule.detailed {
            row.shown = Some(bounded(&who.rule.shown_of(who.entries, who.aggregate)).into());
        }
    }

    /// The weight of a refusal at a moment.
    fn weight(&mut self, now: u64) -> f64 {
        let age = float(now.saturating_sub(self.zero)) / MEMORY;
        // Before numbers become too large.
        if age > 64.0 {
            let less = (-age).exp();
            for row in &mut self.rows {
                row.weight *= less;
                row.inherited *= less;
            }
            self.zero = now;
            return 1.0;
        }
        age.exp()
    }

    /// Gives a key a row, and returns where it is.
    fn add(&mut self, who: Who<'_>, now: u64) -> usize {
        let least = |(_, one): &(usize, &Row), (_, other): &(usize, &Row)| {
            one.weight.total_cmp(&other.weight).then(one.last.cmp(&other.last))
        };
        let full = self.rows.len() >= ROWS;
        let least = self.rows.iter().enumerate().filter(|_| full).min_by(least);
        let mut inherited = 0.0;
        if let Some((_, row)) = least {
            self.lost = self.lost.max(row.most());
            inherited = row.weight;
        }
        let row = Row { weight: inherited, inherited, ..Row::new(who, self.lost, now) };
        let at = least.map_or(self.rows.len(), |(at, _)| at);
        match self.rows.get_mut(at) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        at
    }
}

impl Row {
    /// One that counts from now on.
    pub(crate) fn new(who: Who<'_>, missed: u64, now: u64) -> Self {
        let Who { rule, key, aggregate, entries } = who;
        Self {
            key,
            rule: rule.identity(),
            refused: 0,
            missed,
            first: now,
            last: now,
            prefix: rule.prefix_of(entries, aggregate).map(|net| net.prefix_len()),
            shown: rule.detailed.then(|| bounded(&rule.shown_of(entries, aggregate)).into()),
            weight: 0.0,
            inherited: 0.0,
        }
    }

    /// How often it was refused, at most.
    pub(crate) const fn most(&self) -> u64 {
        self.refused.saturating_add(self.missed)
    }

    /// Refusals a second, of about the last ten seconds.
    fn per_second(&self, zero: u64, now: u64) -> f64 {
        let since = |then: u64| float(now.saturating_sub(then));
        let weight = (self.weight - self.inherited) * (-since(zero) / MEMORY).exp();
        let age = since(self.first).max(SECOND);
        weight / (-(-age / MEMORY).exp_m1() * MEMORY / SECOND)
    }

    /// The order of rows: who is refused most now comes first.
    pub(crate) fn order((one_rate, one): &(f64, Self), (rate, other): &(f64, Self)) -> Ordering {
        let order = rate.total_cmp(one_rate).then(other.refused.cmp(&one.refused));
        order.then(one.key.cmp(&other.key))
    }
}
