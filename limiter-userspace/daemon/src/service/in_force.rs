//! Putting rule sets in force: planned once, then whole or not at all.

use std::sync::Arc;

use limiter_common::time::Ticks;
use limiter_rules::Plan;

use super::Service;
use super::rule_sets::plan;
use crate::error::ServiceError;
use crate::layers::{EffectiveSet, Layers};
use crate::state_dir::Prepared;
use crate::warnings;

/// A rule set that can be put in force, as the data path is now.
pub(super) struct Planned {
    pub(super) layers: Layers,
    pub(super) effective: EffectiveSet,
    plan: Plan,
}

impl Service {
    /// Plans a rule set. Nothing changes, so a bad one leaves no trace.
    pub(super) fn planned(&self, layers: Layers) -> Result<Planned, ServiceError> {
        self.leftovers.note();
        let effective = layers.effective();
        let plan = plan(self.datapath()?, &layers, &effective)?;
        Ok(Planned { layers, effective, plan })
    }

    /// Puts `layers` in force, or keeps what is.
    pub(super) fn apply(&mut self, layers: Layers) -> Result<(), ServiceError> {
        let planned = self.planned(layers)?;
        self.put_in_force(planned, None).map(drop)
    }

    /// Puts a set that was planned just now in force; on trial until `end`, if that is given.
    /// Returns the set that was in force.
    pub(super) fn put_in_force(
        &mut self,
        planned: Planned,
        end: Option<Ticks>,
    ) -> Result<(Layers, Arc<EffectiveSet>), ServiceError> {
        let Planned { layers, mut effective, mut plan } = planned;
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        effective.warnings.extend(warnings::of_tags(&effective, datapath));
        effective.shared = std::mem::take(&mut plan.shared);
        let generation = datapath.put_in_force(plan, end)?;
        let known = &self.effective.warnings;
        let is_new = |warning: &&String| !known.contains(warning);
        self.news = effective.warnings.iter().filter(is_new).cloned().collect();
        for warning in &self.news {
            tracing::warn!("{warning}");
        }
        tracing::info!(generation, rules = effective.rules.len(), "rules in force");
        let layers = std::mem::replace(&mut self.layers, layers);
        let effective = std::mem::replace(&mut self.effective, Arc::new(effective));
        self.share();
        Ok((layers, effective))
    }

    /// Puts a plan in force and a change of the state directory on disk, both or neither.
    pub(super) fn apply_and_keep(
        &mut self,
        planned: Planned,
        prepared: Prepared,
    ) -> Result<(), ServiceError> {
        let (before, _) = self.put_in_force(planned, None)?;
        let Err(store) = prepared.publish() else {
            return Ok(());
        };
        Err(match self.apply(before) {
            Ok(()) => ServiceError::State(store),
            Err(undo) => ServiceError::Torn { store, undo: Box::new(undo) },
        })
    }
}
