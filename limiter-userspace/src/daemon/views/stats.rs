//! All counters: by verdict, reason and rule.

use std::sync::Arc;

use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{RULE_RETIRED, RuleCounters, Tally};

use super::census::Census;
use super::{Result, counted};
use crate::control::api::{Counts, Outcomes, ReasonCounts, RuleCounts};
use crate::control::parts::Parts;
use crate::control::server::Step;
use crate::daemon::datapath::Datapath;
use crate::daemon::error::ServiceError;
use crate::daemon::layers::EffectiveSet;
use crate::rules::{Selector, Terms};

/// `GET /v1/stats`, told in parts: the rules of one rule set, whatever comes into force meanwhile.
#[derive(Debug)]
pub(in crate::daemon) struct StatsText {
    census: Census,
    parts: Parts,
    /// What comes after the rules; none until all counters were read.
    rest: Option<(Vec<RuleCounts>, Outcomes)>,
    /// The source rule that was told last.
    after: Option<Selector>,
    /// How many were told of both kinds of rules.
    told: [usize; 2],
    ended: bool,
}

impl StatsText {
    pub(in crate::daemon) fn new(datapath: &dyn Datapath, effective: &Arc<EffectiveSet>) -> Self {
        Self {
            census: Census::new(datapath, effective),
            parts: Parts::default(),
            rest: None,
            after: None,
            told: [0; 2],
            ended: false,
        }
    }

    /// Goes on with it.
    pub(in crate::daemon) fn step(
        &mut self,
        datapath: &dyn Datapath,
        effective: &Arc<EffectiveSet>,
    ) -> Result<Step> {
        if self.ended {
            return Ok(Step::Done);
        }
        if self.rest.is_none() {
            if !self.census.step(datapath, effective)? {
                return Ok(Step::Again);
            }
            self.begin(datapath)?;
        }
        let Self { census, parts, after, told: [sources, keyed], .. } = self;
        let last = *after;
        for (selector, in_force, counters) in census.sources(last.as_ref(), *sources) {
            *sources += 1;
            *after = Some(*selector);
            // What such a rule does is counted by its budget.
            if matches!(in_force.rule.action.terms(), Terms::Budget(_)) {
                continue;
            }
            parts.item(&counts(selector.to_string(), counters))?;
            if parts.is_part() {
                return Ok(Step::Part(parts.take()));
            }
        }
        for (rule, counters) in census.keyed(*keyed) {
            *keyed += 1;
            // Its counts are those of the budget.
            if matches!(rule.terms, Terms::Budget(_)) {
                continue;
            }
            parts.item(&counts(rule.path.to_string(), counters))?;
            if parts.is_part() {
                return Ok(Step::Part(parts.take()));
            }
        }
        parts.close_array();
        if let Some((budgets, removed)) = &self.rest {
            parts.member("budgets", budgets)?;
            parts.member("removed", removed)?;
        }
        parts.end();
        self.ended = true;
        Ok(Step::Part(self.parts.take()))
    }

    /// All but the rules, as it is when their counters were read.
    fn begin(&mut self, datapath: &dyn Datapath) -> Result<()> {
        let tallies = datapath.reasons().map_err(ServiceError::Datapath)?;
        let (mut passed, mut dropped) = (Tally::default(), Tally::default());
        let mut reasons = Vec::with_capacity(Reason::COUNT);
        for (reason, tally) in Reason::ALL.into_iter().zip(tallies) {
            let verdict = match reason.verdict() {
                Verdict::Pass => {
                    passed.merge(tally);
                    "pass"
                }
                Verdict::Drop => {
                    dropped.merge(tally);
                    "drop"
                }
            };
            reasons.push(ReasonCounts {
                reason: reason.name().to_owned(),
                verdict: verdict.to_owned(),
                packets: tally.packets,
                bytes: tally.bytes,
            });
        }
        let mut seen = passed;
        seen.merge(dropped);
        for (name, tally) in [("seen", seen), ("passed", passed), ("dropped", dropped)] {
            self.parts.member(name, &Counts::from(tally))?;
        }
        self.parts.member("reasons", &reasons)?;
        self.parts.open_array("rules")?;
        let counted = counted::budgets(datapath, self.census.effective())?;
        let budgets = counted.into_iter().map(|(rule, counters)| counts(rule, counters)).collect();
        let removed = datapath.rule_counters(RULE_RETIRED).map_err(ServiceError::Datapath)?;
        self.rest = Some((budgets, removed.into()));
        Ok(())
    }
}

fn counts(rule: String, counters: RuleCounters) -> RuleCounts {
    RuleCounts {
        rule,
        passed: counters.passed.into(),
        dropped: counters.dropped.into(),
        shadowed: counters.shadowed.into(),
        marked: counters.marked.into(),
    }
}
