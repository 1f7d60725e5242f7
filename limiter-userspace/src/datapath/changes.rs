//! When rule sets came into force, and what left force with them: what the program needs to count
//! the time since a change ([`limiter_decision::change`]).
//!
//! All of this is written once the rule set is in force. Until then, and if it fails, the program
//! takes a later instant: a source gets less, never more.

use aya::maps::{Array, MapData};
use limiter_common::time::Ticks;
use limiter_common::wire::{Moment, ended_in, map};

use super::maps::MapSource;
use super::{DatapathError, Kernel, Observed as _};
use crate::rules::Installed;
use crate::rules::place::Slots;

/// The map of moments.
pub(super) struct ChangeMap(Array<MapData, u64>);

impl ChangeMap {
    /// Takes it by name.
    pub(super) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        Ok(Self(source(map::CHANGES)?.try_into().map_err(DatapathError::map(map::CHANGES))?))
    }

    /// The word at the place of a generation.
    pub(super) fn get(&self, generation: u32) -> Result<Moment, DatapathError> {
        let word = self.0.get(&Moment::index(generation), 0);
        Ok(Moment::from_raw(word.map_err(DatapathError::map(map::CHANGES))?))
    }

    /// Sets the word at the place of a generation.
    pub(super) fn set(&mut self, generation: u64, moment: Moment) -> Result<(), DatapathError> {
        let index = Moment::index(low_bits(generation));
        self.0.set(index, moment.raw(), 0).map_err(DatapathError::map(map::CHANGES))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only the low bits are compared")]
const fn low_bits(generation: u64) -> u32 {
    generation as u32
}

impl Kernel {
    /// Before a generation is put in force: its time is not known. On trial, the one after it
    /// begins at `end`, unless the trial is confirmed.
    pub(super) fn begin_change(
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

    /// After the present generation was put in force in place of `before`, since `at` at the
    /// latest; on trial or not.
    pub(super) fn note_change(&mut self, before: &Installed, at: Ticks, on_trial: bool) {
        let generation = self.generation();
        let mut noted =
            self.held.changes.set(generation, Moment::new(generation, at)).and_then(|()| {
                self.write(&before.not_in(self.installed()).ended(ended_in(generation)))
            });
        if on_trial {
            let tried = self.installed().not_in(before).ended(ended_in(generation + 1));
            noted = noted.and_then(|()| self.write(&tried));
        }
        told(noted);
    }

    /// After a trial was confirmed: nothing of it ends with the next generation.
    pub(super) fn note_confirmed(&mut self, before: &Installed) {
        let next = self.generation() + 1;
        let kept = self.installed().not_in(before).ended(0);
        let noted = self.held.changes.set(next, Moment::UNKNOWN).and_then(|()| self.write(&kept));
        told(noted);
    }

    /// After a trial of `tried` was taken back, at `at` at the latest: what it had ended is in
    /// force again.
    pub(super) fn note_reverted(&mut self, tried: &Installed, at: Ticks) {
        let generation = self.generation();
        let again = self.installed().not_in(tried).ended(0);
        let noted = self
            .held
            .changes
            .set(generation, Moment::new(generation, at))
            .and_then(|()| self.write(&again));
        told(noted);
    }

    /// Writes limits and records into their slots.
    pub(super) fn write(&mut self, slots: &Slots) -> Result<(), DatapathError> {
        self.held.maps.set_limits(&slots.limits)?;
        self.held.tables.set_records(&slots.records)
    }
}

/// The rule set is in force by now, so what fails here is told and is no failure of it.
fn told(noted: Result<(), DatapathError>) {
    if let Err(error) = noted {
        tracing::warn!(
            %error,
            "sources that are silent now do not get the time since this change at their new limits"
        );
    }
}
