//! Counters of all rules, read in slices: of one rule set, whatever becomes of it meanwhile.

use std::sync::Arc;

use limiter_common::wire::RuleCounters;
use limiter_datapath::Observed;

use super::counted;
use super::reported::Result;
use crate::effective::{Effective, EffectiveSet};

/// Rules whose counters are read before others have their turn: a millisecond or two.
const SLICE: usize = 512;

/// The rule set, and how far the reading of its counters has come.
#[derive(Debug)]
pub(crate) struct Census {
    effective: Arc<EffectiveSet>,
    generation: u64,
    counters: Vec<RuleCounters>,
    slice: usize,
}

impl Census {
    pub(crate) fn new(datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Self {
        Self {
            effective: Arc::clone(effective),
            generation: datapath.generation(),
            counters: Vec::new(),
            slice: SLICE,
        }
    }

    /// Reads on in the rules that are in force; says whether all were read. If other rules came
    /// into force since the last slice, it begins again with them, and with larger slices: so it
    /// comes to an end however often they change.
    pub(crate) fn step(
        &mut self,
        datapath: &dyn Observed,
        effective: &Arc<EffectiveSet>,
    ) -> Result<bool> {
        if datapath.generation() != self.generation || !Arc::ptr_eq(effective, &self.effective) {
            let slice = self.slice.saturating_mul(4);
            *self = Self { slice, ..Self::new(datapath, effective) };
        }
        for effective in self.effective.rules.iter().skip(self.counters.len()).take(self.slice) {
            self.counters.push(counted::rule(datapath, effective)?);
        }
        Ok(self.counters.len() == self.effective.rules.len())
    }

    pub(crate) fn effective(&self) -> &EffectiveSet {
        &self.effective
    }

    /// Number of the rule set.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The rules after the first `reported`, with what they did.
    pub(super) fn rules(
        &self,
        reported: usize,
    ) -> impl Iterator<Item = (&Effective, RuleCounters)> {
        self.effective.rules.iter().zip(self.counters.iter().copied()).skip(reported)
    }
}
