//! The rules in force, with what they did.

use limiter_common::wire::RuleCounters;

use super::described::{Described, describe, of_limits};
use super::{Result, counted};
use crate::control::api::{LimitEntry, Limits, Origin};
use crate::daemon::datapath::Datapath;
use crate::daemon::layers::EffectiveSet;
use crate::rules::model;
use crate::rules::model::{Meter, RateLimit, RuleLimit};
use crate::rules::plan::{BANS, DEFAULT_BANS, REPLIES};

pub(in crate::daemon) fn limits(
    datapath: &dyn Datapath,
    effective: &EffectiveSet,
) -> Result<Limits> {
    let max_frame = datapath.max_frame();
    let mut limits = Vec::with_capacity(effective.len());
    for (selector, in_force) in &effective.rules {
        let rule = &in_force.rule;
        let counters = counted::source(datapath, selector)?;
        limits.push(LimitEntry {
            name: rule.name.clone(),
            origin: in_force.origin,
            shadow: rule.action.is_shadow(),
            ..entry(selector.to_string(), describe(&rule.action.terms(), max_frame), counters)
        });
    }
    for rule in &effective.keyed {
        let counters = counted::keyed(datapath, rule)?;
        limits.push(LimitEntry {
            name: rule.name.clone(),
            shadow: rule.terms.limits().is_some_and(|limits| limits.shadow),
            label: rule.label.clone(),
            ..entry(rule.path.to_string(), describe(&rule.terms, max_frame), counters)
        });
    }
    let mut budgets = Vec::new();
    for budget in &effective.budgets {
        if let Some(counters) = counted::budget(datapath, &budget.name)? {
            let described = of_limits(&budget.limits, max_frame);
            let shadow = budget.limits.shadow;
            budgets.push(LimitEntry { shadow, ..entry(budget.name.clone(), described, counters) });
        }
    }
    let own = [
        ("(replies)", REPLIES, effective.replies),
        ("(bans)", BANS, Some(effective.bans.unwrap_or(DEFAULT_BANS))),
    ];
    for (shown, name, rate) in own {
        if let (Some(rate), Some(counters)) = (rate, counted::budget(datapath, name)?) {
            let described = of_limits(&bucket(rate), max_frame);
            budgets.push(entry(shown.to_owned(), described, counters));
        }
    }
    let (generation, warnings) = (datapath.generation(), effective.warnings.clone());
    Ok(Limits { generation, limits, budgets, warnings })
}

fn bucket(rate: RateLimit) -> model::Limits {
    let limits = vec![RuleLimit::hard(Meter::TokenBucket(rate))];
    model::Limits::new(limits)
}

/// A rule of the rule file without a name, that is in force.
fn entry(source: String, described: Described, counters: RuleCounters) -> LimitEntry {
    let Described { limit, burst, count, effective_per_second, limits, action, budget } = described;
    LimitEntry {
        source,
        name: None,
        origin: Origin::File,
        limit,
        burst,
        count,
        effective_per_second,
        shadow: false,
        passed: counters.passed.into(),
        dropped: counters.dropped.into(),
        shadowed: counters.shadowed.into(),
        marked: counters.marked.into(),
        limits,
        action,
        budget,
        label: None,
    }
}
