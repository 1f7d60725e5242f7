//! Checks the rules in force against the state of the machine, again and again, because others
//! change its queueing disciplines, offloads and interfaces.

use std::sync::Arc;

use limiter_datapath::Datapath;

use crate::rule_sets::effective::EffectiveSet;
use crate::rule_sets::warnings;

/// Seconds between two looks.
const EVERY: u8 = 5;

/// Result of the last look at the machine.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// Warnings about rules that do not work on this machine.
    pub(crate) warnings: Vec<String>,
    /// The rule set at the last look.
    of: Option<Arc<EffectiveSet>>,
    /// Seconds since the last look.
    since: u8,
}

impl Machine {
    pub(super) fn looked(warnings: Vec<String>, effective: &Arc<EffectiveSet>) -> Self {
        Self { warnings, of: Some(Arc::clone(effective)), since: 0 }
    }

    /// Looks at the machine if that is due, and logs the changes. Called each second.
    pub(crate) fn look(&mut self, effective: &Arc<EffectiveSet>, datapath: &mut dyn Datapath) {
        self.since = self.since.saturating_add(1);
        let is_same = self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, effective));
        if is_same && self.since < EVERY {
            return;
        }
        let found = warnings::of_machine(effective, datapath);
        let before = std::mem::replace(self, Self::looked(found, effective));
        for warning in self.warnings.iter().filter(|at| !before.warnings.contains(at)) {
            tracing::warn!("{warning}");
        }
        for warning in before.warnings.iter().filter(|at| !self.warnings.contains(at)) {
            tracing::info!("no longer so: {warning}");
        }
    }
}
