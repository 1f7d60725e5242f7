//! Reading the rule files again.

use super::Service;
use crate::api::rules::{Changed, ReloadRules};
use crate::control::Refusal;

impl Service {
    /// Reads the rule files again, and notes how that went.
    pub(crate) fn reload_rules(&mut self, asked: ReloadRules) -> Result<Changed, Refusal> {
        self.notifier.reloading();
        let (rule_sets, mut ground) = self.at_rules();
        let result = rule_sets.reload(&mut ground, asked);
        self.notify_ready();
        Ok(result?)
    }

    /// Reads the rule files again when nobody asked who could force it: after a signal or a changed
    /// file.
    pub(crate) fn reload(&mut self) -> Result<Changed, Refusal> {
        self.reload_rules(ReloadRules::default())
    }
}
