//! Rules that are in force, and met by nothing.

use limiter_common::wire::RuleCounters;
use limiter_datapath::Observed;
use limiter_rules::Terms;

use super::counted;
use super::reported::Result;
use crate::api::status::Unmet;
use crate::effective::EffectiveSet;
use crate::render::titled;

/// Rules of which the counters are read for each answer: a millisecond or two.
const MOST_RULES: usize = 512;

/// Rules that are named.
const NAMED: usize = 4;

/// Packets that were seen, of all reasons.
pub(crate) fn seen(datapath: &dyn Observed) -> Result<u64> {
    Ok(datapath.reasons()?.iter().map(|tally| tally.packets).sum())
}

/// Rules that limit and have met none of the packets since `before` had been seen. None of a set
/// with more rules than are read for each answer, and where all have met one.
pub(crate) fn unmet(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    before: u64,
) -> Result<Option<Unmet>> {
    if effective.rules.len() > MOST_RULES {
        return Ok(None);
    }
    let mut unmet = Unmet { packets: seen(datapath)?.saturating_sub(before), ..Unmet::default() };
    for of in effective.rules.iter().filter(|of| of.rule.terms != Terms::Unlimited) {
        // Those of a budget are counted by it.
        if matches!(of.rule.terms, Terms::Budget(_)) {
            continue;
        }
        unmet.of += 1;
        if counted::rule(datapath, of)? == RuleCounters::default() {
            unmet.in_all += 1;
            if unmet.rules.len() < NAMED {
                let rule = of.rule.path.to_string();
                unmet.rules.push(titled(Some(&rule), of.rule.called().as_deref()));
            }
        }
    }
    Ok((unmet.in_all > 0).then_some(unmet))
}
