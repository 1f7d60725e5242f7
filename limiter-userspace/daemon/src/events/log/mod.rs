//! The log of events on disk: which source was dropped when, by which rule and why, across
//! restarts.
//!
//! Episodes are written in parts: soon after their first drop, then once a minute, and at their
//! end. Drops for which the [`Budget`] has no room are summed up by rule and reason. A [`Mark`]
//! proves that the log was kept for a time, and gives the number of drops of that time that were
//! not reported: so an answer can state its gaps.

mod budget;
mod files;
mod found;
mod record;
mod scan;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use limiter_common::wire::EventBudget;

use super::filter::Filter;
use crate::machine::clocks::Clocks;
use budget::Budget;
use files::Files;
use record::{Gap, Mark, Others, Record};
use writer::{Lines, Writer};

pub(crate) use found::Found;
pub(crate) use record::Drops;
pub(super) use writer::{Answer, Health};

/// Time between two parts of an episode, and between two sums.
pub(super) const PART: Duration = Duration::from_mins(1);

/// Time between two marks while all drops are reported.
const QUIET: Duration = Duration::from_mins(5);

/// Most rules and reasons that are summed up separately.
const MOST_SUMS: usize = 64;

/// Most bytes of lines that wait for the thread.
const PENDING: usize = 128 << 10;

/// Rule, its name, and the reason of summed-up drops.
type SumKey = (Option<String>, Option<String>, Option<String>);

#[derive(Debug)]
pub(super) struct Log {
    writer: Writer,
    budget: Budget,
    sums: BTreeMap<SumKey, Others>,
    /// Time at which sums were last written.
    summed: SystemTime,
    marked: Marked,
    pending: Lines,
    /// Lines given up before the thread had them.
    lost: u64,
    /// The part of these since the thread last took lines.
    gap: Option<Gap>,
}

#[derive(Clone, Copy, Debug)]
struct Marked {
    at: SystemTime,
    /// Drops not reported until then.
    unreported: u64,
}

impl Log {
    /// Opens the log in a directory, with at most `most` bytes, and returns the records at its end.
    pub(super) fn open(
        directory: &Path,
        most: u64,
        counts: EventBudget,
        clocks: Clocks,
    ) -> std::io::Result<(Self, Found)> {
        let mut end = Found::new(Filter::default());
        let (mut last, mut kept) = (None, None);
        // A log that cannot be read may still be writable.
        let records = scan::end(directory).unwrap_or_else(|error| {
            tracing::warn!(%error, "the log of events of before cannot be read");
            Vec::new()
        });
        for record in records {
            last = last.max(Some(record.times().1));
            match record {
                Record::Mark(mark) => kept = Some(mark),
                record => end.take(record),
            }
        }
        let writer = Writer::start(Files::new(directory.to_owned(), most))?;
        let at = clocks.wall;
        let mut log = Self {
            writer,
            budget: Budget::new(most),
            sums: BTreeMap::new(),
            summed: at,
            marked: Marked { at, unreported: unreported(counts) },
            pending: Lines { text: String::new(), count: 0, from: at },
            lost: 0,
            gap: None,
        };
        let counted = counted(counts);
        let absent = last.is_some();
        let unnamed = match kept {
            // Fewer counted drops than before mean that the maps were recreated in between.
            Some(Mark { counted: before, .. }) => counted.checked_sub(before).unwrap_or(counted),
            None => 0,
        };
        let from = last.unwrap_or(at).min(at);
        log.mark(Mark { from, to: at, unnamed, counted, absent }, clocks);
        log.send();
        Ok((log, end))
    }

    /// Writes parts of episodes, and everything else that is due.
    pub(super) fn keep(&mut self, mut parts: Vec<Drops>, counts: EventBudget, clocks: Clocks) {
        if self.pending.count == 0
            && let Some(gap) = self.gap.take()
        {
            self.always(&Record::Gap(Gap { to: clocks.wall, ..gap }), clocks);
        }
        // The sources that lost most are named first.
        parts.sort_by(|a, b| (b.sampled, &a.source).cmp(&(a.sampled, &b.source)));
        for drops in parts {
            self.name(drops, clocks);
        }
        if is_due(self.summed, clocks.wall, PART) {
            self.sum_up(clocks);
        }
        let unnamed = unreported(counts).saturating_sub(self.marked.unreported);
        if is_due(self.marked.at, clocks.wall, if unnamed > 0 { PART } else { QUIET }) {
            self.mark_until_now(counts, clocks);
        }
        self.send();
    }

    /// Ends the log with the last parts.
    pub(super) fn end(mut self, parts: Vec<Drops>, counts: EventBudget, clocks: Clocks) {
        self.keep(parts, counts, clocks);
        self.sum_up(clocks);
        self.mark_until_now(counts, clocks);
        self.send();
        self.writer.wait();
    }

    pub(super) fn health(&self) -> Health {
        let health = self.writer.health();
        Health { lost: health.lost.saturating_add(self.lost), ..health }
    }

    /// Starts a search of the log; returns `None` if the disk does not keep up.
    pub(super) fn read(&self, filter: Filter) -> Option<Answer> {
        if self.pending.count > 0 { None } else { self.writer.read(filter) }
    }

    /// Adds drops that are not on disk yet and belong to no episode.
    pub(super) fn add_unnamed(&self, found: &mut Found, counts: EventBudget, to: SystemTime) {
        for sum in self.sums.values() {
            found.take(Record::Others(sum.clone()));
        }
        let unnamed = unreported(counts).saturating_sub(self.marked.unreported);
        found.add_unnamed(self.marked.at, to, unnamed);
        if let Some(gap) = &self.gap {
            found.take(Record::Gap(Gap { to, ..gap.clone() }));
        }
    }

    fn name(&mut self, drops: Drops, clocks: Clocks) {
        let record = Record::Drops(drops);
        let Some(line) = record.line() else { return };
        if self.budget.name(clocks.now.as_nanos(), line.len()) {
            self.add(&line, record.times().0);
        } else if let Record::Drops(drops) = record {
            self.sum(drops);
        }
    }

    fn sum(&mut self, drops: Drops) {
        let Drops { rule, rule_name, reason, from, to, sampled, .. } = drops;
        let mut key = (rule, rule_name, Some(reason));
        if self.sums.len() >= MOST_SUMS && !self.sums.contains_key(&key) {
            key = (None, None, None);
        }
        let sum = self.sums.entry(key).or_insert_with_key(|(rule, name, reason)| Others {
            rule: rule.clone(),
            rule_name: name.clone(),
            reason: reason.clone(),
            from,
            to,
            sampled: 0,
        });
        sum.sampled = sum.sampled.saturating_add(sampled);
        (sum.from, sum.to) = (sum.from.min(from), sum.to.max(to));
    }

    /// Writes the sums; joins those without room into one.
    fn sum_up(&mut self, clocks: Clocks) {
        self.summed = clocks.wall;
        let mut rest: Option<Others> = None;
        for sum in std::mem::take(&mut self.sums).into_values() {
            let record = Record::Others(sum);
            let Some(line) = record.line() else { continue };
            if self.budget.sum(clocks.now.as_nanos(), line.len()) {
                self.add(&line, record.times().0);
            } else if let Record::Others(sum) = record {
                let all = rest.get_or_insert_with(|| Others {
                    rule: None,
                    rule_name: None,
                    reason: None,
                    sampled: 0,
                    ..sum.clone()
                });
                all.sampled = all.sampled.saturating_add(sum.sampled);
                (all.from, all.to) = (all.from.min(sum.from), all.to.max(sum.to));
            }
        }
        if let Some(rest) = rest {
            self.always(&Record::Others(rest), clocks);
        }
    }

    fn mark_until_now(&mut self, counts: EventBudget, clocks: Clocks) {
        let mark = Mark {
            from: self.marked.at,
            to: clocks.wall,
            unnamed: unreported(counts).saturating_sub(self.marked.unreported),
            counted: counted(counts),
            absent: false,
        };
        self.marked = Marked { at: clocks.wall, unreported: unreported(counts) };
        self.mark(mark, clocks);
    }

    fn mark(&mut self, mark: Mark, clocks: Clocks) {
        self.always(&Record::Mark(mark), clocks);
    }

    fn always(&mut self, record: &Record, clocks: Clocks) {
        let Some(line) = record.line() else { return };
        self.budget.always(clocks.now.as_nanos(), line.len());
        self.add(&line, record.times().0);
    }

    fn add(&mut self, line: &str, from: SystemTime) {
        if self.pending.text.len().saturating_add(line.len()) > PENDING {
            self.lost = self.lost.saturating_add(1);
            let gap = self.gap.get_or_insert(Gap { from, to: from, lines: 0 });
            (gap.from, gap.lines) = (gap.from.min(from), gap.lines + 1);
            return;
        }
        self.pending.from =
            if self.pending.count == 0 { from } else { self.pending.from.min(from) };
        self.pending.text.push_str(line);
        self.pending.count += 1;
    }

    /// Passes the pending lines to the thread; without any, lets it retry a failed write.
    fn send(&mut self) {
        if self.pending.count == 0 && self.writer.health().trouble.is_none() {
            return;
        }
        let none = Lines { text: String::new(), count: 0, from: self.pending.from };
        let lines = std::mem::replace(&mut self.pending, none);
        if let Err(lines) = self.writer.write(lines) {
            self.pending = lines;
        }
    }
}

/// Drops that the program counted without reporting them.
const fn unreported(counts: EventBudget) -> u64 {
    counts.over_budget.saturating_add(counts.lost)
}

/// All drops that the program counted.
const fn counted(counts: EventBudget) -> u64 {
    unreported(counts).saturating_add(counts.sent)
}

/// Returns true if `time` has passed by the wall clock, or if the clock was set back.
fn is_due(since: SystemTime, now: SystemTime, time: Duration) -> bool {
    now.duration_since(since).is_ok_and(|passed| passed >= time) || now < since
}
