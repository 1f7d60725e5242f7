//! The account of one source: every counter that counts only its packets, with one total of them.
//! All answers about sources take their totals and rates from here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use ipnet::IpNet;
use limiter_api::sources::RuleDrops;
use limiter_api::sources::source::Total;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::TableKey;
use limiter_datapath::Observed;
use limiter_rules::Selector;
use limiter_rules::model::Direction;

use super::counters::{Counters, Rates};
use super::keys::{self, KeyLine};
use super::rules::Rules;
use crate::machine::clocks::rfc3339;
use crate::views::{BEFORE_RULES, Title};

/// A counter. Only two readings of the same counter can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    /// The bucket in the source table.
    Source,
    /// The bucket of a key. Table ids are never reused, whatever rules came in between.
    Key(TableKey),
    /// The drops of an episode that events reported; only part of all drops.
    Reported { rule: u32, reason: u8, is_out: bool, began: SystemTime },
}

/// How many drops stand behind one that events report: of those by lists and bans, and of those by
/// rules that do not count every source by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreported {
    pub(super) lists: f64,
    pub(super) others: f64,
}

impl Default for Unreported {
    fn default() -> Self {
        Self { lists: 1.0, others: 1.0 }
    }
}

impl Unreported {
    /// The drops behind one of a counter.
    pub(super) fn of(self, counter: &Counter) -> f64 {
        match counter {
            Counter::Reported { .. } if is_before_rules(counter) => self.lists,
            Counter::Reported { .. } => self.others,
            Counter::Source | Counter::Key(_) => 1.0,
        }
    }
}

/// True for reported drops by lists, bans and `martians`.
pub(super) fn is_before_rules(counter: &Counter) -> bool {
    let Counter::Reported { reason, .. } = counter else { return false };
    BEFORE_RULES.iter().any(|before| before.index() == u32::from(*reason))
}

/// A counter of a source with its reading.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) counter: Counter,
    pub(super) rule: Option<u32>,
    pub(super) direction: Direction,
    pub(super) counters: Counters,
    /// Packets since an earlier reading; `None` if the two cannot be compared.
    pub(super) since: Option<Counters>,
    /// The rule of reported drops, by its title at that time.
    pub(super) title: Option<Box<Title>>,
}

impl Line {
    const fn is_reported(&self) -> bool {
        matches!(self.counter, Counter::Reported { .. })
    }

    /// Packets since the earlier reading, for a rate. The only packet of an episode tells none: it
    /// takes two for a time between them, and forged senders send one each.
    fn for_rate(&self) -> Option<Counters> {
        let is_only = self.is_reported() && self.counters.dropped == 1;
        self.since.map(|since| if is_only { Counters::default() } else { since })
    }
}

impl From<&KeyLine> for Line {
    fn from(KeyLine { key, rule, direction, counters, .. }: &KeyLine) -> Self {
        Self {
            counter: Counter::Key(*key),
            rule: *rule,
            direction: *direction,
            counters: *counters,
            since: None,
            title: None,
        }
    }
}

/// The counters of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// When it was read; zero if it never was.
    pub(super) at: Ticks,
    /// Readings in the order of the counters.
    pub(super) lines: Vec<Line>,
    /// Buckets that count other sources as well.
    pub(super) shared: Vec<(IpNet, Option<u32>, Counters)>,
    pub(super) seen: Seen,
    /// True if some known drops are in no counter.
    pub(super) in_part: bool,
    /// The tables in force that have sources among their keys.
    pub(super) tables: Vec<u32>,
    pub(super) own: Option<u32>,
    /// Time since the earlier reading to compare with; zero without one.
    pub(super) over: Ticks,
    /// Episodes of reported drops, whatever counts them.
    pub(super) began: Vec<Began>,
}

/// The beginning of an episode of drops.
#[derive(Clone, Debug)]
pub(super) struct Began {
    pub(super) title: Option<Title>,
    pub(super) reason: u8,
    pub(super) direction: Direction,
    pub(super) at: SystemTime,
}

/// The counters that a reading covers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// True if the reading covers the bucket in the source table.
    pub(super) source: bool,
    /// True if the reading covers all keys of tables.
    pub(super) keys: bool,
    /// True if the reading covers the reported events.
    pub(super) reported: bool,
}

impl Account {
    /// Returns true if nothing counts the source.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn is_own(&self, counter: &Counter) -> bool {
        match counter {
            Counter::Source => true,
            Counter::Key(key) => self.own == Some(key.table),
            Counter::Reported { .. } => false,
        }
    }

    /// A reading by one pass over all sources and one over keys: the counters of the source's
    /// bucket (as those of its own key if its rule is in a keyed table), and its other keys.
    pub(super) fn earlier(
        datapath: &dyn Observed,
        at: Ticks,
        (own_key, counters): (Option<TableKey>, Option<Counters>),
        lines: &[KeyLine],
        whole: bool,
    ) -> Self {
        let tables = keys::forms(datapath).into_keys().collect();
        let seen = Seen { source: own_key.is_none(), keys: whole, reported: false };
        let mut account = Self { at, seen, tables, ..Self::default() };
        account.lines = lines.iter().map(Line::from).collect();
        let counter = own_key.map_or(Counter::Source, Counter::Key);
        if let Some(counters) = counters
            && account.lines.iter().all(|line| line.counter != counter)
        {
            let (direction, since) = (Direction::In, None);
            account.lines.push(Line {
                counter,
                rule: None,
                direction,
                counters,
                since,
                title: None,
            });
        }
        account.lines.sort_by_key(|line| line.counter);
        account
    }

    /// Returns true if the bucket of the source has no drops and none were reported, but its keys
    /// have some.
    pub(super) fn loses_by_keys(&self) -> bool {
        let dropped = |line: &Line| line.counters.dropped > 0;
        let is_own = |line: &&Line| self.is_own(&line.counter);
        self.lines.iter().any(|line| self.is_own(&line.counter))
            && !self.lines.iter().filter(is_own).any(dropped)
            && !self.lines.iter().any(Line::is_reported)
            && self.lines.iter().any(dropped)
    }

    /// The known keys of the source.
    pub(super) fn keys(&self) -> impl Iterator<Item = &TableKey> {
        self.lines.iter().filter_map(|line| match &line.counter {
            Counter::Key(key) => Some(key),
            _ => None,
        })
    }

    /// The directions in which something counts the source.
    pub(crate) fn directions(&self) -> Vec<Direction> {
        let counts = |way: &Direction| self.lines.iter().any(|line| line.direction == *way);
        Direction::NAMED.into_iter().map(|(_, way)| way).filter(counts).collect()
    }

    /// The total. Drops add up, because each packet was dropped by one rule only; a passed packet
    /// was counted in each table that it was in, but comes in or goes out.
    pub(crate) fn total(&self) -> Total {
        let [comes_in, goes_out, both] = [Direction::In, Direction::Out, Direction::Both]
            .map(|direction| self.total_in(direction).passed);
        let passed = both.max(comes_in.saturating_add(goes_out));
        Total { passed, ..self.total_of(|_| true) }
    }

    /// The total of one direction.
    pub(crate) fn total_in(&self, direction: Direction) -> Total {
        self.total_of(|line| line.direction == direction)
    }

    fn total_of(&self, wanted: impl Fn(&Line) -> bool) -> Total {
        let mut dropped = 0u64;
        let mut passed = Passed::default();
        let (mut reported, mut own) = (false, false);
        for line in self.lines.iter().filter(|line| wanted(line)) {
            dropped = dropped.saturating_add(line.counters.dropped);
            passed.add(&line.counter, line.counters.passed);
            reported |= line.is_reported();
            own |= self.is_own(&line.counter);
        }
        let shared = self.shared.iter().any(|(_, _, counters)| counters.dropped > 0);
        Total {
            passed: passed.most(),
            dropped,
            passed_at_least: !own,
            dropped_at_least: reported || shared || self.in_part || !self.seen.keys,
        }
    }

    /// Computes the packets since an earlier reading, for the counters in both. A direction has no
    /// result if one of its counters started again or disappeared in between, or if it is unknown
    /// when one began.
    pub(crate) fn compare(&mut self, before: &Self) {
        self.over = self.at.since(before.at);
        let has_left = |line: &&Line| !line.is_reported() && self.find(&line.counter).is_none();
        let mut unknown: Vec<Direction> =
            before.lines.iter().filter(has_left).map(|line| line.direction).collect();
        let since: Vec<Option<Counters>> = self
            .lines
            .iter()
            .map(|line| match before.find(&line.counter) {
                Some(before) => line.counters.since(before),
                None => before.knew_of(&line.counter).then_some(line.counters),
            })
            .collect();
        let lines = self.lines.iter().zip(&since).filter(|(_, since)| since.is_none());
        unknown.extend(lines.map(|(line, _)| line.direction));
        for (line, since) in self.lines.iter_mut().zip(since) {
            line.since = since.filter(|_| !unknown.contains(&line.direction));
        }
    }

    /// Takes over the rates of another reading at the same time.
    pub(crate) fn take_rates(&mut self, other: &Self) {
        self.over = other.over;
        let since: Vec<_> =
            self.lines.iter().map(|line| other.line(&line.counter)?.since).collect();
        for (line, since) in self.lines.iter_mut().zip(since) {
            line.since = since;
        }
    }

    /// Returns true if the rates of all counters of the source are known.
    pub(super) fn has_rates(&self) -> bool {
        self.over > Ticks::ZERO && self.lines.iter().all(|line| line.since.is_some())
    }

    /// Packets a second in a direction since the earlier reading; `None` if unknown.
    pub(super) fn rates(&self, direction: Direction) -> Option<Rates> {
        let mut since = Counters::default();
        let mut passed = Passed::default();
        let lines = self.lines.iter().filter(|line| line.direction == direction);
        for line in lines {
            let delta = line.for_rate()?;
            since.dropped = since.dropped.saturating_add(delta.dropped);
            passed.add(&line.counter, delta.passed);
        }
        Rates::of(Counters { passed: passed.most(), ..since }, self.over)
    }

    /// Packets a second that are dropped in a direction, to order sources: what events report of a
    /// source stands for its share of all that lists, or rules that do not count it, drop.
    #[expect(clippy::cast_precision_loss, reason = "only to tell which is more")]
    pub(super) fn estimate(&self, direction: Direction, unreported: Unreported) -> f64 {
        let seconds = self.over.as_nanos() as f64 / 1e9;
        if self.rates(direction).is_none() || seconds <= 0.0 {
            return 0.0;
        }
        let lines = self.lines.iter().filter(|line| line.direction == direction);
        let dropped = lines.map(|line| {
            line.for_rate().map_or(0.0, |since| since.dropped as f64 * unreported.of(&line.counter))
        });
        dropped.sum::<f64>() / seconds
    }

    fn line(&self, counter: &Counter) -> Option<&Line> {
        let found = self.lines.binary_search_by(|line| line.counter.cmp(counter));
        found.ok().and_then(|place| self.lines.get(place))
    }

    fn find(&self, counter: &Counter) -> Option<Counters> {
        self.line(counter).map(|line| line.counters)
    }

    /// Returns true if this reading would include the counter if it existed.
    fn knew_of(&self, counter: &Counter) -> bool {
        match counter {
            Counter::Source => self.seen.source,
            Counter::Reported { .. } => self.seen.reported,
            Counter::Key(key) => self.seen.keys && self.tables.contains(&key.table),
        }
    }

    /// Packets by rule, the rule with the most drops first. The rows without a prefix add up to the
    /// total.
    pub(crate) fn by_rule(&self, rules: &Rules<'_>) -> Vec<RuleDrops> {
        self.rows(rules, None)
    }

    /// The rules that drop packets of the source in a direction, the one that drops most now first.
    pub(crate) fn drops(&self, rules: &Rules<'_>, direction: Direction) -> Vec<RuleDrops> {
        let mut rows = self.rows(rules, Some(direction));
        rows.retain(|row| row.dropped > 0 && row.of.is_none());
        rows
    }

    fn rows(&self, rules: &Rules<'_>, way: Option<Direction>) -> Vec<RuleDrops> {
        let is_wanted = |direction: Direction| way.is_none_or(|way| way == direction);
        let mut sums: BTreeMap<Row, Sum> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| is_wanted(line.direction)) {
            let title = match &line.title {
                Some(title) => Some((**title).clone()),
                None => line.rule.and_then(|rule| rules.title(rule)).cloned(),
            };
            let reason = match line.counter {
                Counter::Reported { reason, .. } => Some(reason),
                _ => None,
            };
            let began = self.began.iter().filter(|began| {
                let counted = u8::try_from(Reason::OverLimit.index()).unwrap_or(u8::MAX);
                is_wanted(began.direction)
                    && began.reason == reason.unwrap_or(counted)
                    && began.title == title
            });
            let began = began.map(|began| began.at).max();
            let sum = sums.entry((reason, None, title)).or_default();
            sum.add(line.counters, line.since, began);
            sum.rules.extend(line.rule);
        }
        let mut before = Sum::default();
        let own =
            sums.iter_mut().filter(|((reason, _, title), _)| reason.is_none() && title.is_some());
        for (_, sum) in own {
            before.take_rest(sum, rules);
        }
        if before.counters != Counters::default() {
            let sum = sums.entry((None, None, None)).or_default();
            sum.add(before.counters, before.since.map(Counters::dropped), None);
        }
        for (net, rule, counters) in &self.shared {
            let title = rule.and_then(|rule| rules.title(rule)).cloned();
            sums.entry((None, Some(*net), title)).or_default().add(*counters, None, None);
        }
        let mut rows: Vec<RuleDrops> =
            sums.into_iter().map(|(of, sum)| row(of, &sum, rules, self.over)).collect();
        let rate = |row: &RuleDrops| row.dropped_per_second.unwrap_or(0.0);
        rows.sort_by(|a, b| {
            let by_count = (b.dropped, b.exact).cmp(&(a.dropped, a.exact));
            rate(b).total_cmp(&rate(a)).then(by_count)
        });
        rows
    }
}

/// The counters of all lines of one row.
#[derive(Debug, Default)]
struct Sum {
    counters: Counters,
    /// Drops since the earlier reading, over the lines for which that is known.
    since: Option<u64>,
    keys: u64,
    began: Option<SystemTime>,
    /// Numbers of the rule.
    rules: BTreeSet<u32>,
}

impl Sum {
    /// Takes from the sum of a rule what is more than that rule counted itself: buckets had it from
    /// rules before.
    fn take_rest(&mut self, sum: &mut Self, rules: &Rules<'_>) {
        let mut counted = Counters::default();
        for rule in &sum.rules {
            let Some(of_rule) = rules.counted(*rule) else { return };
            counted.add(of_rule);
        }
        let Counters { passed, dropped } = sum.counters;
        let rest = Counters {
            passed: passed.saturating_sub(counted.passed),
            dropped: dropped.saturating_sub(counted.dropped),
        };
        if rest == Counters::default() {
            return;
        }
        sum.counters = Counters { passed: passed - rest.passed, dropped: dropped - rest.dropped };
        let since = sum.since;
        sum.since = since.map(|since| since.min(sum.counters.dropped));
        let before = since.zip(sum.since).map(|(all, kept)| all - kept);
        let keys = self.keys;
        self.add(rest, before.map(Counters::dropped), None);
        self.keys = keys;
    }

    fn add(&mut self, counters: Counters, since: Option<Counters>, began: Option<SystemTime>) {
        self.counters.add(counters);
        self.since = match (since, self.since) {
            (Some(since), sum) => Some(sum.unwrap_or(0).saturating_add(since.dropped)),
            (None, sum) => sum,
        };
        self.keys += 1;
        self.began = self.began.max(began);
    }
}

/// Reason of reported drops, prefix of sources counted together, and rule.
type Row = (Option<u8>, Option<IpNet>, Option<Title>);

fn row((reported, net, title): Row, sum: &Sum, rules: &Rules<'_>, over: Ticks) -> RuleDrops {
    let &Sum { counters, since, keys, began, .. } = sum;
    let reason = reported.map_or(Reason::OverLimit, |reason| Reason::from_index(u32::from(reason)));
    let exact = reported.is_none();
    let with_before = exact && title.as_ref().is_some_and(|title| rules.mixes(title));
    let (rule, rule_name) = match title {
        Some(Title { rule, name, .. }) => (Some(rule), name),
        None => (exact.then(|| BEFORE.to_owned()), None),
    };
    RuleDrops {
        rule,
        rule_name,
        of: net.map(|net| Selector::Prefix(net).to_string()),
        reason: reason.name().to_owned(),
        passed: exact.then_some(counters.passed),
        dropped: counters.dropped,
        dropped_per_second: since
            .and_then(|dropped| Rates::of(Counters::dropped(dropped), over))
            .map(|rates| rates.dropped),
        since: began.map(rfc3339),
        keys: exact.then_some(keys).filter(|keys| *keys > 0),
        exact,
        with_before,
    }
}

/// Name of rules under which a bucket was charged and that are no longer in force.
const BEFORE: &str = "(rules before)";

/// Passed packets, by table: a packet in several tables was counted in each.
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
