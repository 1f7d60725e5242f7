//! Changes each limit of a rule set to another algorithm.

use std::sync::Arc;
use std::time::Duration;

use limiter_rules::RuleSet;
use limiter_rules::model::{Budget, LimitList, Limits, Meter, Rule, RuleLimit, Terms};

/// Slots of a sliding window if the rule gives none.
const SLOTS: u8 = 4;

/// Changes a meter to an algorithm, with the same number and window.
type Change = fn(&Meter) -> Meter;

/// The algorithms, with their names in rule files. Settings other than number and window are taken
/// from a limit that has them; otherwise the burst is the number, the backlog is zero, and there
/// are four slots.
const ALGORITHMS: [(&str, Change); 6] = [
    ("token_bucket", |meter| match meter {
        Meter::TokenBucket(_) => *meter,
        other => {
            let quota = other.quota();
            Meter::TokenBucket(quota.with_burst(quota.requests_per_unit))
        }
    }),
    ("leaky_bucket", |meter| match meter {
        Meter::LeakyBucket { .. } => *meter,
        other => Meter::LeakyBucket { quota: other.quota(), backlog: Duration::ZERO },
    }),
    ("fixed_window", |meter| Meter::FixedWindow(meter.quota())),
    ("sliding_log", |meter| Meter::SlidingLog(meter.quota())),
    ("sliding_counter", |meter| Meter::SlidingCounter(meter.quota())),
    ("sliding_slots", |meter| match meter {
        Meter::SlidingSlots { .. } => *meter,
        other => Meter::SlidingSlots { quota: other.quota(), slots: SLOTS, strict: false },
    }),
];

/// The rule set in every algorithm, with the algorithm's name. Some may be rejected when they are
/// compiled: a log holds few packets and no bytes.
pub fn in_every_algorithm(set: &RuleSet) -> Vec<(&'static str, RuleSet)> {
    ALGORITHMS.into_iter().map(|(name, change)| (name, changed(set, change))).collect()
}

fn changed(set: &RuleSet, change: Change) -> RuleSet {
    let rules = set.rules.iter().map(|rule| {
        let terms = match &rule.terms {
            Terms::Limits(limits) => Terms::Limits(of_limits(limits, change)),
            other => other.clone(),
        };
        Arc::new(Rule { terms, ..Rule::clone(rule) })
    });
    let budgets = set.budgets.iter().map(|budget| {
        let limits = of_limits(&budget.limits, change);
        Budget { name: budget.name.clone(), limits }
    });
    RuleSet { rules: rules.collect(), budgets: budgets.collect(), ..set.clone() }
}

fn of_limits(limits: &Limits, change: Change) -> Limits {
    let list: Vec<RuleLimit> = limits
        .limits
        .iter()
        .map(|limit| RuleLimit { meter: change(&limit.meter), ..limit })
        .collect();
    Limits { limits: LimitList::from(list), ..limits.clone() }
}
