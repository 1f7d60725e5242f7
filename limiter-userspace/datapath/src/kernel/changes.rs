//! When rule sets came into force, and what they replaced: the program needs this to account for
//! the time since a change ([`limiter_decision::change`]).
//!
//! All of it is written after the rule set is in force. Until then, and if the write fails, the
//! program assumes a later instant: a source may get less, but never more.

use limiter_common::time::Ticks;
use limiter_common::wire::{Moment, ended_in};
use limiter_rules::Installed;
use limiter_rules::place::Slots;

use crate::{DatapathError, Kernel, Observed as _};

impl Kernel {
    /// Called before a generation is put in force: its time is still unknown. For a trial, the
    /// generation after it begins at `end` unless the trial is confirmed.
    pub(crate) fn begin_change(
        &mut self,
        generation: u64,
        end: Option<Ticks>,
    ) -> Result<(), DatapathError> {
        self.held.changes.set(generation, Moment::UNKNOWN)?;
        match end {
            Some(end) => self.held.changes.set(generation + 1, Moment::new(generation + 1, end)),
            None => Ok(()),
        }
    }

    /// Called after the present generation replaced `before`, at `at` at the latest; on trial or
    /// not.
    pub(crate) fn note_change(&mut self, before: &Installed, at: Ticks, on_trial: bool) {
        let generation = self.generation();
        let mut noted =
            self.held.changes.set(generation, Moment::new(generation, at)).and_then(|()| {
                self.write(&before.not_in(self.installed()).ended(ended_in(generation)))
            });
        if on_trial {
            let tried = self.installed().not_in(before).ended(ended_in(generation + 1));
            noted = noted.and_then(|()| self.write(&tried));
        }
        reported(noted);
    }

    /// Called after a trial was confirmed: nothing of it ends with the next generation.
    pub(crate) fn note_confirmed(&mut self, before: &Installed) {
        let next = self.generation() + 1;
        let kept = self.installed().not_in(before).ended(0);
        let noted = self.held.changes.set(next, Moment::UNKNOWN).and_then(|()| self.write(&kept));
        reported(noted);
    }

    /// Called after a trial of `tried` was reverted, at `at` at the latest: what it had ended is in
    /// force again.
    pub(crate) fn note_reverted(&mut self, tried: &Installed, at: Ticks) {
        let generation = self.generation();
        let again = self.installed().not_in(tried).ended(0);
        let noted = self
            .held
            .changes
            .set(generation, Moment::new(generation, at))
            .and_then(|()| self.write(&again));
        reported(noted);
    }

    /// Writes limits and records into their slots.
    pub(crate) fn write(&mut self, slots: &Slots) -> Result<(), DatapathError> {
        self.held.maps.set_limits(&slots.limits)?;
        self.held.tables.set_records(&slots.records)
    }
}

/// Reports an error without failing: the rule set is already in force.
fn reported(noted: Result<(), DatapathError>) {
    if let Err(error) = noted {
        tracing::warn!(
            %error,
            "sources that are silent now do not get the time since this change at their new limits"
        );
    }
}
