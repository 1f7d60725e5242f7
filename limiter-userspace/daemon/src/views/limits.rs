//! The rules in force with their counters.

use std::sync::Arc;

use limiter_api::limits::{LimitEntry, Origin};
use limiter_common::wire::RuleCounters;
use limiter_datapath::Observed;
use limiter_rules::compile::{BANS, DEFAULT_BANS, REPLIES};
use limiter_rules::model;
use limiter_rules::read_back::Known;

use super::census::Census;
use super::counted;
use super::described::{Described, describe, of_limits};
use super::reported::{Reported, Result};
use crate::control::Step;
use crate::control::parts::Parts;
use crate::rule_sets::effective::{Effective, EffectiveSet};
use crate::rule_sets::limit_ends;

/// `GET /v1/limits`, sent in parts: the rules of one rule set, whatever comes into force in the
/// meantime.
#[derive(Debug)]
pub(crate) struct LimitsText {
    census: Census,
    parts: Parts,
    stage: Stage,
    max_frame: u64,
    cluster: Option<u64>,
    budgets: Vec<LimitEntry>,
    /// Number of items of this stage that were reported.
    reported: usize,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Counting,
    Rules,
    Budgets,
    Warnings,
    Done,
}

impl LimitsText {
    /// Continues this stage; returns true if a part is ready, and false if the stage has ended.
    fn report(&mut self) -> Result<bool> {
        let Self { census, parts, max_frame, cluster, budgets, reported, .. } = self;
        match self.stage {
            Stage::Counting | Stage::Done => {}
            Stage::Rules => {
                for (in_force, counters) in census.rules(*reported) {
                    parts.item(&of_rule(in_force, counters, *max_frame, *cluster))?;
                    *reported += 1;
                    if parts.is_part() {
                        return Ok(true);
                    }
                }
                parts.close_array();
                parts.open_array("budgets")?;
                self.stage = Stage::Budgets;
            }
            Stage::Budgets => {
                for entry in budgets.iter().skip(*reported) {
                    parts.item(entry)?;
                    *reported += 1;
                    if parts.is_part() {
                        return Ok(true);
                    }
                }
                parts.close_array();
                parts.open_array("warnings")?;
                self.stage = Stage::Warnings;
            }
            Stage::Warnings => {
                for warning in census.effective().warnings.iter().skip(*reported) {
                    parts.item(warning)?;
                    *reported += 1;
                    if parts.is_part() {
                        return Ok(true);
                    }
                }
                parts.close_array();
                parts.member("unknown", &[""; 0])?;
                parts.end();
                self.stage = Stage::Done;
            }
        }
        self.reported = 0;
        Ok(false)
    }
}

impl Reported for LimitsText {
    fn over(datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Self {
        Self {
            census: Census::new(datapath, effective),
            parts: Parts::default(),
            stage: Stage::Counting,
            max_frame: datapath.max_frame(),
            cluster: effective.cluster,
            budgets: Vec::new(),
            reported: 0,
        }
    }

    fn step_of(&mut self, datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Result<Step> {
        if matches!(self.stage, Stage::Counting) {
            if !self.census.step(datapath, effective)? {
                return Ok(Step::Again);
            }
            self.budgets = budgets(datapath, self.census.effective())?;
            self.parts.member("generation", &self.census.generation())?;
            self.parts.open_array("limits")?;
            self.stage = Stage::Rules;
        }
        while !matches!(self.stage, Stage::Done) {
            let full = self.report()?;
            if full {
                return Ok(Step::Part(self.parts.take()));
            }
        }
        let last = self.parts.take();
        Ok(if last.is_empty() { Step::Done } else { Step::Part(last) })
    }
}

pub(super) fn of_rule(
    in_force: &Effective,
    counters: RuleCounters,
    max_frame: u64,
    cluster: Option<u64>,
) -> LimitEntry {
    let Effective { rule, origin, end, .. } = in_force;
    let known = in_force.known();
    LimitEntry {
        sharing: part(known)
            .or_else(|| rule.terms.limits().and_then(|limits| sharing(limits, cluster))),
        name: rule.name.as_deref().map(str::to_owned),
        origin: *origin,
        shadow: rule.terms.is_shadow(),
        label: rule.label.as_deref().map(str::to_owned),
        direction: Some(rule.path.direction.name().to_owned()),
        ends_in_seconds: end.map(|end| end.saturating_sub(limit_ends::now())),
        ..entry(rule.path.to_string(), describe(&rule.terms, max_frame).known(known), counters)
    }
}

/// Text about the sharing of a limit of which the maps of one node hold only its part.
fn part(known: Known) -> Option<String> {
    let text = "over all nodes: the numbers are this node's part, the whole is not in the maps";
    (known == Known::Part).then(|| text.to_owned())
}

/// Describes how nodes share limits. Without a cluster, limits apply to this node alone.
fn sharing(limits: &model::Limits, cluster: Option<u64>) -> Option<String> {
    limits.sharing.as_deref().filter(|_| cluster.is_some()).map(model::sharing_text)
}

/// All budgets in force, those of replies and bans last.
pub(super) fn budgets(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
) -> Result<Vec<LimitEntry>> {
    let (max_frame, origin) = (datapath.max_frame(), effective.budget_origin());
    let mut budgets = Vec::new();
    for budget in &effective.budgets {
        if let Some(counters) = counted::budget(datapath, effective, &budget.name)? {
            let known = effective.known_budget(&budget.name);
            let described = of_limits(&budget.limits, max_frame).known(known);
            let shadow = budget.limits.shadow;
            let sharing = part(known).or_else(|| sharing(&budget.limits, effective.cluster));
            let entry = entry(budget.name.clone(), described, counters);
            budgets.push(LimitEntry { origin, shadow, sharing, ..entry });
        }
    }
    let own = [
        ("(replies)", REPLIES, effective.replies),
        ("(bans)", BANS, Some(effective.bans.unwrap_or(DEFAULT_BANS))),
    ];
    for (shown, name, rate) in own {
        if let (Some(rate), Some(counters)) = (rate, counted::budget(datapath, effective, name)?) {
            let known = effective.known_budget(name);
            let described = of_limits(&model::Limits::new(rate), max_frame).known(known);
            let entry = entry(shown.to_owned(), described, counters);
            budgets.push(LimitEntry { origin, ..entry });
        }
    }
    Ok(budgets)
}

/// Entry for a rule in force from the rule file, without a name.
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
        direction: None,
        sharing: None,
        ends_in_seconds: None,
    }
}
