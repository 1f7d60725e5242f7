//! Puts a rule set in force.

use limiter_common::time::Ticks;
use limiter_common::wire::Control;
use limiter_rules::{Installed, Plan};

use super::Kernel;
use crate::DatapathError;
use crate::maps::words::{header_of, own_budgets_of};

impl Kernel {
    /// Puts a planned rule set in force. The old one stays in force until the last step. `now` is
    /// the program's clock: [`Observed::now`](crate::Observed::now).
    pub fn commit(
        &mut self,
        plan: Plan,
        now: impl Fn(&Self) -> Ticks,
    ) -> Result<u64, DatapathError> {
        let ended = plan.ended.clone();
        let before = self.put_in_force(plan, None)?;
        self.note_change(&before, now(self), false);
        self.retire(&ended);
        Ok(self.held.generation)
    }

    /// Sums up the counts of rules that ended. Only logs an error, because the rule set is already
    /// in force.
    pub(crate) fn retire(&mut self, ended: &[u32]) {
        if let Err(error) = self.held.maps.retire_rule_counters(ended) {
            tracing::warn!(%error, "the counts of rules that ended are lost");
        }
    }

    /// Puts a plan in force without the notes that are written afterwards; on trial until `end`, if
    /// given. Returns the previous rule set.
    pub(crate) fn put_in_force(
        &mut self,
        plan: Plan,
        end: Option<Ticks>,
    ) -> Result<Installed, DatapathError> {
        // The buffers of the previous rule set are needed until the trial is over.
        if self.trial.is_some() {
            return Err(DatapathError::OnTrial);
        }
        self.check_pinned()?;
        let Plan { limits, trie, tables, shared: _, begun, ended: _, installed } = plan;
        let generation = self.held.generation + 1;
        self.begin_change(generation, end)?;
        self.held.maps.clear_rule_counters(&begun)?;
        self.held.maps.set_limits(&limits)?;
        self.held.tables.fill(generation, &tables, &self.held.pins)?;
        self.held.maps.set_trie(generation, &trie, &self.held.pins)?;
        if tables.keeps_bans {
            self.held.maps.set_control(Control::BansKept, 1)?;
        }
        let [replies, bans] = own_budgets_of(generation);
        self.held.maps.set_control(replies, tables.replies)?;
        self.held.maps.set_control(bans, tables.bans)?;
        if let Some(end) = end {
            self.held.maps.set_control(Control::TrialEnd, end.get())?;
        }
        let header = tables.header.with_trial(end.is_some());
        self.held.maps.set_control(header_of(generation), header.raw())?;
        self.held.maps.set_control(Control::Generation, generation)?;
        Ok(self.set_installed(generation, installed))
    }

    /// Returns what was installed before.
    pub(crate) fn set_installed(&mut self, generation: u64, installed: Installed) -> Installed {
        self.held.generation = generation;
        std::mem::replace(&mut self.held.installed, installed)
    }
}
