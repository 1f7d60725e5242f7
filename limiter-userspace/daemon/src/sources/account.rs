//! The account of one source: every counter that counts its packets alone, with one total of them.
//! All answers about sources take their totals and their rates from here.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ipnet::IpNet;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::TableKey;
use limiter_datapath::Observed;
use limiter_rules::Selector;

use super::counters::{Counters, Rates};
use super::keys::{self, KeyLine};
use crate::api::source::{RuleDrops, Total};
use crate::views::Title;

/// A counter. Two readings of one can be compared, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    /// The bucket in the source table.
    Source,
    /// The bucket of a key. No two tables have had one id, whatever rules came between.
    Key(TableKey),
    /// The drops that events reported in an episode: a part of all.
    Reported { rule: u32, reason: u8, began: SystemTime },
}

/// A counter of a source, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) counter: Counter,
    /// The number of the rule.
    pub(super) rule: Option<u32>,
    pub(super) counters: Counters,
    /// The rule of drops that were reported, as it was called then.
    pub(super) title: Option<Box<Title>>,
}

impl Line {
    const fn is_reported(&self) -> bool {
        matches!(self.counter, Counter::Reported { .. })
    }
}

impl From<&KeyLine> for Line {
    fn from(KeyLine { key, rule, counters, .. }: &KeyLine) -> Self {
        Self { counter: Counter::Key(*key), rule: *rule, counters: *counters, title: None }
    }
}

/// The counters of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// In the order of the counters.
    pub(super) lines: Vec<Line>,
    /// Buckets that count other sources as well.
    pub(super) shared: Vec<(IpNet, Option<u32>, Counters)>,
    pub(super) seen: Seen,
    /// True if drops of it are known that no counter has.
    pub(super) in_part: bool,
    /// The tables in force, and which of them has sources as its keys.
    pub(super) tables: Vec<u32>,
    pub(super) own: Option<u32>,
}

/// The counters that a reading has, where there were any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// True if it has the bucket in the source table.
    pub(super) source: bool,
    /// True if it has all keys of tables.
    pub(super) keys: bool,
    /// True if it has what events had reported.
    pub(super) reported: bool,
}

impl Account {
    /// True if nothing counts the source.
    pub(super) const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// True if a bucket stands for all packets of the source.
    fn has_own(&self) -> bool {
        self.lines.iter().any(|line| self.is_own(&line.counter))
    }

    fn is_own(&self, counter: &Counter) -> bool {
        match counter {
            Counter::Source => true,
            Counter::Key(key) => self.own == Some(key.table),
            Counter::Reported { .. } => false,
        }
    }

    /// A reading by a pass over all sources and one over keys: the counters of the source's bucket,
    /// under its own key if its rule is in a keyed table, and its other keys.
    pub(super) fn earlier(
        datapath: &dyn Observed,
        (own_key, counters): (Option<TableKey>, Option<Counters>),
        lines: &[KeyLine],
        whole: bool,
    ) -> Self {
        let tables = keys::forms(datapath).into_keys().collect();
        let seen = Seen { source: own_key.is_none(), keys: whole, reported: false };
        let mut account = Self { seen, tables, ..Self::default() };
        account.lines = lines.iter().map(Line::from).collect();
        let counter = own_key.map_or(Counter::Source, Counter::Key);
        if let Some(counters) = counters
            && account.lines.iter().all(|line| line.counter != counter)
        {
            account.lines.push(Line { counter, rule: None, counters, title: None });
        }
        account.lines.sort_by_key(|line| line.counter);
        account
    }

    /// True if what is no rule on the source alone has dropped of it.
    pub(super) fn has_others(&self) -> bool {
        self.lines.iter().any(|line| line.counters.dropped > 0 && !self.is_own(&line.counter))
    }

    /// The keys of it that are known.
    pub(super) fn keys(&self) -> impl Iterator<Item = &TableKey> {
        self.lines.iter().filter_map(|line| match &line.counter {
            Counter::Key(key) => Some(key),
            _ => None,
        })
    }

    /// The one total: each packet was dropped by one rule, so drops add up; a packet that passed
    /// was counted in each table that it was in.
    pub(crate) fn total(&self) -> Total {
        let mut dropped = 0u64;
        let mut passed = Passed::default();
        for Line { counter, counters, .. } in &self.lines {
            dropped = dropped.saturating_add(counters.dropped);
            passed.add(counter, counters.passed);
        }
        let shared = self.shared.iter().any(|(_, _, counters)| counters.dropped > 0);
        let reported = self.lines.iter().any(Line::is_reported);
        Total {
            passed: passed.most(),
            dropped,
            passed_at_least: !self.has_own(),
            dropped_at_least: reported || shared || self.in_part || !self.seen.keys,
        }
    }

    /// Packets a second since an earlier reading, by counters that both have; none where one began
    /// anew or left in between, and where it is not known when one began.
    pub(super) fn rates(&self, before: &Self, time: Ticks) -> Option<Rates> {
        let mut since = Counters::default();
        let mut passed = Passed::default();
        for Line { counter, counters, .. } in &self.lines {
            let delta = match before.find(counter) {
                Some(before) => counters.since(before)?,
                None if before.knew_of(counter) => *counters,
                None => return None,
            };
            since.dropped = since.dropped.saturating_add(delta.dropped);
            passed.add(counter, delta.passed);
        }
        let has_left = |line: &Line| !line.is_reported() && self.find(&line.counter).is_none();
        if before.lines.iter().any(has_left) {
            return None;
        }
        Rates::of(Counters { passed: passed.most(), ..since }, time)
    }

    fn find(&self, counter: &Counter) -> Option<Counters> {
        let found = self.lines.binary_search_by(|line| line.counter.cmp(counter));
        found.ok().and_then(|place| self.lines.get(place)).map(|line| line.counters)
    }

    /// True if this reading would have had the counter, had there been one.
    fn knew_of(&self, counter: &Counter) -> bool {
        match counter {
            Counter::Source => self.seen.source,
            Counter::Reported { .. } => self.seen.reported,
            Counter::Key(key) => self.seen.keys && self.tables.contains(&key.table),
        }
    }

    /// Packets by rule, those that the most were dropped by first. Together, and without those of a
    /// prefix, they are the total.
    pub(crate) fn by_rule(&self, titles: &BTreeMap<u32, Title>) -> Vec<RuleDrops> {
        self.rows(titles, |_| true)
    }

    /// Drops by what is not a rule on the source alone.
    pub(super) fn by_others(&self, titles: &BTreeMap<u32, Title>) -> Vec<RuleDrops> {
        let mut rows = self.rows(titles, |counter| !self.is_own(counter));
        rows.retain(|row| row.dropped > 0 && row.of.is_none());
        rows
    }

    pub(super) fn rows(
        &self,
        titles: &BTreeMap<u32, Title>,
        wanted: impl Fn(&Counter) -> bool,
    ) -> Vec<RuleDrops> {
        let mut sums: BTreeMap<Row, (Counters, u64)> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| wanted(&line.counter)) {
            let title = match &line.title {
                Some(title) => Some((**title).clone()),
                None => line.rule.and_then(|rule| titles.get(&rule)).cloned(),
            };
            let reason = match line.counter {
                Counter::Reported { reason, .. } => Some(reason),
                _ => None,
            };
            let (sum, keys) = sums.entry((reason, None, title)).or_default();
            sum.add(line.counters);
            *keys += 1;
        }
        for (net, rule, counters) in &self.shared {
            let title = rule.and_then(|rule| titles.get(&rule)).cloned();
            let (sum, keys) = sums.entry((None, Some(*net), title)).or_default();
            sum.add(*counters);
            *keys += 1;
        }
        let mut rows: Vec<RuleDrops> = sums.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.dropped, row.exact)));
        rows
    }
}

/// The reason of drops that were reported, the prefix of sources that are counted together, the
/// rule.
type Row = (Option<u8>, Option<IpNet>, Option<Title>);

fn row(((reported, net, title), (counters, keys)): (Row, (Counters, u64))) -> RuleDrops {
    let reason = reported.map_or(Reason::OverLimit, |reason| Reason::from_index(u32::from(reason)));
    let exact = reported.is_none();
    let (rule, rule_name) = match title {
        Some(Title { rule, name }) => (Some(rule), name),
        None => (exact.then(|| BEFORE.to_owned()), None),
    };
    RuleDrops {
        rule,
        rule_name,
        of: net.map(|net| Selector::Prefix(net).to_string()),
        reason: reason.name().to_owned(),
        passed: exact.then_some(counters.passed),
        dropped: counters.dropped,
        keys: exact.then_some(keys),
        exact,
    }
}

/// The name of rules that a bucket was charged under and that are not in force any more.
const BEFORE: &str = "(rules before)";

/// Packets that passed, by table: one that is in several was counted in each.
#[derive(Debug, Default)]
pub(super) struct Passed(Vec<(Option<u32>, u64)>);

impl Passed {
    fn add(&mut self, counter: &Counter, packets: u64) {
        match counter {
            Counter::Source => self.add_in(None, packets),
            Counter::Key(key) => self.add_in(Some(key.table), packets),
            Counter::Reported { .. } => {}
        }
    }

    pub(super) fn add_in(&mut self, table: Option<u32>, packets: u64) {
        match self.0.iter_mut().find(|(at, _)| *at == table) {
            Some((_, sum)) => *sum = sum.saturating_add(packets),
            None => self.0.push((table, packets)),
        }
    }

    pub(super) fn most(&self) -> u64 {
        self.0.iter().map(|(_, packets)| *packets).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
