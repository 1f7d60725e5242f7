//! The account of one source: every counter that counts its packets alone, with one total of them.
//! All answers about sources take their totals and their rates from here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::SystemTime;

use ipnet::IpNet;
use limiter_common::bucket::Resolved;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::TableKey;
use limiter_datapath::Observed;
use limiter_rules::Selector;
use limiter_rules::compile::RuleId;

use super::keys::{self, KeyLine, Whose};
use super::known::{Counters, Rates};
use crate::api::source::{RuleDrops, Total};
use crate::effective::EffectiveSet;
use crate::error::ServiceError;
use crate::events::{Events, Told};
use crate::views::{self, CountsEach, Title};

/// A counter. Two readings of one can be compared, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    /// The bucket in the source table.
    Source,
    /// The bucket of a key. No two tables have had one id, whatever rules came between.
    Key(TableKey),
    /// The drops that events told in an episode: a part of all.
    Told { rule: u32, reason: u8, began: SystemTime },
}

/// A counter of a source, as it was read.
#[derive(Clone, Debug)]
struct Line {
    counter: Counter,
    /// The number of the rule.
    rule: Option<u32>,
    counters: Counters,
    /// The rule of drops that were told, as it was called then.
    title: Option<Box<Title>>,
}

impl Line {
    const fn is_told(&self) -> bool {
        matches!(self.counter, Counter::Told { .. })
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
    lines: Vec<Line>,
    /// Buckets that count other sources as well.
    shared: Vec<(IpNet, Option<u32>, Counters)>,
    /// True if all keys of tables were read.
    whole: bool,
    /// True if it has the bucket in the source table, if there was one.
    source: bool,
    /// True if it has what events had told.
    told: bool,
    /// True if drops of it are known that no counter has.
    in_part: bool,
    /// The tables in force, and which of them has sources as its keys.
    tables: Vec<u32>,
    own: Option<u32>,
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
            Counter::Told { .. } => false,
        }
    }

    /// What a pass over all sources, and one over keys, have read of a source before: the counters of
    /// its bucket, under its own key if its rule is in a keyed table, and its keys.
    pub(super) fn earlier(
        datapath: &dyn Observed,
        (own_key, counters): (Option<TableKey>, Option<Counters>),
        lines: &[KeyLine],
        whole: bool,
    ) -> Self {
        let tables = keys::forms(datapath).into_keys().collect();
        let source = own_key.is_none();
        let mut account = Self { whole, source, tables, ..Self::default() };
        account.lines = lines.iter().map(Line::from).collect();
        let counter = own_key.map_or(Counter::Source, Counter::Key);
        if let Some(counters) = counters
            && account.lines.iter().all(|line| line.counter != counter)
        {
            account.lines.push(Line { counter, rule: None, counters, title: None });
        }
        account.lines.sort_by(|one, other| one.counter.cmp(&other.counter));
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
        let told = self.lines.iter().any(Line::is_told);
        Total {
            passed: passed.most(),
            dropped,
            passed_at_least: !self.has_own(),
            dropped_at_least: told || shared || self.in_part || !self.whole,
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
        let has_left = |line: &Line| !line.is_told() && self.find(&line.counter).is_none();
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
            Counter::Source => self.source,
            Counter::Told { .. } => self.told,
            Counter::Key(key) => self.whole && self.tables.contains(&key.table),
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

    fn rows(
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
                Counter::Told { reason, .. } => Some(reason),
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

/// The reason of drops that were told, the prefix of sources that are counted together, the rule.
type Row = (Option<u8>, Option<IpNet>, Option<Title>);

fn row(((told, net, title), (counters, keys)): (Row, (Counters, u64))) -> RuleDrops {
    let reason = told.map_or(Reason::OverLimit, |reason| Reason::from_index(u32::from(reason)));
    let exact = told.is_none();
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
            Counter::Told { .. } => {}
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

/// All that accounts are made of beside the buckets: read once for many sources.
pub(crate) struct Ledger<'a> {
    datapath: &'a dyn Observed,
    /// Drops that events told and no counter has.
    told: HashMap<Source, Vec<Line>>,
    /// Sources of which drops were told by rules that are not in force any more.
    in_part: HashSet<Source>,
    tables: Vec<u32>,
    own: Option<u32>,
}

impl<'a> Ledger<'a> {
    /// What was told so far. Without a daemon nobody knows that.
    pub(crate) fn open(
        datapath: &'a dyn Observed,
        effective: &EffectiveSet,
        events: Option<&Events>,
    ) -> Self {
        let mut ledger = Self {
            datapath,
            told: HashMap::new(),
            in_part: HashSet::new(),
            tables: keys::forms(datapath).into_keys().collect(),
            own: own_table(datapath),
        };
        let mut rules = None;
        for told in events.into_iter().flat_map(Events::told) {
            let source = views::of_key(told.source);
            let counted = match told.reason() {
                // Dropped before there is a bucket, or without one.
                Reason::Denied
                | Reason::Banned
                | Reason::Martian
                | Reason::Blocked
                | Reason::TableFull
                | Reason::OverAggregate => Some(false),
                _ => rules
                    .get_or_insert_with(|| Counting::of(datapath, effective))
                    .counts(&told, &source),
            };
            match counted {
                Some(true) => {}
                Some(false) => ledger.told.entry(source).or_default().push(line_of(told)),
                None => {
                    ledger.in_part.insert(source);
                }
            }
        }
        ledger
    }

    /// The sources of which drops were told that no counter has, with their number.
    pub(super) fn told(&self) -> impl Iterator<Item = (&Source, u64)> {
        let sum = |lines: &Vec<Line>| lines.iter().map(|line| line.counters.dropped).sum();
        self.told.iter().map(move |(source, lines)| (source, sum(lines)))
    }

    /// Those drops by source and rule.
    pub(super) fn told_by_rule(&self) -> impl Iterator<Item = (&Source, RuleDrops)> {
        self.told.iter().flat_map(|(source, lines)| {
            let account = Account { lines: lines.clone(), ..Account::default() };
            account.rows(&BTreeMap::new(), |_| true).into_iter().map(move |row| (source, row))
        })
    }

    /// The account of a source with these keys: `whole` if it has no others.
    pub(super) fn account(
        &self,
        source: &Source,
        lines: &[KeyLine],
        whole: bool,
    ) -> Result<Account, ServiceError> {
        let mut account = Account {
            whole: whole || self.tables.is_empty(),
            source: true,
            told: true,
            in_part: self.in_part.contains(source),
            tables: self.tables.clone(),
            own: self.own,
            ..Account::default()
        };
        if let Some(bucket) = self.datapath.bucket(source)? {
            let slot = Resolved::from_raw(bucket.resolved).slot();
            let limit = self.datapath.limit(slot)?;
            account.lines.push(Line {
                counter: Counter::Source,
                rule: limit.map(|limit| limit.rule),
                counters: Counters { passed: bucket.passed, dropped: bucket.dropped },
                title: None,
            });
        }
        for line in lines {
            match line.whose {
                Whose::One(_) => account.lines.push(line.into()),
                Whose::Prefix(net) => account.shared.push((net, line.rule, line.counters)),
            }
        }
        account.lines.extend(self.told.get(source).into_iter().flatten().cloned());
        account.lines.sort_by(|one, other| one.counter.cmp(&other.counter));
        Ok(account)
    }
}

/// The id of the keyed table whose keys are sources, if there is one.
pub(super) fn own_table(datapath: &dyn Observed) -> Option<u32> {
    let ids = &datapath.installed().tables.ids;
    ids.get(&RuleId::of_source(&Selector::Every).form).copied()
}

fn line_of(Told { rule, reason, began, title, dropped, .. }: Told) -> Line {
    Line {
        counter: Counter::Told { rule, reason, began },
        rule: None,
        counters: Counters { passed: 0, dropped },
        title: title.map(Box::new),
    }
}

/// Which rules have a bucket of each source that they drop packets of.
struct Counting {
    titles: BTreeMap<u32, Title>,
    rules: BTreeMap<u32, CountsEach>,
}

impl Counting {
    fn of(datapath: &dyn Observed, effective: &EffectiveSet) -> Self {
        let titles = views::rule_names(datapath, effective);
        Self { titles, rules: views::counts_each(datapath.installed()) }
    }

    /// True if a bucket of the source has what was told; none if that is not known.
    fn counts(&self, told: &Told, source: &Source) -> Option<bool> {
        // The number may be another rule's by now.
        let rule = |title: &Title| title.rule.clone();
        if self.titles.get(&told.rule).map(rule) != told.title.as_ref().map(rule) {
            return None;
        }
        let CountsEach { v4, v6 } = *self.rules.get(&told.rule)?;
        if matches!(source, Source::V4(_)) { v4 } else { v6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Ticks = Ticks::from_nanos(1_000_000_000);

    fn key(table: u32, port: u16) -> Counter {
        Counter::Key(TableKey { table, destination_port: port, ..TableKey::EMPTY })
    }

    /// An account whose source has its rule in the table 9, of all keys.
    fn account(lines: &[(Counter, u64, u64)]) -> Account {
        let line = |(counter, passed, dropped): &(Counter, u64, u64)| Line {
            counter: *counter,
            rule: None,
            counters: Counters { passed: *passed, dropped: *dropped },
            title: None,
        };
        let mut lines: Vec<Line> = lines.iter().map(line).collect();
        lines.sort_by(|one, other| one.counter.cmp(&other.counter));
        let (tables, own) = (vec![7, 8, 9], Some(9));
        Account { lines, whole: true, source: true, told: true, tables, own, ..Account::default() }
    }

    fn rates(from: &Account, to: &Account) -> Option<(f64, f64)> {
        to.rates(from, SECOND).map(|rates| (rates.passed, rates.dropped))
    }

    #[test]
    fn drops_add_up_and_what_passed_several_tables_counts_once() {
        let all =
            [(Counter::Source, 10, 1), (key(7, 1), 4, 20), (key(7, 2), 5, 0), (key(8, 1), 9, 300)];
        let expected = Total { passed: 10, dropped: 321, ..Total::default() };
        assert_eq!(account(&all).total(), expected);
        let without = account(&all[1..]).total();
        assert_eq!((without.passed, without.passed_at_least), (9, true));
        let told = Counter::Told { rule: 1, reason: 14, began: SystemTime::UNIX_EPOCH };
        let total = account(&[(key(9, 0), 3, 4), (told, 0, 5)]).total();
        assert_eq!((total.passed, total.dropped), (3, 9));
        assert_eq!((total.passed_at_least, total.dropped_at_least), (false, true));
        let in_part = Account { whole: false, ..account(&all) };
        assert!(in_part.total().dropped_at_least);
    }

    #[test]
    fn a_rate_is_of_counters_that_both_readings_have() {
        let from = account(&[(Counter::Source, 10, 5), (key(7, 1), 4, 20)]);
        let to = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 50)]);
        assert_eq!(rates(&from, &to), Some((3.0, 30.0)));
        assert_eq!(to.rates(&from, Ticks::ZERO), None, "no time");
        // A key that came in between has counted from nothing.
        let came = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 20), (key(8, 1), 0, 7)]);
        assert_eq!(rates(&from, &came), Some((3.0, 7.0)));
        // Not so if its table was not in force, or not all keys were read.
        let other = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 20), (key(6, 1), 0, 7)]);
        assert_eq!(rates(&from, &other), None);
        assert_eq!(rates(&Account { whole: false, ..from.clone() }, &came), None);
        // One that left, and one that left and came again.
        let left = account(&[(Counter::Source, 13, 5)]);
        assert_eq!(rates(&from, &left), None);
        let again = account(&[(Counter::Source, 13, 5), (key(7, 1), 1, 2)]);
        assert_eq!(rates(&from, &again), None);
        assert_eq!(rates(&again, &account(&[(key(7, 1), 1, 3)])), None, "the bucket left");
        let new = account(&[(Counter::Source, 2, 1)]);
        assert_eq!(rates(&account(&[]), &new), Some((2.0, 1.0)), "a new source");
        assert_eq!(rates(&Account { source: false, ..account(&[]) }, &new), None);
    }

    #[test]
    fn an_episode_is_a_counter_of_its_own() {
        let began = |second| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
        let told = |second| Counter::Told { rule: 1, reason: 14, began: began(second) };
        let from = account(&[(told(1), 0, 100)]);
        assert_eq!(rates(&from, &account(&[(told(1), 0, 130)])), Some((0.0, 30.0)));
        // Another one began; the first is forgotten.
        assert_eq!(rates(&from, &account(&[(told(2), 0, 20)])), Some((0.0, 20.0)));
    }
}
