//! Joins the requested records into episodes, and notes how far the log reaches.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use limiter_api::events::Episode;
use limiter_api::render::would_drop;
use limiter_api::sources::reach::{Gap as ReportedGap, Reach};

use super::record::{Drops, Record};
use crate::events::filter::Filter;
use crate::machine::clocks::rfc3339;

/// Most episodes in an answer; further ones are only counted.
const MOST: usize = 1000;

/// Most gaps that are listed one by one.
const MOST_GAPS: usize = 16;

/// Key of an episode: source, rule, reason and begin.
type Key = (String, Option<String>, String, SystemTime);

/// The part of an episode within the requested time.
#[derive(Clone, Debug)]
struct Part {
    drops: Drops,
    /// Rank in the order of the last drops.
    touched: u64,
    goes_on: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Found {
    filter: Filter,
    parts: BTreeMap<Key, Part>,
    touched: u64,
    left_out: u64,
    /// Drops in the requested time that belong to no episode.
    unnamed: u64,
    gaps: Vec<(SystemTime, SystemTime)>,
    more_gaps: u64,
    /// True if the requested rule was seen, at any time.
    rule_seen: bool,
    /// Earliest moment in the log.
    from: Option<SystemTime>,
    pub(super) damaged: u64,
    /// Message about unreadable parts.
    pub(super) trouble: Option<String>,
}

impl Found {
    pub(crate) fn new(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    pub(in crate::events) fn take(&mut self, record: Record) {
        let times = record.times();
        if self.from.is_none_or(|from| times.0 < from) && !is_absence(&record) {
            self.from = Some(times.0);
        }
        self.rule_seen |= match &record {
            Record::Drops(of) => self.filter.has_rule(of.rule.as_deref(), of.rule_name.as_deref()),
            Record::Others(of) => self.filter.has_rule(of.rule.as_deref(), of.rule_name.as_deref()),
            Record::Mark(_) | Record::Gap(_) => false,
        };
        if !self.filter.meets(times) {
            return;
        }
        match record {
            Record::Drops(drops) => self.add(drops, false),
            Record::Others(of) => {
                let meant = of.rule.is_none()
                    || self.filter.has_rule(of.rule.as_deref(), of.rule_name.as_deref());
                if meant {
                    self.unnamed = self.unnamed.saturating_add(of.sampled);
                }
            }
            Record::Mark(of) => {
                self.unnamed = self.unnamed.saturating_add(of.unnamed);
                if of.absent {
                    self.gap(times);
                }
            }
            Record::Gap(_) => self.gap(times),
        }
    }

    pub(in crate::events) fn note_rule(&mut self, rule: &str, name: Option<&str>) {
        self.rule_seen |= self.filter.has_rule(Some(rule), name);
    }

    /// Adds drops that are not in the log yet, or never will be.
    pub(in crate::events) fn add_live(&mut self, drops: Drops, goes_on: bool) {
        if self.filter.meets((drops.from, drops.to)) {
            self.add(drops, goes_on);
        }
    }

    /// Adds an ended episode from its reported form.
    pub(in crate::events) fn add_ended(&mut self, episode: &Episode) {
        let Ok(began) = humantime::parse_rfc3339(&episode.began) else { return };
        let drops = Drops {
            source: episode.source.clone(),
            rule: episode.rule.clone(),
            rule_name: episode.rule_name.clone(),
            reason: episode.reason.clone(),
            began,
            from: began,
            to: began.checked_add(Duration::from_secs(episode.seconds)).unwrap_or(began),
            sampled: episode.sampled,
            last: episode.last.clone(),
        };
        self.add_live(drops, false);
    }

    /// Notes that an episode goes on, if it was found.
    pub(in crate::events) fn goes_on(&mut self, drops: &Drops) {
        if let Some(part) = self.parts.get_mut(&key(drops)) {
            part.goes_on = true;
        }
    }

    /// Adds drops of a time that were not reported.
    pub(in crate::events) fn add_unnamed(&mut self, from: SystemTime, to: SystemTime, count: u64) {
        if self.filter.meets((from, to)) {
            self.unnamed = self.unnamed.saturating_add(count);
        }
    }

    /// Notes a time for which there is no log.
    pub(in crate::events) fn gap(&mut self, times: (SystemTime, SystemTime)) {
        if self.gaps.len() < MOST_GAPS {
            self.gaps.push(times);
        } else {
            self.more_gaps += 1;
        }
    }

    fn add(&mut self, drops: Drops, goes_on: bool) {
        if !self.filter.has(&drops.source, drops.rule.as_deref(), drops.rule_name.as_deref()) {
            return;
        }
        self.touched += 1;
        let touched = self.touched;
        match self.parts.get_mut(&key(&drops)) {
            Some(part) => {
                let before = &mut part.drops;
                before.sampled = before.sampled.saturating_add(drops.sampled);
                before.from = before.from.min(drops.from);
                if drops.to >= before.to {
                    (before.to, before.last) = (drops.to, drops.last);
                }
                (part.touched, part.goes_on) = (touched, part.goes_on || goes_on);
            }
            None => {
                self.parts.insert(key(&drops), Part { drops, touched, goes_on });
            }
        }
        if self.parts.len() > 2 * MOST {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let mut order: Vec<_> = self.parts.values().map(|part| part.touched).collect();
        order.sort_unstable();
        let Some(first) = order.len().checked_sub(MOST).and_then(|at| order.get(at)) else {
            return;
        };
        let before = self.parts.len();
        self.parts.retain(|_, part| part.touched >= *first);
        let gone = u64::try_from(before - self.parts.len()).unwrap_or(u64::MAX);
        self.left_out = self.left_out.saturating_add(gone);
    }

    /// Returns the episodes, current ones and the latest first, and the span that the answer
    /// covers. `to` is now; `begin` is the start of the span if there is no log.
    pub(in crate::events) fn reported(
        mut self,
        to: SystemTime,
        begin: SystemTime,
        trouble: Option<String>,
    ) -> (Vec<Episode>, Reach) {
        self.forget();
        let mut parts: Vec<Part> = self.parts.into_values().collect();
        parts.sort_by(|a, b| {
            (b.goes_on, b.drops.to, b.touched).cmp(&(a.goes_on, a.drops.to, a.touched))
        });
        let episodes = parts.into_iter().map(|part| episode(part.drops, !part.goes_on)).collect();
        let reach = Reach {
            since: self.filter.since.map(rfc3339),
            until: self.filter.until.map(rfc3339),
            from: rfc3339(self.from.unwrap_or(begin)),
            to: rfc3339(to),
            unnamed: self.unnamed,
            gaps: self
                .gaps
                .into_iter()
                .map(|(from, to)| ReportedGap { from: rfc3339(from), to: rfc3339(to) })
                .collect(),
            more_gaps: self.more_gaps,
            unknown_rule: self.filter.names_rule() && !self.rule_seen,
            damaged: self.damaged,
            left_out: self.left_out,
            trouble: self.trouble.or(trouble),
        };
        (episodes, reach)
    }
}

fn key(drops: &Drops) -> Key {
    (drops.source.clone(), drops.rule.clone(), drops.reason.clone(), drops.began)
}

/// Returns true for a mark about the time before a start, of which nothing is known.
const fn is_absence(record: &Record) -> bool {
    matches!(record, Record::Mark(mark) if mark.absent)
}

/// The reported form of the drops.
pub(in crate::events) fn episode(drops: Drops, ended: bool) -> Episode {
    let length = drops.to.duration_since(drops.from).unwrap_or_default();
    Episode {
        source: drops.source,
        rule: drops.rule,
        rule_name: drops.rule_name,
        would_drop: would_drop(&drops.reason),
        reason: drops.reason,
        began: rfc3339(drops.from),
        seconds: length.as_secs(),
        sampled: drops.sampled,
        ended,
        last: drops.last,
    }
}
