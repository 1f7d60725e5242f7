//! Past events: keeps the log on disk and searches it.

use std::path::PathBuf;

use limiter_api::events::Events as ReportedEvents;
use limiter_common::time::Ticks;
use limiter_datapath::Datapath;
use tokio::sync::oneshot::error::TryRecvError;

use super::episodes::{Key, Open};
use super::filter::Filter;
use super::log::{Answer, Drops, Found, Health, Log, PART};
use super::reported::{reason, sample, source};
use super::{Events, MOST_ENDED};
use crate::error::ServiceError;
use crate::machine::clocks::Clocks;
use crate::rule_sets::effective::EffectiveSet;
use crate::views::{self, Title};

/// Message of a daemon without a log on disk.
const NO_LOG: &str = "there is no log on disk (`run --event-log-size 0`): this is from memory";

impl Events {
    /// Begins to keep the log in a directory, and reads the latest records there.
    pub(crate) fn keep_log(
        &mut self,
        datapath: &dyn Datapath,
        directory: PathBuf,
        bytes: u64,
    ) -> Result<(), ServiceError> {
        self.wanted = Some((directory, bytes));
        self.open_log(datapath)
    }

    fn open_log(&mut self, datapath: &dyn Datapath) -> Result<(), ServiceError> {
        let (None, Some((directory, bytes))) = (&self.log, &self.wanted) else { return Ok(()) };
        let (counts, clocks) = (datapath.event_counts()?, Clocks::of(datapath));
        let (log, before) = Log::open(directory, *bytes, counts, clocks)
            .map_err(|error| ServiceError::EventLog(error.to_string()))?;
        self.log = Some(log);
        let (episodes, _) = before.reported(clocks.wall, clocks.wall, None);
        self.ended.extend(episodes.into_iter().take(MOST_ENDED).map(|episode| (None, episode)));
        Ok(())
    }

    /// Writes what is due to the log; an error says why the log is incomplete at present.
    pub(crate) fn keep(&mut self, datapath: &dyn Datapath) -> Result<(), ServiceError> {
        let clocks = Clocks::of(datapath);
        let parts = self.parts(datapath, clocks, false);
        self.open_log(datapath)?;
        let Some(log) = &mut self.log else { return Ok(()) };
        log.keep(parts, datapath.event_counts()?, clocks);
        match log.health().trouble {
            Some(trouble) => Err(ServiceError::EventLog(trouble)),
            None => Ok(()),
        }
    }

    /// Ends the log after writing everything known so far.
    pub(crate) fn end_log(&mut self, datapath: &dyn Datapath) -> Result<(), ServiceError> {
        let (counts, clocks) = (datapath.event_counts()?, Clocks::of(datapath));
        let parts = self.parts(datapath, clocks, true);
        self.wanted = None;
        if let Some(log) = self.log.take() {
            log.end(parts, counts, clocks);
        }
        Ok(())
    }

    /// Parts of episodes that the log does not have.
    fn parts(&mut self, datapath: &dyn Datapath, clocks: Clocks, all: bool) -> Vec<Drops> {
        let parts = self.episodes.parts(clocks.now, PART, all);
        parts.iter().map(|(key, open)| unkept(key, open, datapath, clocks)).collect()
    }

    /// State of the log, if there is one.
    pub(crate) fn log_health(&self) -> Option<Health> {
        self.log.as_ref().map(Log::health)
    }

    /// Starts a search.
    pub(crate) fn search(
        &self,
        filter: &Filter,
        datapath: &dyn Datapath,
    ) -> Result<Search, ServiceError> {
        let clocks = Clocks::of(datapath);
        let open = self.episodes.open();
        let live = open.iter().map(|(key, open)| unkept(key, open, datapath, clocks)).collect();
        let Some(log) = &self.log else {
            let mut found = Found::new(filter.clone());
            for (key, open) in open {
                found.add_live(whole(&key, open, datapath, clocks), true);
            }
            self.ended.iter().for_each(|(_, episode)| found.add_ended(episode));
            return Ok(Search { under_way: None, found: Some(found), live: Vec::new() });
        };
        let under_way = log.read(filter.clone()).ok_or(ServiceError::EventLogBusy)?;
        Ok(Search { under_way: Some(under_way), found: None, live })
    }

    /// Builds the answer to a search after the log was read.
    pub(crate) fn found(
        &self,
        mut found: Found,
        live: Vec<Drops>,
        datapath: &dyn Datapath,
        effective: &EffectiveSet,
    ) -> Result<ReportedEvents, ServiceError> {
        for Title { rule, name, .. } in views::rule_names(datapath, effective).values() {
            found.note_rule(rule, name.as_deref());
        }
        let now = Clocks::of(datapath).wall;
        let counts = datapath.event_counts()?;
        for drops in live {
            if drops.sampled > 0 {
                found.add_live(drops, true);
            } else {
                found.goes_on(&drops);
            }
        }
        let trouble = match &self.log {
            Some(log) => {
                log.add_unnamed(&mut found, counts, now);
                log.health().trouble
            }
            None => Some(NO_LOG.to_owned()),
        };
        let (episodes, reach) = found.reported(now, self.began, trouble);
        Ok(ReportedEvents { episodes, counts: self.counts(datapath)?, reach: Some(reach) })
    }
}

/// The part of an episode that the log does not have, which may be empty.
fn unkept(key: &Key, open: &Open, datapath: &dyn Datapath, clocks: Clocks) -> Drops {
    Drops {
        from: clocks.at(open.unkept.from),
        to: clocks.at(open.unkept.to),
        sampled: open.unkept.sampled,
        ..whole(key, open, datapath, clocks)
    }
}

fn whole(key: &Key, open: &Open, datapath: &dyn Datapath, clocks: Clocks) -> Drops {
    Drops {
        source: source(key),
        rule: open.rule.as_ref().map(|title| title.rule.clone()),
        rule_name: open.rule.as_ref().and_then(|title| title.name.clone()),
        reason: reason(key.reason),
        began: open.began,
        from: open.began,
        to: clocks.at(Ticks::new(open.last.time)),
        sampled: open.sampled,
        last: sample(&open.last, datapath),
    }
}

/// A search of the log.
#[derive(Debug)]
pub(crate) struct Search {
    under_way: Option<Answer>,
    found: Option<Found>,
    /// Parts of current episodes at the begin of the search; the log has none of them.
    live: Vec<Drops>,
}

impl Search {
    /// Returns the records found once the whole log was read; `None` before that.
    pub(crate) fn step(&mut self) -> Option<Result<(Found, Vec<Drops>), ServiceError>> {
        let found = match (self.found.take(), &mut self.under_way) {
            (Some(found), _) => found,
            (None, Some(under_way)) => match under_way.try_recv() {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => return Some(Err(ServiceError::EventLog(error.to_string()))),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Closed) => return Some(Err(ServiceError::EventLogBusy)),
            },
            (None, None) => return Some(Err(ServiceError::EventLogBusy)),
        };
        Some(Ok((found, std::mem::take(&mut self.live))))
    }
}
