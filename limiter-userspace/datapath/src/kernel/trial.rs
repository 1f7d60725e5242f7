//! Rule sets on trial: in force until a time. Then, unless somebody confirms, the program itself
//! returns to the previous rule set, without a daemon.
//!
//! The previous rule set stays in its buffers, because nothing is committed during a trial.
//! Returning uses the next generation number: it refers to those buffers, and is newer than the
//! generation for which buckets were resolved.

use limiter_common::time::Ticks;
use limiter_common::wire::{Control, RuleSetHeader};
use limiter_rules::Plan;

use super::on_trial::{Trial, TrialOutcome};
use crate::maps::words::header_of;
use crate::{DatapathError, Kernel, Observed as _};

impl Kernel {
    /// Like [`Kernel::commit`], but the previous rule set is in force again from `end` on, unless
    /// [`Kernel::confirm_by`] comes first. `end` is a time of the clock `now`.
    pub fn commit_on_trial(
        &mut self,
        plan: Plan,
        end: Ticks,
        now: impl Fn(&Self) -> Ticks,
    ) -> Result<u64, DatapathError> {
        let (begun, ended) = (plan.begun.clone(), plan.ended.clone());
        let before = self.put_in_force(plan.on_trial(self.installed()), Some(end))?;
        self.note_change(&before, now(self), true);
        self.trial = Some(Trial { before, begun, ended, end });
        Ok(self.generation())
    }

    /// When the trial ends; `None` if there is none.
    pub fn trial_end(&self) -> Option<Ticks> {
        self.trial.as_ref().map(|trial| trial.end)
    }

    /// Confirms a trial: its rule set stays, unless its time is over at `now`.
    ///
    /// # Errors
    ///
    /// When there is no trial, or the kernel refuses.
    pub fn confirm_by(
        &mut self,
        now: impl Fn(&Self) -> Ticks,
    ) -> Result<TrialOutcome, DatapathError> {
        let Some(end) = self.trial_end() else {
            return Err(DatapathError::NoTrial);
        };
        // After a revert that failed half-way, the previous rule set may already be in force.
        if now(self) >= end {
            return self.revert_by(now);
        }
        // First postpone the end, then read the time. If the trial is not over then, no packet has
        // seen it over, and none will. So a packet under the previous rule set is never followed by
        // one under this rule set.
        self.held.maps.set_control(Control::TrialEnd, u64::MAX)?;
        let confirmed = if now(self) >= end { self.revert_by(now) } else { self.keep() };
        confirmed.inspect_err(|_| {
            // Without this, the trial would never end without the daemon.
            if let Err(error) = self.held.maps.set_control(Control::TrialEnd, end.get()) {
                tracing::error!(%error, "the rules on trial go back only by `limiter revert` or a start");
            }
        })
    }

    /// Removes the trial mark from the rule set in force.
    fn keep(&mut self) -> Result<TrialOutcome, DatapathError> {
        let place = header_of(self.generation());
        let header = RuleSetHeader::from_raw(self.held.maps.control(place)?);
        self.held.maps.set_control(place, header.with_trial(false).raw())?;
        if let Some(trial) = self.trial.take() {
            self.held.installed.mark_confirmed(&trial.before);
            self.note_confirmed(&trial.before);
            self.retire(&trial.ended);
        }
        Ok(TrialOutcome::Confirmed)
    }

    /// Reverts a trial: the previous rule set is in force again.
    ///
    /// # Errors
    ///
    /// When there is no trial, or the kernel refuses.
    pub fn revert_by(
        &mut self,
        now: impl Fn(&Self) -> Ticks,
    ) -> Result<TrialOutcome, DatapathError> {
        let Some(end) = self.trial_end() else {
            return Err(DatapathError::NoTrial);
        };
        let generation = self.generation() + 1;
        self.held.maps.set_control(Control::TrialEnd, 0)?;
        // From here on the program has returned to the previous rule set. If the next step fails,
        // nobody may confirm any more.
        if let Some(trial) = &mut self.trial {
            trial.end = Ticks::default();
        }
        self.held.maps.set_control(Control::Generation, generation)?;
        if let Some(trial) = self.trial.take() {
            let restored = trial.before.after_trial_of(self.installed());
            let tried = self.set_installed(generation, restored);
            self.note_reverted(&tried, now(self).min(end));
            self.retire(&trial.begun);
        }
        Ok(TrialOutcome::Reverted)
    }
}
