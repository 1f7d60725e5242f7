//! Builds accounts of sources from the maps and the reported events.

use std::collections::{BTreeMap, HashMap, HashSet};

use limiter_common::bucket::Resolved;
use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_datapath::Observed;
use limiter_rules::Selector;
use limiter_rules::compile::RuleId;
use limiter_rules::model::Direction;

use super::account::{Account, Began, Counter, Line, Seen};
use super::counters::Counters;
use super::keys::{self, KeyLine, Whose};
use crate::error::ServiceError;
use crate::events::{Events, Reported};
use crate::rule_sets::effective::EffectiveSet;
use crate::views::{self, CountsEach, Title};

/// The data beside the buckets from which accounts are built, read once for many sources.
pub(crate) struct Ledger<'a> {
    datapath: &'a dyn Observed,
    /// Reported drops that are in no counter.
    reported: HashMap<Source, Vec<Line>>,
    /// Episodes of drops, by source.
    began: HashMap<Source, Vec<Began>>,
    /// Sources with reported drops by rules that are no longer in force.
    in_part: HashSet<Source>,
    tables: Vec<u32>,
    own: Option<u32>,
}

impl<'a> Ledger<'a> {
    /// Reads the reports so far. Without a daemon there are none.
    pub(crate) fn open(
        datapath: &'a dyn Observed,
        effective: &EffectiveSet,
        events: Option<&Events>,
    ) -> Self {
        let mut ledger = Self {
            datapath,
            reported: HashMap::new(),
            began: HashMap::new(),
            in_part: HashSet::new(),
            tables: keys::forms(datapath).into_keys().collect(),
            own: own_table(datapath),
        };
        let mut rules = None;
        for reported in events.into_iter().flat_map(Events::reported) {
            let source = views::of_key(reported.source);
            let counted = match reported.reason() {
                // Dropped before the source has a bucket, or without one.
                Reason::Denied
                | Reason::Banned
                | Reason::Martian
                | Reason::Blocked
                | Reason::TableFull
                | Reason::OverAggregate => Some(false),
                _ => rules
                    .get_or_insert_with(|| Counting::of(datapath, effective))
                    .counts(&reported, &source),
            };
            let episodes = ledger.began.entry(source).or_default();
            episodes.push(began_of(&reported));
            match counted {
                Some(true) => {}
                Some(false) => ledger.reported.entry(source).or_default().push(line_of(reported)),
                None => {
                    ledger.in_part.insert(source);
                }
            }
        }
        ledger
    }

    /// The sources with reported drops that are in no counter, with their number.
    pub(super) fn reported(&self) -> impl Iterator<Item = (&Source, u64)> {
        let sum = |lines: &Vec<Line>| lines.iter().map(|line| line.counters.dropped).sum();
        self.reported.iter().map(move |(source, lines)| (source, sum(lines)))
    }

    /// Their episodes, each with its number.
    pub(super) fn episodes(&self) -> impl Iterator<Item = ((Source, Counter), u64)> {
        self.reported.iter().flat_map(|(source, lines)| {
            lines.iter().map(move |line| ((*source, line.counter), line.counters.dropped))
        })
    }

    /// True if drops of a source were reported that are in no counter.
    pub(super) fn has(&self, source: &Source) -> bool {
        self.reported.contains_key(source)
    }

    /// Builds the account of a source from these keys; `whole` says that it has no others.
    pub(super) fn account(
        &self,
        source: &Source,
        lines: &[KeyLine],
        whole: bool,
    ) -> Result<Account, ServiceError> {
        let mut account = Account {
            seen: Seen { source: true, keys: whole || self.tables.is_empty(), reported: true },
            in_part: self.in_part.contains(source),
            tables: self.tables.clone(),
            own: self.own,
            began: self.began.get(source).cloned().unwrap_or_default(),
            at: self.datapath.now(),
            ..Account::default()
        };
        if let Some(bucket) = self.datapath.bucket(*source)? {
            let slot = Resolved::from_raw(bucket.resolved).slot();
            let limit = self.datapath.limit(slot)?;
            account.lines.push(Line {
                counter: Counter::Source,
                rule: limit.map(|limit| limit.rule),
                direction: Direction::In,
                counters: Counters { passed: bucket.passed, dropped: bucket.dropped },
                since: None,
                title: None,
            });
        }
        for line in lines {
            match line.whose {
                Whose::One(_) => account.lines.push(line.into()),
                Whose::Prefix(net) => account.shared.push((net, line.rule, line.counters)),
            }
        }
        account.lines.extend(self.reported.get(source).into_iter().flatten().cloned());
        account.lines.sort_by_key(|line| line.counter);
        Ok(account)
    }
}

/// The id of the keyed table whose keys are sources, if there is one.
pub(super) fn own_table(datapath: &dyn Observed) -> Option<u32> {
    let ids = &datapath.installed().tables.ids;
    ids.get(&RuleId::of_source(&Selector::Every).form).copied()
}

const fn way(is_out: bool) -> Direction {
    if is_out { Direction::Out } else { Direction::In }
}

fn began_of(reported: &Reported) -> Began {
    let Reported { reason, began, is_out, ref title, .. } = *reported;
    Began { title: title.clone(), reason, direction: way(is_out), at: began }
}

fn line_of(Reported { rule, reason, began, title, dropped, is_out, .. }: Reported) -> Line {
    Line {
        counter: Counter::Reported { rule, reason, is_out, began },
        rule: None,
        direction: way(is_out),
        counters: Counters::dropped(dropped),
        since: None,
        title: title.map(Box::new),
    }
}

/// The rules that have a bucket for each source whose packets they drop.
struct Counting {
    titles: BTreeMap<u32, Title>,
    rules: BTreeMap<u32, CountsEach>,
}

impl Counting {
    fn of(datapath: &dyn Observed, effective: &EffectiveSet) -> Self {
        let titles = views::rule_names(datapath, effective);
        Self { titles, rules: views::counts_each(datapath.installed()) }
    }

    /// Returns true if a bucket of the source includes the reported drops; `None` if that is
    /// unknown.
    fn counts(&self, reported: &Reported, source: &Source) -> Option<bool> {
        // The number may belong to another rule now.
        let rule = |title: &Title| title.rule.clone();
        if self.titles.get(&reported.rule).map(rule) != reported.title.as_ref().map(rule) {
            return None;
        }
        let CountsEach { v4, v6 } = *self.rules.get(&reported.rule)?;
        if matches!(source, Source::V4(_)) { v4 } else { v6 }
    }
}
