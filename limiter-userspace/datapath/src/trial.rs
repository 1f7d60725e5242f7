//! Rule sets on trial: in force until a time, and then, unless somebody confirms them, the program
//! goes back by itself to the one before. It needs no daemon for that.
//!
//! The rule set before stays in its buffers, because nothing is committed meanwhile. Going back is
//! the next generation number: it has those buffers, and it is newer than what buckets were
//! resolved to.

use limiter_common::time::Ticks;
use limiter_common::wire::{Control, RuleSetHeader};
use limiter_rules::Plan;

use super::on_trial::{Trial, TrialOutcome};
use super::words::header_of;
use super::{DatapathError, Kernel, Observed as _};

impl Kernel {
    /// As [`Kernel::commit`], but from `end` on the rule set before is in force again, unless
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

    /// When the rule set on trial ends; `None` if there is none.
    pub fn trial_end(&self) -> Option<Ticks> {
        self.trial.as_ref().map(|trial| trial.end)
    }

    /// Ends a trial: its rule set stays, unless its time is over at `now`.
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
        // After a revert that failed half-way the rule set before may be in force already.
        if now(self) >= end {
            return self.revert_by(now);
        }
        // First the end is put off, then the time is asked. If it is not over now, no packet can
        // have seen it over, and none will. A packet under the rule set before is never followed by
        // one under this.
        self.held.maps.set_control(Control::TrialEnd, u64::MAX)?;
        let confirmed = if now(self) >= end { self.revert_by(now) } else { self.keep() };
        confirmed.inspect_err(|_| {
            // Or the trial would have no end without the daemon.
            if let Err(error) = self.held.maps.set_control(Control::TrialEnd, end.get()) {
                tracing::error!(%error, "the rules on trial go back only by `limiter revert` or a start");
            }
        })
    }

    /// Takes the mark of a trial from the rule set in force.
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

    /// Ends a trial: the rule set before it is in force again.
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
        // From here on the program has gone back. If the next step fails, nobody may confirm any
        // more.
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
