//! What all rules did, read in slices: the counters of one rule set, whatever becomes of it meanwhile.

use std::ops::Bound;
use std::sync::Arc;

use limiter_common::wire::RuleCounters;

use super::{Result, counted};
use crate::daemon::layers::{Effective, EffectiveSet};
use crate::datapath::Datapath;
use crate::rules::Selector;
use crate::rules::model::KeyedRule;

/// Rules whose counters are read before others have their turn: a millisecond or two.
const SLICE: usize = 512;

/// The rule set, and how far the reading of its counters has come.
#[derive(Debug)]
pub(in crate::daemon) struct Census {
    effective: Arc<EffectiveSet>,
    generation: u64,
    sources: Vec<RuleCounters>,
    keyed: Vec<RuleCounters>,
    /// The source rule that was read last.
    after: Option<Selector>,
    slice: usize,
}

impl Census {
    pub(in crate::daemon) fn new(datapath: &dyn Datapath, effective: &Arc<EffectiveSet>) -> Self {
        Self {
            effective: Arc::clone(effective),
            generation: datapath.generation(),
            sources: Vec::new(),
            keyed: Vec::new(),
            after: None,
            slice: SLICE,
        }
    }

    /// Reads on in the rules that are in force; says whether all were read. If other rules came into force since the last
    /// slice, it begins again with them, and with larger slices: so it comes to an end however often they change.
    pub(in crate::daemon) fn step(
        &mut self,
        datapath: &dyn Datapath,
        effective: &Arc<EffectiveSet>,
    ) -> Result<bool> {
        if datapath.generation() != self.generation || !Arc::ptr_eq(effective, &self.effective) {
            let slice = self.slice.saturating_mul(4);
            *self = Self { slice, ..Self::new(datapath, effective) };
        }
        let mut left = self.slice;
        for (selector, _) in sources_after(&self.effective, self.after.as_ref()).take(left) {
            self.sources.push(counted::source(datapath, selector)?);
            self.after = Some(*selector);
            left -= 1;
        }
        for rule in self.effective.keyed.iter().skip(self.keyed.len()).take(left) {
            self.keyed.push(counted::keyed(datapath, rule)?);
        }
        let Self { effective, sources, keyed, .. } = self;
        Ok(sources.len() == effective.rules.len() && keyed.len() == effective.keyed.len())
    }

    /// The rules.
    pub(in crate::daemon) fn effective(&self) -> &EffectiveSet {
        &self.effective
    }

    /// Their number.
    pub(in crate::daemon) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The source rules after the first `told`, of which the last is `after`, with what they did.
    pub(super) fn sources(
        &self,
        after: Option<&Selector>,
        told: usize,
    ) -> impl Iterator<Item = (&Selector, &Effective, RuleCounters)> {
        let counters = self.sources.iter().skip(told);
        let rules = sources_after(&self.effective, after);
        rules.zip(counters).map(|((selector, rule), counters)| (selector, rule, *counters))
    }

    /// The rules of other tables after the first `told`, with what they did.
    pub(super) fn keyed(&self, told: usize) -> impl Iterator<Item = (&KeyedRule, RuleCounters)> {
        let counters = self.keyed.iter().skip(told).copied();
        self.effective.keyed.iter().skip(told).zip(counters)
    }
}

fn sources_after<'a>(
    effective: &'a EffectiveSet,
    after: Option<&Selector>,
) -> impl Iterator<Item = (&'a Selector, &'a Effective)> + use<'a> {
    let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(*after));
    effective.rules.range((from, Bound::Unbounded))
}
