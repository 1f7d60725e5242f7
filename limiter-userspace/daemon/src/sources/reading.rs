//! A pass over all sources, in slices: `GET /v1/sources`.

use std::collections::HashMap;
use std::time::Duration;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_datapath::Sweep;

use super::by_rule::ByRule;
use super::known::{Counters, Known, Rates, sort};
use super::merit::{Best, Used};
use super::wanted::Wanted;
use crate::api::sources::{By, SourceList};
use crate::error::ServiceError;
use crate::views;

/// Sources that are read before others have their turn: a few milliseconds.
const SLICE: usize = 4096;

/// Sources whose rate is measured, of each kind: the pass tells counters, and no rates.
const CANDIDATES: usize = 1024;

/// Between the two readings that tell a rate.
const APART: Duration = Duration::from_millis(250);

/// The step after a slice.
#[derive(Debug)]
pub(crate) enum Next {
    /// Another slice.
    Slice,
    /// Another slice after a while.
    After(Duration),
    /// The answer.
    Done(SourceList),
}

/// A pass under way.
#[derive(Debug)]
pub(crate) struct Reading {
    wanted: Wanted,
    /// Progress of the pass; none before the first slice.
    sweep: Option<Sweep>,
    /// Drops by rules on other keys; read after the sources, none once they were told.
    others: Option<ByRule>,
    list: SourceList,
    used: Used,
    best: [Best; 2],
    /// The first counters of those whose rate is measured, and when that was.
    first: Option<(Vec<(Source, Counters)>, Ticks)>,
}

impl Reading {
    pub(crate) fn new(wanted: Wanted) -> Self {
        let room = if wanted.by.is_rate() { CANDIDATES } else { wanted.count };
        // Only a rate needs two kinds of candidates.
        let second = if wanted.by == By::Rate { CANDIDATES } else { 0 };
        Self {
            wanted,
            sweep: None,
            others: Some(ByRule::of_dropped(wanted.within)),
            list: SourceList { by: wanted.by, ..SourceList::default() },
            used: Used::default(),
            best: [Best::new(room), Best::new(second)],
            first: None,
        }
    }

    /// Reads on.
    pub(crate) fn step(&mut self, known: Known<'_>) -> Result<Next, ServiceError> {
        if self.sweep.is_none_or(|sweep| !sweep.is_done()) {
            self.slice(known)?;
            return Ok(Next::Slice);
        }
        if let Some(others) = &mut self.others
            && !others.step(known.datapath)?
        {
            return Ok(Next::Slice);
        }
        if !self.wanted.by.is_rate() {
            let [best, _] = self.take_best();
            return self.answer(known, best.into_sources(), &HashMap::new());
        }
        let now = known.datapath.now();
        match self.first.take() {
            None => {
                let mut sources: Vec<Source> =
                    self.take_best().into_iter().flat_map(Best::into_sources).collect();
                sources.sort_unstable();
                sources.dedup();
                let first = counters(known, sources)?;
                let next = if first.is_empty() { Next::Slice } else { Next::After(APART) };
                self.first = Some((first, now));
                Ok(next)
            }
            Some((first, then)) => {
                let mut rates = HashMap::new();
                let mut best = Best::new(self.wanted.count);
                for (source, from) in first {
                    let Some(entry) = known.entry(&source)? else {
                        continue;
                    };
                    let to = Counters::from(&entry);
                    let rate = Rates::between(from, to, now.since(then)).unwrap_or_default();
                    let packets = match self.wanted.by {
                        By::DropRate => to.dropped.saturating_sub(from.dropped),
                        _ => (to.dropped.saturating_sub(from.dropped))
                            .saturating_add(to.passed.saturating_sub(from.passed)),
                    };
                    best.offer([packets, to.dropped.saturating_add(to.passed)], source);
                    rates.insert(source, rate);
                }
                self.answer(known, best.into_sources(), &rates)
            }
        }
    }

    fn take_best(&mut self) -> [Best; 2] {
        std::mem::replace(&mut self.best, [Best::new(0), Best::new(0)])
    }

    fn slice(&mut self, known: Known<'_>) -> Result<(), ServiceError> {
        let now = known.datapath.now();
        // Others may have changed the rules since the last slice.
        self.used.forget();
        let entries = known.read(self.sweep.get_or_insert_with(|| known.sweep()), SLICE)?;
        let [best, second] = &mut self.best;
        for (source, entry) in entries {
            let bucket = &entry.bucket;
            match source {
                Source::V4(_) => self.list.tracked_v4 += 1,
                Source::V6(_) => self.list.tracked_v6 += 1,
            }
            if !self.wanted.has(&source) {
                continue;
            }
            self.list.within += 1;
            let measure = match self.wanted.by {
                By::Dropped | By::DropRate => bucket.dropped,
                By::Passed => bucket.passed,
                By::Rate => bucket.passed.saturating_add(bucket.dropped),
                By::Nearness => self.used.share(known.datapath, &entry, now),
            };
            let packets = bucket.passed.saturating_add(bucket.dropped);
            best.offer([measure, packets], source);
            if self.wanted.by == By::Rate {
                // A source that owes something has sent just now.
                second.offer([self.used.share(known.datapath, &entry, now), packets], source);
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        known: Known<'_>,
        sources: Vec<Source>,
        rates: &HashMap<Source, Rates>,
    ) -> Result<Next, ServiceError> {
        let mut list = std::mem::take(&mut self.list);
        for source in sources {
            let (row, tracked) = known.row(&source, rates.get(&source).copied())?;
            // The source may have left meanwhile.
            if tracked {
                list.sources.push(row);
            }
        }
        sort(&mut list.sources, list.by);
        if let Some(others) = self.others.take() {
            let mut drops = others.drops(known.datapath, known.effective, Some(known.events));
            drops.truncate(self.wanted.count);
            list.by_other_rules = drops;
        }
        list.dropped_by = views::dropped_by(known.datapath)?;
        Ok(Next::Done(list))
    }
}

fn counters(
    known: Known<'_>,
    sources: Vec<Source>,
) -> Result<Vec<(Source, Counters)>, ServiceError> {
    let mut read = Vec::with_capacity(sources.len());
    for source in sources {
        if let Some(entry) = known.entry(&source)? {
            read.push((source, Counters::from(&entry)));
        }
    }
    Ok(read)
}
