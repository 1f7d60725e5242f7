//! Reads the rule files again.

use std::time::Instant;

use limiter_api::rules::{Changed, ReloadRules};

use super::Service;
use crate::control::Refusal;

impl Service {
    /// Reads the rule files again, and notes the result.
    pub(crate) fn reload_rules(&mut self, asked: ReloadRules) -> Result<Changed, Refusal> {
        self.notifier.reloading();
        let (rule_sets, mut ground) = self.at_rules();
        let result = rule_sets.reload(&mut ground, asked);
        self.notify_ready();
        let mut changed = result?;
        changed.warnings.extend(self.requests_not_in_force());
        Ok(changed)
    }

    /// Rules for requests in the rule files that `limiter serve` does not use.
    pub(crate) fn requests_not_in_force(&self) -> Vec<String> {
        let parts = &self.rule_sets.layers.texts.requests;
        self.request_reports.others_than(parts, Instant::now())
    }

    /// Reads the rule files again without a client that could force it: after a signal or a changed
    /// file.
    pub(crate) fn reload(&mut self) -> Result<Changed, Refusal> {
        self.reload_rules(ReloadRules::default())
    }
}
