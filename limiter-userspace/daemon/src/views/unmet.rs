//! Rules in force that no packet has met.

use limiter_api::render::titled;
use limiter_api::status::Unmet;
use limiter_common::wire::RuleCounters;
use limiter_datapath::Observed;
use limiter_rules::Terms;

use super::counted;
use super::reported::Result;
use crate::rule_sets::effective::EffectiveSet;

/// Most rules whose counters are read for an answer: a millisecond or two.
const MOST_RULES: usize = 512;

/// Most rules that are named.
const NAMED: usize = 4;

/// Number of packets seen, for all reasons.
pub(crate) fn seen(datapath: &dyn Observed) -> Result<u64> {
    Ok(datapath.reasons()?.iter().map(|tally| tally.packets).sum())
}

/// Limiting rules that no packet has met since `before` packets had been seen. `None` for a set
/// with more rules than are read for an answer, and if every rule has met a packet.
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
        // The budget counts the packets of its rules.
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
