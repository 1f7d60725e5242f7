//! Sources that stand out while a client watches: `GET /v1/top`. A look reads a slice of all
//! sources, a slice of all keys, and the sources that stood out before. Each slice of sources is
//! read twice, one look apart, to measure the rate of every source in it.

use std::collections::HashMap;

use limiter_api::sources::{By, SourceRow};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::EntryKind;
use limiter_datapath::Datapath;
use limiter_datapath::Sweep;
use limiter_rules::Selector;

use super::account::{Account, Unreported};
use super::candidate::{Candidate, KEPT, keep};
use super::counters::Counters;
use super::headline::{AllPackets, DroppedNow, FIRST};
use super::key_slice::KeySlice;
use super::known::Known;
use super::ledger::Ledger;
use super::merit::{Best, Used};
use super::wanted::Wanted;
use crate::error::ServiceError;

/// Approximate number of sources in a slice. A table of this many hashes takes 1.2 MB.
const SLICE: usize = 28_000;

/// Most batches in a slice. Batches of a map of lines also cover empty places: with few sources in
/// a large map, a round would otherwise take as long as with many. This many batches take 5 MB.
const MOST_BATCHES: usize = 32;

/// Sources that are read with one system call.
const BATCH: usize = 4_096;

/// Shortest time between two looks. A client that asks sooner gets the result of the last look.
const APART: Ticks = Ticks::from_nanos(200_000_000);

/// Time after which a view without requests is given up.
const PATIENCE: Ticks = Ticks::from_nanos(10_000_000_000);

/// Age up to which measured rates count as present ones.
const RECENT: Ticks = Ticks::from_nanos(2_000_000_000);

/// Most views of different prefixes at once.
const MOST_VIEWS: usize = 4;

/// Most sources of one view that are always reported.
const MOST_WATCHED: usize = 16;

/// Views that are watched now; empty while no client looks.
#[derive(Debug, Default)]
pub(crate) struct Views(Vec<View>);

impl Views {
    /// The view of a prefix; if there are too many, another view ends.
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

    /// The account of a source with its rates, if a view looked at it just now.
    pub(crate) fn measured(&self, source: &Source, now: Ticks) -> Option<&Account> {
        self.0.iter().find_map(|view| view.measured(source, now))
    }

    /// Ends the views that no client looks at any more.
    pub(crate) fn forget(&mut self, now: Ticks) {
        self.0.retain(|view| now.since(view.asked) < PATIENCE);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The known sources of one prefix.
#[derive(Debug)]
pub(crate) struct View {
    within: Option<Selector>,
    asked: Ticks,
    looked: Option<Ticks>,
    pool: HashMap<Source, Candidate>,
    /// Watched sources, each with the end of the watch.
    watched: HashMap<Source, Ticks>,
    keys: KeySlice,
    sweep: Sweep,
    /// The slice that was read last: its beginning, and the packets of each source at that time.
    slice: Sweep,
    before: HashMap<Source, Counters>,
    before_at: Ticks,
    used: Used,
    rounds: u64,
    read: u64,
    /// Sources of the keyed table that were read in this round, and in the one before.
    keyed: Families,
    keyed_before: Families,
    /// Sources of these rounds whose buckets have no drops.
    quiet: u64,
    quiet_before: u64,
    /// All packets at the last look, and what was dropped since the one before.
    all: Option<AllPackets>,
    dropped_now: Option<DroppedNow>,
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
            keys: KeySlice::default(),
            sweep: Sweep::default(),
            slice: Sweep::default(),
            before: HashMap::new(),
            before_at: Ticks::ZERO,
            used: Used::default(),
            rounds: 0,
            read: 0,
            keyed: Families::default(),
            keyed_before: Families::default(),
            quiet: 0,
            quiet_before: 0,
            all: None,
            dropped_now: None,
        }
    }

    /// Sources in the keyed table, as far as they were read.
    pub(crate) fn keyed(&self) -> Families {
        Families {
            v4: self.keyed.v4.max(self.keyed_before.v4),
            v6: self.keyed.v6.max(self.keyed_before.v6),
        }
    }

    /// Looks, unless that was just done. `dropping` are sources of which drops were reported.
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
        self.keys.read(known.datapath, &wanted)?;
        let ledger = known.ledger();
        self.add_of_keys();
        // Just before the sources that stand out are read, so that the sums agree with the rows.
        let all = AllPackets::read(known.datapath, &ledger)?;
        self.dropped_now = self.all.as_ref().and_then(|before| all.since(before));
        self.all = Some(all);
        self.refresh(known, &ledger, now)?;
        let found = self.compare(known, &wanted)?;
        self.read_on(known, &ledger, &wanted)?;
        // Reads the sources that were found in this look.
        self.refresh(known, &ledger, now)?;
        self.prune(found);
        Ok(())
    }

    /// Adds the sources whose keys count most.
    fn add_of_keys(&mut self) {
        let [mut dropped, mut passed] = [Best::new(KEPT), Best::new(KEPT)];
        for (source, lines) in &self.keys.now.of {
            let mut sum = Counters::default();
            for line in lines {
                sum.add(line.counters);
            }
            dropped.offer([sum.dropped, sum.passed, 0], *source);
            passed.offer([sum.passed, sum.dropped, 0], *source);
        }
        for source in [dropped, passed].into_iter().flat_map(Best::into_sources) {
            self.pool.entry(source).or_default();
        }
    }

    /// Reads those that stood out, if they were not read in the look that began then. Each has the
    /// time of its own reading: a look takes a while.
    fn refresh(
        &mut self,
        known: Known<'_>,
        ledger: &Ledger<'_>,
        began: Ticks,
    ) -> Result<(), ServiceError> {
        let mut gone = Vec::new();
        for (source, candidate) in &mut self.pool {
            if candidate.account.at >= began {
                continue;
            }
            let now = known.datapath.now();
            let before = std::mem::take(candidate);
            let lines = self.keys.lines(known.datapath, source, &before.account)?;
            let entry = known.entry(source)?;
            let used = entry.map_or(0, |entry| self.used.share(known.datapath, &entry, now));
            // The account is complete with the round that begins after its first reading.
            let since =
                if before.account.at > Ticks::ZERO { before.since } else { self.keys.rounds };
            let whole = self.keys.now.whole || self.keys.rounds > since + 1;
            let mut account = ledger.account(source, &lines, whole)?;
            if account.is_empty() {
                gone.push(*source);
            }
            // A source that was only named so far has no first reading.
            if before.account.at > Ticks::ZERO {
                account.compare(&before.account);
            }
            *candidate = Candidate { account, used, since };
        }
        for source in gone.iter().filter(|source| !self.watched.contains_key(source)) {
            self.pool.remove(source);
        }
        Ok(())
    }

    /// Reads the last slice again to find the sources that have sent since then; returns the new
    /// ones among them.
    fn compare(&mut self, known: Known<'_>, wanted: &Wanted) -> Result<Vec<Source>, ServiceError> {
        let mut found = Vec::new();
        let (mut best, mut dropping) = (Best::new(KEPT), Best::new(KEPT));
        let mut at = self.slice;
        while !self.before.is_empty() && at != self.sweep && !at.is_done() {
            for (source, entry) in known.read(&mut at, BATCH)? {
                if !wanted.has(&source) {
                    continue;
                }
                // The slice had all sources that existed: a source not in it is newer.
                let before = self.before.get(&source).copied().unwrap_or_default();
                let Some(since) = Counters::from(&entry).since(before) else { continue };
                let Counters { passed, dropped } = since;
                if passed > 0 || dropped > 0 {
                    best.offer([passed.saturating_add(dropped), dropped, 0], source);
                    dropping.offer([dropped, passed, 0], source);
                }
            }
        }
        // Under other rules, the source may have been in another table.
        let same = self.keys.before.generation == known.datapath.generation();
        for source in best.into_sources().into_iter().chain(dropping.into_sources()) {
            if self.pool.contains_key(&source) {
                continue;
            }
            let own = (known.own_key(&source), self.before.get(&source).copied());
            let keys = &self.keys.before;
            let lines = keys.of.get(&source).map_or(&[][..], Vec::as_slice);
            let candidate = if same {
                let at = self.before_at;
                let account = Account::earlier(known.datapath, at, own, lines, keys.whole);
                Candidate { account, since: self.keys.rounds, ..Candidate::default() }
            } else {
                Candidate::default()
            };
            self.pool.insert(source, candidate);
            found.push(source);
        }
        Ok(found)
    }

    fn read_on(
        &mut self,
        known: Known<'_>,
        ledger: &Ledger<'_>,
        wanted: &Wanted,
    ) -> Result<(), ServiceError> {
        if self.sweep.is_done() {
            self.rounds += 1;
            self.read = 0;
            self.keyed_before = std::mem::take(&mut self.keyed);
            self.quiet_before = std::mem::take(&mut self.quiet);
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
                self.quiet += u64::from(counters.dropped == 0 && !ledger.has(&source));
                let used = self.used.share(known.datapath, &entry, now);
                self.before.insert(source, counters);
                let [dropped, passed, near] = &mut best;
                dropped.offer([counters.dropped, counters.passed, 0], source);
                passed.offer([counters.passed, counters.dropped, 0], source);
                near.offer([used, counters.passed, 0], source);
            }
        }
        self.read += u64::try_from(read).unwrap_or(0);
        for source in best.into_iter().flat_map(Best::into_sources) {
            self.pool.entry(source).or_default();
        }
        Ok(())
    }

    /// Keeps the sources that stand out by any measure, and those found in this look: the rate of a
    /// source with keys may be known at the next look.
    fn prune(&mut self, mut always: Vec<Source>) {
        always.extend(self.watched.keys());
        let unreported = self.unreported();
        keep(&mut self.pool, &always, unreported);
    }

    /// Reports a source from now on, until no client has asked for it for a while.
    pub(crate) fn watch(&mut self, source: Source, now: Ticks) {
        if self.watched.len() < MOST_WATCHED || self.watched.contains_key(&source) {
            self.watched.insert(source, now.plus(PATIENCE));
            self.pool.entry(source).or_default();
        }
    }

    /// A source as last seen, in each direction.
    pub(crate) fn of(
        &self,
        known: Known<'_>,
        source: &Source,
    ) -> Result<Vec<SourceRow>, ServiceError> {
        let account = self.pool.get(source).map(|candidate| candidate.account.clone());
        known.rows(source, &account.unwrap_or_default())
    }

    /// The first rows of the sources that stand out.
    pub(crate) fn rows(
        &self,
        known: Known<'_>,
        wanted: &Wanted,
    ) -> Result<Vec<SourceRow>, ServiceError> {
        let mut best = Best::new(wanted.count);
        let there = self.pool.iter().filter(|(_, candidate)| !candidate.account.is_empty());
        for (source, candidate) in there {
            best.offer(candidate.measure(wanted.by, self.unreported()), *source);
        }
        let first = best.into_sources();
        let account = |source: &Source| Some((*source, &self.pool.get(source)?.account));
        known.first_rows(first.iter().filter_map(account).collect(), wanted, self.unreported())
    }

    fn unreported(&self) -> Unreported {
        self.dropped_now.map(|now| now.unreported).unwrap_or_default()
    }

    /// A sentence about the present drops; `None` before the second look.
    pub(crate) fn headline(&self, known: Known<'_>) -> Result<Option<String>, ServiceError> {
        let Some(dropped_now) = self.dropped_now else { return Ok(None) };
        let most = Wanted { by: By::DropRate, count: FIRST, within: self.within };
        Ok(Some(dropped_now.headline(known, &self.rows(known, &most)?)))
    }

    /// Number of sources without drops, as far as they were read.
    pub(crate) fn lose_nothing(&self) -> u64 {
        // Rules on other keys may drop packets of a source whose bucket has no drops.
        let elsewhere =
            self.pool.values().filter(|candidate| candidate.account.loses_by_keys()).count();
        let quiet = self.quiet.max(self.quiet_before);
        quiet.saturating_sub(u64::try_from(elsewhere).unwrap_or(u64::MAX))
    }

    /// The account of a source with its rates, if it was looked at just now.
    pub(crate) fn measured(&self, source: &Source, now: Ticks) -> Option<&Account> {
        let Candidate { account, .. } = self.pool.get(source)?;
        (now.since(account.at) < RECENT && account.has_rates()).then_some(account)
    }

    /// Number of rounds over all sources, of which `tracked` exist.
    #[expect(clippy::cast_precision_loss, reason = "a share is reported to a few digits")]
    pub(crate) fn rounds(&self, tracked: u64) -> f64 {
        let share = if self.sweep.is_done() {
            1.0
        } else {
            (self.read as f64 / tracked.max(1) as f64).min(0.99)
        };
        self.rounds as f64 + share
    }
}

/// Number of sources of a family that have a bucket: entries made, minus those evicted.
pub(crate) fn tracked(datapath: &dyn Datapath, kind: EntryKind) -> Result<u64, ServiceError> {
    let (_, counts) = datapath.entries(kind)?;
    Ok(counts.made.saturating_sub(counts.evicted))
}
