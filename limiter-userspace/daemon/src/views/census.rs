//! Counters of all rules of one rule set, read in slices, whatever happens to the set in the
//! meantime.

use std::sync::Arc;

use limiter_common::wire::RuleCounters;
use limiter_datapath::Observed;

use super::counted;
use super::reported::Result;
use crate::rule_sets::effective::{Effective, EffectiveSet};

/// Rules whose counters are read before others have their turn: a millisecond or two.
const SLICE: usize = 512;

/// The rule set, and the progress in reading its counters.
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

    /// Reads the next slice of the rules in force; returns whether all were read. If other rules
    /// came into force since the last slice, it begins again with them and with larger slices: so
    /// it ends however often the rules change.
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

    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The rules after the first `reported`, with their counters.
    pub(super) fn rules(
        &self,
        reported: usize,
    ) -> impl Iterator<Item = (&Effective, RuleCounters)> {
        self.effective.rules.iter().zip(self.counters.iter().copied()).skip(reported)
    }
}
