//! Sources that stand out while somebody watches: `GET /v1/top`. A look reads a slice of all
//! sources, and those that stood out before. Each slice is read twice, a look apart, to measure the
//! rate of every source in it.

use std::collections::HashMap;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::EntryKind;
use limiter_datapath::Datapath;
use limiter_datapath::Sweep;
use limiter_rules::Selector;

use super::known::{Counters, Known, Rates, sort};
use super::merit::{Best, Measure, Used};
use super::wanted::Wanted;
use crate::api::sources::{By, SourceRow};
use crate::error::ServiceError;

/// Sources in a slice, or some more. A table of so many hashes is 1.2 MB.
const SLICE: usize = 28_000;

/// Batches in a slice at most. A map of lines has places in each batch that nobody stands on: with
/// few sources in a large one, a round would take as long as with many. So many are 5 MB.
const MOST_BATCHES: usize = 32;

/// Sources that are read with one system call.
const BATCH: usize = 4_096;

/// Sources that stand out and are kept, by each measure.
const KEPT: usize = 128;

/// Between two looks. Whoever asks sooner is told what the last one found.
const APART: Ticks = Ticks::from_nanos(200_000_000);

/// A view that nobody asked for is given up after this.
const PATIENCE: Ticks = Ticks::from_nanos(10_000_000_000);

/// Views of different prefixes at once.
const MOST_VIEWS: usize = 4;

/// Sources of one view that are told of in any case.
const MOST_WATCHED: usize = 16;

/// Views that are watched now: none while nobody looks.
#[derive(Debug, Default)]
pub(crate) struct Views(Vec<View>);

impl Views {
    /// The view of a prefix; another one ends if there are too many.
    pub(crate) fn of(&mut self, wanted: &Wanted, now: Ticks) -> &mut View {
        let found = self.0.iter().position(|view| view.within == wanted.within);
        let index = found.unwrap_or_else(|| {
            if self.0.len() >= MOST_VIEWS {
                let oldest = self.0.iter().enumerate().min_by_key(|(_, view)| view.asked);
                let oldest = oldest.map_or(0, |(index, _)| index);
                self.0.swap_remove(oldest);
            }
            self.0.push(View::new(wanted.within));
            self.0.len() - 1
        });
        let view = &mut self.0[index];
        view.asked = now;
        view
    }

    /// Ends what nobody looks at any more.
    pub(crate) fn forget(&mut self, now: Ticks) {
        self.0.retain(|view| now.since(view.asked) < PATIENCE);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A source that stands out, as read last.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    counters: Counters,
    at: Ticks,
    rates: Option<Rates>,
    used: u64,
}

impl Candidate {
    fn measure(&self, by: By) -> Measure {
        // Thousandths of packets, so that slow ones have an order, too.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is a few millions"
        )]
        let whole = |rate: f64| (rate * 1000.0) as u64;
        let rates = self.rates.unwrap_or_default();
        let first = match by {
            By::Dropped => self.counters.dropped,
            By::Passed => self.counters.passed,
            By::Rate => whole(rates.passed + rates.dropped),
            By::DropRate => whole(rates.dropped),
            By::Nearness => self.used,
        };
        [first, self.counters.dropped.saturating_add(self.counters.passed)]
    }
}

/// The sources of one prefix, as far as they are known.
#[derive(Debug)]
pub(crate) struct View {
    within: Option<Selector>,
    asked: Ticks,
    looked: Option<Ticks>,
    pool: HashMap<Source, Candidate>,
    /// Sources that are watched, each with the time until which it is.
    watched: HashMap<Source, Ticks>,
    sweep: Sweep,
    /// The slice that was read last: where it began, and what each source had sent and
    /// used up then.
    slice: Sweep,
    before: HashMap<Source, (Counters, u64)>,
    before_at: Ticks,
    used: Used,
    rounds: u64,
    read: u64,
    /// Sources of the keyed table that were read in this round, and in the one before.
    keyed: Families,
    keyed_before: Families,
}

/// A number of sources of each family.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Families {
    pub(crate) v4: u64,
    pub(crate) v6: u64,
}

impl Families {
    const fn of(&mut self, source: &Source) -> &mut u64 {
        match source {
            Source::V4(_) => &mut self.v4,
            Source::V6(_) => &mut self.v6,
        }
    }
}

impl View {
    fn new(within: Option<Selector>) -> Self {
        Self {
            within,
            asked: Ticks::ZERO,
            looked: None,
            pool: HashMap::new(),
            watched: HashMap::new(),
            sweep: Sweep::default(),
            slice: Sweep::default(),
            before: HashMap::new(),
            before_at: Ticks::ZERO,
            used: Used::default(),
            rounds: 0,
            read: 0,
            keyed: Families::default(),
            keyed_before: Families::default(),
        }
    }

    /// Sources in the keyed table, as far as they were read.
    pub(crate) fn keyed(&self) -> Families {
        Families {
            v4: self.keyed.v4.max(self.keyed_before.v4),
            v6: self.keyed.v6.max(self.keyed_before.v6),
        }
    }

    /// Looks, unless that was just done. `dropping` are sources of which drops were told.
    pub(crate) fn look(
        &mut self,
        known: Known<'_>,
        dropping: impl Iterator<Item = Source>,
    ) -> Result<(), ServiceError> {
        let now = known.datapath.now();
        if self.looked.is_some_and(|looked| now.since(looked) < APART) {
            return Ok(());
        }
        self.looked = Some(now);
        self.used.forget();
        self.watched.retain(|_, until| *until > now);
        let wanted = Wanted { by: By::default(), count: 0, within: self.within };
        for source in dropping.filter(|source| wanted.has(source)) {
            self.pool.entry(source).or_default();
        }
        self.refresh(known, now)?;
        self.compare(known, &wanted)?;
        self.read_on(known, &wanted)?;
        self.prune();
        Ok(())
    }

    /// Reads again who stood out.
    fn refresh(&mut self, known: Known<'_>, now: Ticks) -> Result<(), ServiceError> {
        let mut gone = Vec::new();
        for (source, candidate) in &mut self.pool {
            match known.entry(source)? {
                Some(entry) => {
                    let counters = Counters::from(&entry);
                    let used = self.used.share(known.datapath, &entry, now);
                    let before = *candidate;
                    *candidate = Candidate { counters, at: now, rates: None, used };
                    // A source that was only named so far has no first reading.
                    if before.at > Ticks::ZERO {
                        candidate.rates =
                            Rates::between(before.counters, counters, now.since(before.at));
                    }
                }
                None => gone.push(*source),
            }
        }
        for source in gone.iter().filter(|source| !self.watched.contains_key(source)) {
            self.pool.remove(source);
        }
        Ok(())
    }

    /// Reads the last slice again: who of it has sent since then?
    fn compare(&mut self, known: Known<'_>, wanted: &Wanted) -> Result<(), ServiceError> {
        let (mut best, mut dropping) = (Best::new(KEPT), Best::new(KEPT));
        let mut found = HashMap::new();
        let mut at = self.slice;
        let now = known.datapath.now();
        let time = now.since(self.before_at);
        while !self.before.is_empty() && at != self.sweep && !at.is_done() {
            for (source, entry) in known.read(&mut at, BATCH)? {
                let counters = Counters::from(&entry);
                if !wanted.has(&source) {
                    continue;
                }
                // The slice had all that were there: who is not in it came since then.
                let (before, _) = self.before.get(&source).copied().unwrap_or_default();
                let passed = counters.passed.saturating_sub(before.passed);
                let dropped = counters.dropped.saturating_sub(before.dropped);
                if passed == 0 && dropped == 0 {
                    continue;
                }
                best.offer([passed.saturating_add(dropped), dropped], source);
                dropping.offer([dropped, passed], source);
                let rates = Rates::between(before, counters, time);
                let used = self.used.share(known.datapath, &entry, now);
                found.insert(source, Candidate { counters, at: now, rates, used });
                if found.len() > 16 * KEPT {
                    keep(&mut found, &[], &[By::Rate, By::DropRate]);
                }
            }
        }
        for source in best.into_sources().into_iter().chain(dropping.into_sources()) {
            if let Some(candidate) = found.get(&source) {
                self.pool.entry(source).or_insert(*candidate);
            }
        }
        Ok(())
    }

    /// Reads the next slice.
    fn read_on(&mut self, known: Known<'_>, wanted: &Wanted) -> Result<(), ServiceError> {
        if self.sweep.is_done() {
            self.rounds += 1;
            self.read = 0;
            self.keyed_before = std::mem::take(&mut self.keyed);
        }
        if self.sweep.is_done() || self.sweep == Sweep::default() {
            self.sweep = known.sweep();
        }
        self.slice = self.sweep;
        self.before.clear();
        self.before.reserve(SLICE);
        let now = known.datapath.now();
        self.before_at = now;
        let mut best = [Best::new(KEPT), Best::new(KEPT), Best::new(KEPT)];
        let mut read = 0;
        for _ in 0..MOST_BATCHES {
            if self.sweep.is_done() || read >= SLICE {
                break;
            }
            let entries = known.read(&mut self.sweep, BATCH)?;
            read += entries.len();
            for (source, entry) in entries {
                if entry.keyed {
                    *self.keyed.of(&source) += 1;
                }
                if !wanted.has(&source) {
                    continue;
                }
                let counters = Counters::from(&entry);
                let used = self.used.share(known.datapath, &entry, now);
                self.before.insert(source, (counters, used));
                let [dropped, passed, near] = &mut best;
                dropped.offer([counters.dropped, counters.passed], source);
                passed.offer([counters.passed, counters.dropped], source);
                near.offer([used, counters.passed], source);
            }
        }
        self.read += u64::try_from(read).unwrap_or(0);
        for source in best.into_iter().flat_map(Best::into_sources) {
            if let Some((counters, used)) = self.before.get(&source).copied() {
                let candidate = Candidate { counters, at: now, rates: None, used };
                self.pool.entry(source).or_insert(candidate);
            }
        }
        Ok(())
    }

    /// Keeps those who stand out, by whatever measure.
    fn prune(&mut self) {
        let watched: Vec<Source> = self.watched.keys().copied().collect();
        keep(&mut self.pool, &watched, &By::ALL);
    }

    /// Tells of a source from now on, until nobody has asked for it for a while.
    pub(crate) fn watch(&mut self, source: Source, now: Ticks) {
        if self.watched.len() < MOST_WATCHED || self.watched.contains_key(&source) {
            self.watched.insert(source, now.plus(PATIENCE));
            self.pool.entry(source).or_default();
        }
    }

    /// A source as it was seen last.
    pub(crate) fn row(&self, known: Known<'_>, source: &Source) -> Result<SourceRow, ServiceError> {
        let rates = self.pool.get(source).and_then(|candidate| candidate.rates);
        Ok(known.row(source, rates)?.0)
    }

    /// The first of those that stand out.
    pub(crate) fn rows(
        &self,
        known: Known<'_>,
        wanted: &Wanted,
    ) -> Result<Vec<SourceRow>, ServiceError> {
        let mut best = Best::new(wanted.count);
        for (source, candidate) in &self.pool {
            best.offer(candidate.measure(wanted.by), *source);
        }
        let mut rows = Vec::new();
        for source in best.into_sources() {
            let rates = self.pool.get(&source).and_then(|candidate| candidate.rates);
            let (row, tracked) = known.row(&source, rates)?;
            if tracked {
                rows.push(row);
            }
        }
        sort(&mut rows, wanted.by);
        Ok(rows)
    }

    /// Rounds over all sources, of which there are `tracked`.
    #[expect(clippy::cast_precision_loss, reason = "a share is told to a few digits")]
    pub(crate) fn rounds(&self, tracked: u64) -> f64 {
        let share = if self.sweep.is_done() {
            1.0
        } else {
            (self.read as f64 / tracked.max(1) as f64).min(0.99)
        };
        self.rounds as f64 + share
    }
}

/// Keeps the first [`KEPT`] by each measure, and these in any case.
fn keep(pool: &mut HashMap<Source, Candidate>, always: &[Source], measures: &[By]) {
    if pool.len() <= KEPT {
        return;
    }
    let mut kept: HashMap<Source, Candidate> = HashMap::new();
    for by in measures {
        let mut best = Best::new(KEPT);
        for (source, candidate) in &*pool {
            best.offer(candidate.measure(*by), *source);
        }
        for source in best.into_sources().iter().chain(always) {
            if let Some(candidate) = pool.get(source) {
                kept.insert(*source, *candidate);
            }
        }
    }
    *pool = kept;
}

/// Sources of a family that have a bucket, by what became of new ones.
pub(crate) fn tracked(datapath: &dyn Datapath, kind: EntryKind) -> Result<u64, ServiceError> {
    let (_, counts) = datapath.entries(kind)?;
    Ok(counts.made.saturating_sub(counts.evicted))
}
