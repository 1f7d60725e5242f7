//! A pass over all sources, in slices: `GET /v1/sources`.

use std::collections::HashMap;
use std::time::Duration;

use limiter_api::sources::{By, SourceList, SourceRow};
use limiter_common::source::Source;
use limiter_datapath::Sweep;

use super::account::{Account, Unreported};
use super::accounts::Accounts;
use super::counters::Counters;
use super::headline::{AllPackets, FIRST};
use super::known::Known;
use super::merit::{Best, Used, measure};
use super::sums::Sums;
use super::wanted::Wanted;
use crate::error::ServiceError;
use crate::views;

/// Sources that are read before others have their turn: a few milliseconds.
const SLICE: usize = 4096;

/// Sources whose rates are measured, of each kind, because the pass itself yields only counters.
const CANDIDATES: usize = 1024;

/// Time between the two readings that give a rate.
const APART: Duration = Duration::from_millis(250);

/// The step after a slice.
#[derive(Debug)]
pub(crate) enum Next {
    Slice,
    /// Another slice after this time.
    After(Duration),
    Done(SourceList),
}

/// The current part of a pass.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each view, and no list of them")]
enum Stage {
    /// Reads all keys, for the sums by source.
    Keys,
    /// Reads all sources; `None` before the first slice.
    Sources(Option<Sweep>),
    /// Reads the accounts of the candidates; if rates are wanted, beside the first reading.
    Accounts(Accounts, Option<Read>),
}

/// The accounts of the candidates with the sums of all packets.
#[derive(Debug)]
struct Read {
    accounts: HashMap<Source, Account>,
    all: AllPackets,
}

#[derive(Debug)]
pub(crate) struct Reading {
    wanted: Wanted,
    stage: Stage,
    sums: Sums,
    list: SourceList,
    used: Used,
    best: [Best; 2],
    /// Number of sources with dropped packets.
    losing: u64,
}

impl Reading {
    pub(crate) fn new(wanted: Wanted) -> Self {
        let room = if wanted.by.is_rate() { CANDIDATES } else { wanted.count };
        // Only the order by rate needs two kinds of candidates.
        let second = if wanted.by == By::Rate { CANDIDATES } else { 0 };
        Self {
            wanted,
            stage: Stage::Keys,
            sums: Sums::default(),
            list: SourceList { by: wanted.by, ..SourceList::default() },
            used: Used::default(),
            best: [Best::new(room), Best::new(second)],
            losing: 0,
        }
    }

    pub(crate) fn step(&mut self, known: Known<'_>) -> Result<Next, ServiceError> {
        match &mut self.stage {
            Stage::Keys => {
                if self.sums.step(known.datapath, &self.wanted)? {
                    self.sums.add_reported(&known.ledger(), &self.wanted);
                    self.stage = Stage::Sources(None);
                }
                Ok(Next::Slice)
            }
            Stage::Sources(Some(sweep)) if sweep.is_done() => {
                self.stage = Stage::Accounts(self.candidates(), None);
                Ok(Next::Slice)
            }
            Stage::Sources(_) => {
                self.slice(known)?;
                Ok(Next::Slice)
            }
            Stage::Accounts(accounts, first) => {
                if !accounts.step(known.datapath)? {
                    return Ok(Next::Slice);
                }
                let ledger = known.ledger();
                let read = Read {
                    all: AllPackets::read(known.datapath, &ledger)?,
                    accounts: std::mem::take(accounts).take(&ledger)?,
                };
                if self.wanted.by.is_rate() && first.is_none() {
                    *accounts = Accounts::of(read.accounts.keys().copied());
                    *first = Some(read);
                    return Ok(Next::After(APART));
                }
                let first = first.take();
                self.answer(known, read, first)
            }
        }
    }

    /// The sources that may be in the answer.
    fn candidates(&mut self) -> Accounts {
        let [best, second] = &mut self.best;
        for (source, counters) in self.sums.rest() {
            self.list.within += 1;
            self.losing += u64::from(counters.dropped > 0);
            offer(best, self.wanted.by, *source, counters, 0);
            if self.wanted.by == By::Rate {
                second.offer([0, counters.dropped, counters.passed], *source);
            }
        }
        let best = std::mem::replace(&mut self.best, [Best::new(0), Best::new(0)]);
        Accounts::of(best.into_iter().flat_map(Best::into_sources))
    }

    fn slice(&mut self, known: Known<'_>) -> Result<(), ServiceError> {
        let Stage::Sources(sweep) = &mut self.stage else { return Ok(()) };
        let now = known.datapath.now();
        // The rules may have changed since the last slice.
        self.used.forget();
        let entries = known.read(sweep.get_or_insert_with(|| known.sweep()), SLICE)?;
        let [best, second] = &mut self.best;
        for (source, entry) in entries {
            match source {
                Source::V4(_) => self.list.tracked_v4 += 1,
                Source::V6(_) => self.list.tracked_v6 += 1,
            }
            if !self.wanted.has(&source) {
                continue;
            }
            self.list.within += 1;
            // The sums already include the keyed table of sources.
            let own = if entry.keyed { Counters::default() } else { Counters::from(&entry) };
            let counters = self.sums.with(&source, own);
            self.losing += u64::from(counters.dropped > 0);
            let used = match self.wanted.by {
                By::Utilization | By::Rate => self.used.share(known.datapath, &entry, now),
                _ => 0,
            };
            offer(best, self.wanted.by, source, counters, used);
            if self.wanted.by == By::Rate {
                // A source with a debt has sent just now.
                second.offer([used, counters.dropped, counters.passed], source);
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        known: Known<'_>,
        mut read: Read,
        first: Option<Read>,
    ) -> Result<Next, ServiceError> {
        let mut list = std::mem::take(&mut self.list);
        let mut unreported = Unreported::default();
        if let Some(first) = first {
            for (source, account) in &mut read.accounts {
                if let Some(before) = first.accounts.get(source) {
                    account.compare(before);
                }
            }
            if let Some(dropped_now) = read.all.since(&first.all) {
                unreported = dropped_now.unreported;
                let most = Wanted { by: By::DropRate, count: FIRST, ..self.wanted };
                let rows = rows(known, &read, &most, unreported)?;
                list.headline = Some(dropped_now.headline(known, &rows));
            }
        }
        list.sources = rows(known, &read, &self.wanted, unreported)?;
        list.lose_nothing = list.within.saturating_sub(self.losing);
        list.dropped_by = views::dropped_by(known.datapath)?;
        Ok(Next::Done(list))
    }
}

/// The first rows of the sources that were read.
fn rows(
    known: Known<'_>,
    Read { accounts, .. }: &Read,
    wanted: &Wanted,
    unreported: Unreported,
) -> Result<Vec<SourceRow>, ServiceError> {
    let mut best = Best::new(wanted.count);
    // The source may have been evicted in the meantime.
    for (source, account) in accounts.iter().filter(|(_, account)| !account.is_empty()) {
        best.offer(measure(wanted.by, account, unreported), *source);
    }
    let first = best.into_sources();
    let first = first.iter().filter_map(|source| Some((*source, accounts.get(source)?)));
    known.first_rows(first.collect(), wanted, unreported)
}

fn offer(best: &mut Best, by: By, source: Source, counters: Counters, used: u64) {
    let Counters { passed, dropped } = counters;
    let first = match by {
        By::Dropped | By::DropRate => dropped,
        By::Passed => passed,
        By::Rate => passed.saturating_add(dropped),
        By::Utilization => used,
    };
    best.offer([first, dropped, passed], source);
}
