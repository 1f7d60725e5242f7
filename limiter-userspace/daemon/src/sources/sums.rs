//! The counters of all keys, added up by source: for the order of sources, and for drops by rule.

use std::collections::{BTreeMap, HashMap};

use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_datapath::Observed;
use limiter_rules::Selector;

use super::account::Passed;
use super::counters::Counters;
use super::keys::{KeyPass, SLICE, Whose};
use super::known::address;
use super::ledger::{Ledger, own_table};
use super::wanted::Wanted;
use crate::api::source::RuleDrops;
use crate::api::sources::OtherDrops;
use crate::error::ServiceError;
use crate::views::Title;

/// The counters of one source but for those of its bucket in the source table.
#[derive(Debug, Default)]
pub(super) struct Sum {
    dropped: u64,
    passed: Passed,
    /// True once the source was met in a table of sources.
    met: bool,
}

impl Sum {
    const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// A pass over all keys.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pass: KeyPass,
    of: HashMap<Source, Sum>,
    /// Drops by rules on other keys, each with the sources and the number of keys.
    others: BTreeMap<(u32, Selector), (Counters, u64)>,
}

impl Sums {
    /// Reads on; says whether all was read.
    pub(super) fn step(
        &mut self,
        datapath: &dyn Observed,
        wanted: &Wanted,
    ) -> Result<bool, ServiceError> {
        let own = own_table(datapath);
        for line in self.pass.read(datapath, SLICE)? {
            let selector = match line.whose {
                Whose::One(source) => {
                    if !wanted.has(&source) {
                        continue;
                    }
                    let sum = self.of.entry(source).or_default();
                    sum.dropped = sum.dropped.saturating_add(line.counters.dropped);
                    sum.passed.add_in(Some(line.key.table), line.counters.passed);
                    Selector::address(address(&source))
                }
                Whose::Prefix(net) => {
                    let selector = Selector::Prefix(net);
                    if !wanted.overlaps(&selector) {
                        continue;
                    }
                    selector
                }
            };
            let is_other = own != Some(line.key.table) && line.counters.dropped > 0;
            if let Some(rule) = line.rule.filter(|_| is_other) {
                let (sum, keys) = self.others.entry((rule, selector)).or_default();
                sum.add(line.counters);
                *keys += 1;
            }
        }
        Ok(self.pass.is_done())
    }

    /// Adds the drops that were reported and that no counter has.
    pub(super) fn add_reported(&mut self, ledger: &Ledger<'_>, wanted: &Wanted) {
        for (source, dropped) in ledger.reported().filter(|(source, _)| wanted.has(source)) {
            let sum = self.of.entry(*source).or_default();
            sum.dropped = sum.dropped.saturating_add(dropped);
        }
    }

    /// The counters of a source, with those of its bucket in the source table.
    pub(super) fn with(&mut self, source: &Source, own: Counters) -> Counters {
        let Some(sum) = self.of.get_mut(source) else { return own };
        sum.met = true;
        Counters {
            passed: own.passed.max(sum.passed.most()),
            dropped: own.dropped.saturating_add(sum.dropped()),
        }
    }

    /// The sources that have no bucket in a table of sources.
    pub(super) fn rest(&self) -> impl Iterator<Item = (&Source, Counters)> {
        let counters = |sum: &Sum| Counters { passed: sum.passed.most(), dropped: sum.dropped() };
        self.of.iter().filter(|(_, sum)| !sum.met).map(move |(at, sum)| (at, counters(sum)))
    }

    /// Drops by other rules, the most first.
    pub(super) fn others(
        self,
        titles: &BTreeMap<u32, Title>,
        ledger: &Ledger<'_>,
        wanted: &Wanted,
    ) -> Vec<OtherDrops> {
        let exact = self.others.into_iter().filter_map(|((rule, selector), (sum, keys))| {
            let Title { rule, name } = titles.get(&rule)?.clone();
            let prefix = (!selector.is_source()).then(|| selector.to_string());
            let drops = RuleDrops {
                rule: Some(rule),
                rule_name: name,
                of: prefix,
                reason: Reason::OverLimit.name().to_owned(),
                passed: Some(sum.passed),
                dropped: sum.dropped,
                keys: Some(keys),
                exact: true,
            };
            Some(OtherDrops { source: selector.to_string(), drops })
        });
        let mut rows: Vec<OtherDrops> = exact.collect();
        let reported = ledger.reported_by_rule().filter(|(source, _)| wanted.has(source));
        rows.extend(reported.map(|(source, drops)| OtherDrops {
            source: Selector::address(address(source)).to_string(),
            drops,
        }));
        wanted.first(rows)
    }
}
