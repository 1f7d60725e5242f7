//! All counters: by verdict, reason and rule.

use std::sync::Arc;

use limiter_api::Counts;
use limiter_api::stats::{Outcomes, ReasonCounts, RuleCounts};
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{RULE_RETIRED, Tally};
use limiter_datapath::Observed;
use limiter_rules::Terms;

use super::census::Census;
use super::counted;
use super::reported::{Reported, Result};
use crate::control::Step;
use crate::control::parts::Parts;
use crate::rule_sets::effective::{Effective, EffectiveSet};

/// `GET /v1/stats`, sent in parts: the rules of one rule set, whatever comes into force in the
/// meantime.
#[derive(Debug)]
pub(crate) struct StatsText {
    census: Census,
    parts: Parts,
    /// The part after the rules; `None` until all counters were read.
    rest: Option<(Vec<RuleCounts>, Outcomes)>,
    /// Number of rules that were reported.
    reported: usize,
    ended: bool,
}

impl StatsText {
    /// Reads everything except the rules, at the time when their counters have been read.
    fn read_rest(&mut self, datapath: &dyn Observed) -> Result<()> {
        let tallies = datapath.reasons()?;
        let (mut passed, mut dropped) = (Tally::default(), Tally::default());
        let mut reasons = Vec::with_capacity(Reason::COUNT);
        for (reason, tally) in Reason::ALL.into_iter().zip(tallies) {
            match reason.verdict() {
                Verdict::Pass => passed.merge(tally),
                Verdict::Drop => dropped.merge(tally),
            }
            reasons.push(ReasonCounts::new(reason, tally));
        }
        self.parts.member("generation", &datapath.generation())?;
        let mut seen = passed;
        seen.merge(dropped);
        for (name, tally) in [("seen", seen), ("passed", passed), ("dropped", dropped)] {
            self.parts.member(name, &Counts::from(tally))?;
        }
        self.parts.member("reasons", &reasons)?;
        self.parts
            .member("interfaces", &super::interfaces::interfaces(datapath, &datapath.labels())?)?;
        self.parts.open_array("rules")?;
        let counted = counted::budgets(datapath, self.census.effective())?;
        let counted = counted.into_iter();
        let budgets =
            counted.map(|(rule, counters)| RuleCounts::new(rule, None, counters)).collect();
        let removed = datapath.rule_counters(RULE_RETIRED)?;
        self.rest = Some((budgets, removed.into()));
        Ok(())
    }
}

impl Reported for StatsText {
    fn over(datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Self {
        Self {
            census: Census::new(datapath, effective),
            parts: Parts::default(),
            rest: None,
            reported: 0,
            ended: false,
        }
    }

    fn step_of(&mut self, datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Result<Step> {
        if self.ended {
            return Ok(Step::Done);
        }
        if self.rest.is_none() {
            if !self.census.step(datapath, effective)? {
                return Ok(Step::Again);
            }
            self.read_rest(datapath)?;
        }
        let Self { census, parts, reported, .. } = self;
        for (Effective { rule, .. }, counters) in census.rules(*reported) {
            *reported += 1;
            // The budget counts the packets of such a rule.
            if matches!(rule.terms, Terms::Budget(_)) {
                continue;
            }
            parts.item(&RuleCounts::new(rule.path.to_string(), rule.called(), counters))?;
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
}
