//! Puts rule sets in force: planned once, then completely or not at all.

use std::sync::Arc;

use limiter_common::time::Ticks;
use limiter_common::wire::RuleCounters;
use limiter_datapath::Datapath;
use limiter_rules::Selector;
use limiter_rules::place::Holder;

use super::ground::Ground;
use super::machine::Machine;
use super::planned::Planned;
use super::state::RuleSets;
use crate::disk::state_dir::Prepared;
use crate::error::ServiceError;
use crate::rule_sets::effective::EffectiveSet;
use crate::rule_sets::layers::Layers;
use crate::rule_sets::warnings;
use crate::views::{self, key};

/// Returns true if a limit was used, or if that cannot be known.
pub(super) fn is_used(datapath: &dyn Datapath, holder: Holder) -> bool {
    match holder {
        Holder::Source(Selector::Prefix(net)) => {
            datapath.bucket(key(net.addr())).map_or(true, |bucket| bucket.is_some())
        }
        Holder::Rule(number) => datapath
            .rule_counters(number)
            .map_or(true, |counters| counters != RuleCounters::default()),
        Holder::Source(Selector::Every) | Holder::Budget => true,
    }
}

impl RuleSets {
    /// Puts `layers` in force, or keeps the present rules.
    pub(crate) fn apply(
        &mut self,
        ground: &mut Ground<'_>,
        layers: Layers,
    ) -> Result<(), ServiceError> {
        let planned = Planned::new(ground.datapath, ground.heap_trim, ground.lists, layers)?;
        self.put_in_force(ground, planned, None).map(drop)
    }

    /// Puts a set that was just planned in force; on trial until `end`, if given. Returns the set
    /// that was in force before.
    pub(super) fn put_in_force(
        &mut self,
        ground: &mut Ground<'_>,
        planned: Planned,
        end: Option<Ticks>,
    ) -> Result<(Layers, Arc<EffectiveSet>), ServiceError> {
        let Planned { layers, mut effective, mut plan, laid } = planned;
        let datapath = ground.datapath.get_mut()?;
        let of_machine = warnings::of_machine(&effective, datapath);
        effective.shared = std::mem::take(&mut plan.shared);
        // The lists come first, and are restored if the rules fail: both or neither.
        let laid = match end {
            Some(end) => {
                let (laid, waiting) = ground.lists.on_trial(&laid, end);
                effective.warnings.extend(waiting);
                laid
            }
            None => laid,
        };
        let managed = |selector: &Selector| layers.managed(selector);
        let lists_before = ground.lists.lay(datapath, &laid, managed)?;
        let plan = if end.is_some() { plan.on_trial(datapath.installed()) } else { plan };
        let is_used = |holder| is_used(datapath, holder);
        let used = plan.installed.used_of(datapath.installed(), is_used).line();
        let generation = match datapath.put_in_force(plan, end) {
            Ok(generation) => generation,
            Err(error) => {
                if let Err(error) = ground.lists.lay(datapath, &lists_before, managed) {
                    tracing::error!(%error, "the lists are not as before the change that failed");
                }
                return Err(error.into());
            }
        };
        self.used = used;
        // The rules are in force by now, whatever this returns.
        self.seen = views::seen(datapath).unwrap_or(self.seen);
        let known = [&self.effective.warnings, &self.machine.warnings];
        let is_new = |warning: &&String| !known.iter().any(|known| known.contains(warning));
        let all = effective.warnings.iter().chain(&of_machine);
        self.news = all.filter(is_new).cloned().collect();
        for warning in &self.news {
            tracing::warn!("{warning}");
        }
        tracing::info!(generation, rules = effective.rules.len(), "rules in force");
        let layers = std::mem::replace(&mut self.layers, layers);
        let effective = std::mem::replace(&mut self.effective, Arc::new(effective));
        self.machine = Machine::looked(of_machine, &self.effective);
        ground.cluster.share(&self.layers, &self.effective);
        Ok((layers, effective))
    }

    /// Puts a plan in force and stores a change of the state directory, both or neither.
    pub(super) fn apply_and_keep(
        &mut self,
        ground: &mut Ground<'_>,
        planned: Planned,
        prepared: Prepared,
    ) -> Result<(), ServiceError> {
        let (before, _) = self.put_in_force(ground, planned, None)?;
        let Err(store) = prepared.publish() else {
            return Ok(());
        };
        Err(match self.apply(ground, before) {
            Ok(()) => ServiceError::State(store),
            Err(undo) => ServiceError::Torn { store, undo: Box::new(undo) },
        })
    }

    /// Plans the rules again after a change of the interfaces or the number of nodes: an interface
    /// that came back has another index, a renamed one concerns the rules for its old and new name,
    /// and a node's share depends on the number of nodes. During a trial nothing is put in force;
    /// the first look after it does so. Returns `None` if there was nothing to do.
    pub(crate) fn catch_up(&mut self, ground: &mut Ground<'_>) -> Option<Result<(), ServiceError>> {
        if !self.replan || self.trial.is_some() {
            return None;
        }
        let cluster = ground.cluster.nodes().or(self.layers.cluster);
        let learned = self.apply(ground, Layers { cluster, ..self.layers.clone() });
        self.replan = learned.is_err();
        Some(learned)
    }
}
