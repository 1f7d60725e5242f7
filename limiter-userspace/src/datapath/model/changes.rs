//! When rule sets came into force in the model, and what left force with them.

use limiter_common::time::Ticks;
use limiter_common::wire::{CHANGES, Moment, RuleCounters, ended_in};

use super::Model;
use crate::rules::place::Slots;
use crate::rules::{Installed, Plan};

/// The map of moments.
#[derive(Clone, Debug)]
pub(super) struct Moments([Moment; CHANGES as usize]);

impl Default for Moments {
    fn default() -> Self {
        Self([Moment::UNKNOWN; CHANGES as usize])
    }
}

impl Moments {
    /// The word at the place of a generation.
    pub(super) fn of(&self, generation: u32) -> Moment {
        let index = usize::try_from(Moment::index(generation)).ok();
        index.and_then(|index| self.0.get(index)).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, generation: u64, moment: Moment) {
        let index = usize::try_from(generation % u64::from(CHANGES)).ok();
        if let Some(place) = index.and_then(|index| self.0.get_mut(index)) {
            *place = moment;
        }
    }
}

/// Changes of the rules, as those of `Kernel`.
impl Model {
    /// As [`crate::datapath::Kernel::commit`], at a time.
    pub fn commit(&mut self, plan: Plan, now: Ticks) -> u64 {
        self.generation += 1;
        for number in plan.begun {
            self.rules_mut().insert(number, RuleCounters::default());
        }
        self.before = std::mem::take(&mut self.installed);
        self.tables.commit(self.generation, plan.tables);
        self.limits.extend(plan.limits);
        self.tries[usize::from(self.generation % 2 == 1)] = plan.trie;
        self.installed = plan.installed;
        self.note_change(now);
        self.generation
    }

    /// As [`crate::datapath::Kernel::commit_on_trial`].
    pub fn commit_on_trial(&mut self, plan: Plan, end: Ticks, now: Ticks) -> u64 {
        let generation = self.commit(plan, now);
        self.note_trial(end);
        self.tables.set_trial(generation, true);
        self.trial_end = end;
        generation
    }

    /// As [`crate::datapath::Kernel::confirm_by`], in time.
    pub fn confirm(&mut self) {
        self.tables.set_trial(self.generation, false);
        self.note_confirmed();
    }

    /// As [`crate::datapath::Kernel::revert_by`], at a time.
    pub fn revert(&mut self, now: Ticks) {
        self.generation += 1;
        let tried = std::mem::take(&mut self.installed);
        self.installed = std::mem::take(&mut self.before).after_trial_of(&tried);
        self.note_reverted(&tried, now);
    }

    /// After the present generation was put in force in place of the one before.
    fn note_change(&mut self, now: Ticks) {
        self.moments.set(self.generation, Moment::new(self.generation, now));
        self.write(self.before.not_in(&self.installed).ended(ended_in(self.generation)));
    }

    /// After that, where it is on trial until `end`.
    fn note_trial(&mut self, end: Ticks) {
        let next = self.generation + 1;
        self.moments.set(next, Moment::new(next, end));
        self.write(self.installed.not_in(&self.before).ended(ended_in(next)));
    }

    /// After a trial was confirmed.
    fn note_confirmed(&mut self) {
        self.moments.set(self.generation + 1, Moment::UNKNOWN);
        self.write(self.installed.not_in(&self.before).ended(0));
    }

    /// After a trial of `tried` was taken back.
    fn note_reverted(&mut self, tried: &Installed, now: Ticks) {
        let at = now.min(self.trial_end);
        self.moments.set(self.generation, Moment::new(self.generation, at));
        self.write(self.installed.not_in(tried).ended(0));
    }

    fn write(&mut self, slots: Slots) {
        self.limits.extend(slots.limits);
        self.tables.write_records(slots.records);
    }
}
