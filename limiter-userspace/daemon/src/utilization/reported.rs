//! The findings as an answer.

use std::collections::{BTreeMap, HashMap};

use limiter_api::utilization::{Fit, Of, RuleUtilization, Utilization};
use limiter_common::time::Ticks;
use limiter_datapath::Observed;

use super::judge::{HALF as TO_HALF, NEAR, judge};
use super::{Watch, Watched};
use crate::error::ServiceError;
use crate::rule_sets::effective::EffectiveSet;
use crate::views;

/// Findings about the followed buckets of one rule.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sent: u64,
    above_50: u64,
    above_80: u64,
    lost: u64,
    lost_most: u64,
    /// The largest upper bound.
    at_most: f64,
}

impl Watch {
    /// The utilization by rule in force, the rules that need attention first. Empty before the
    /// first round.
    pub(crate) fn reported(
        &self,
        datapath: &dyn Observed,
        effective: &EffectiveSet,
    ) -> Result<Utilization, ServiceError> {
        let Some(done) = &self.done else { return Ok(Utilization::default()) };
        let [apart, before] = self.apart;
        Ok(Utilization {
            read_seconds_ago: seconds(datapath.now().since(done.began)),
            apart_seconds: seconds(apart.max(before)),
            buckets: done.buckets,
            one_of: 1 << self.level,
            left_out: self.left_out,
            rules: self.rules(datapath, effective, |_| true)?,
        })
    }

    /// A line for each rule that is too tight.
    pub(crate) fn too_tight(
        &self,
        datapath: &dyn Observed,
        effective: &EffectiveSet,
    ) -> Result<Vec<String>, ServiceError> {
        let tight = self.rules(datapath, effective, |rule| rule.answer == Fit::TooTight)?;
        Ok(tight.iter().map(|rule| format!("{}: {}", rule.title(), rule.evidence)).collect())
    }

    /// The rules that `wanted` selects.
    fn rules(
        &self,
        datapath: &dyn Observed,
        effective: &EffectiveSet,
        wanted: impl Fn(&RuleUtilization) -> bool,
    ) -> Result<Vec<RuleUtilization>, ServiceError> {
        let Some(done) = &self.done else { return Ok(Vec::new()) };
        let sums = self.sums();
        let mut found = BTreeMap::new();
        for (number, tally) in &done.tallies {
            let Some(watched) = self.rules.get(number) else { continue };
            let sum = sums.get(number).copied().unwrap_or_default();
            let mut rule = self.rule(datapath, *number, watched, sum)?;
            rule.tracked = tally.tracked;
            rule.tenths = tally.tenths.to_vec();
            if wanted(&rule) {
                found.insert(*number, rule);
            }
        }
        // Names are resolved last: there may be many rules, of which few are wanted.
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let titles = views::rule_names(datapath, effective);
        let max_frame = datapath.max_frame();
        for (number, in_force) in views::numbered(datapath, effective) {
            if let Some(rule) = found.get_mut(&number) {
                let terms = &in_force.rule.terms;
                rule.limit = views::describe(terms, max_frame).known(in_force.known()).limit;
                rule.shadow = terms.is_shadow();
            }
        }
        let mut rules: Vec<RuleUtilization> = found
            .into_iter()
            .filter_map(|(number, rule)| {
                let title = titles.get(&number)?;
                Some(RuleUtilization {
                    rule: title.rule.clone(),
                    rule_name: title.name.clone(),
                    ..rule
                })
            })
            .collect();
        rules.sort_by(|a, b| (a.answer, &a.rule).cmp(&(b.answer, &b.rule)));
        Ok(rules)
    }

    /// Sums over the followed buckets, by rule.
    fn sums(&self) -> HashMap<u32, Sum> {
        let mut sums: HashMap<u32, Sum> = HashMap::new();
        for followed in self.followed.values() {
            let rule = followed.rule();
            if self.rules.get(&rule).is_none_or(|watched| watched.place != followed.place()) {
                continue;
            }
            let window = followed.window();
            let sum = sums.entry(rule).or_default();
            let (lost, seen) = (window.lost > 0, f64::from(window.seen));
            sum.sent += u64::from(window.sent > 0);
            sum.above_50 += u64::from(lost || seen >= TO_HALF);
            sum.above_80 += u64::from(lost || seen >= NEAR);
            sum.lost += u64::from(lost);
            sum.lost_most += u64::from(lost && window.lost >= window.sent - window.lost);
            sum.at_most = sum.at_most.max(window.at_most.into());
        }
        sums
    }

    /// The findings about a rule, without its name.
    fn rule(
        &self,
        datapath: &dyn Observed,
        number: u32,
        watched: &Watched,
        sum: Sum,
    ) -> Result<RuleUtilization, ServiceError> {
        let Sum { sent, above_50, above_80, lost, lost_most, at_most } = sum;
        let now = datapath.now();
        let counters = datapath.rule_counters(number)?;
        let [_, before] = watched.counters;
        let [_, began] = self.halves.unwrap_or([now; 2]);
        let in_window = |now: u64, before: u64| now.saturating_sub(before);
        let mut rule = RuleUtilization {
            of: watched.of,
            window_seconds: seconds(now.since(began.max(watched.since))),
            sent,
            above_50,
            above_80,
            lost,
            lost_most,
            at_most: (watched.of != Of::Budget && !watched.leased && sent > 0).then_some(at_most),
            passed: in_window(counters.passed.packets, before.passed.packets),
            dropped: in_window(counters.dropped.packets, before.dropped.packets),
            shadowed: in_window(counters.shadowed.packets, before.shadowed.packets),
            marked: in_window(counters.marked.packets, before.marked.packets),
            dropped_share: share(counters.dropped.packets, counters.passed.packets),
            ..RuleUtilization::default()
        };
        (rule.answer, rule.evidence) = judge(&rule, watched.leased);
        Ok(rule)
    }
}

/// Share of dropped packets, if there were any packets.
#[expect(clippy::cast_precision_loss, reason = "a share is reported to a few digits")]
fn share(dropped: u64, passed: u64) -> Option<f64> {
    let all = dropped.saturating_add(passed);
    (all > 0).then(|| dropped as f64 / all as f64)
}

const fn seconds(time: Ticks) -> u64 {
    time.as_nanos() / 1_000_000_000
}
