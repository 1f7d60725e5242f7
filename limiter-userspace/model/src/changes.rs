//! When rule sets came into force in the model, and what they replaced.

use limiter_common::time::Ticks;
use limiter_common::wire::{Moment, RuleCounters, ended_in};
use limiter_rules::place::Slots;
use limiter_rules::{Installed, Plan};

use super::Model;

/// Changes of the rules, like those of `Kernel`.
impl Model {
    /// Like `Kernel::commit` of a data path, at the time `now`.
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

    /// See `Kernel::commit_on_trial` of a data path.
    pub fn commit_on_trial(&mut self, plan: Plan, end: Ticks, now: Ticks) -> u64 {
        let generation = self.commit(plan.on_trial(&self.installed), now);
        self.note_trial(end);
        self.tables.set_trial(generation, true);
        self.trial_end = end;
        generation
    }

    /// Like `Kernel::confirm_by` of a data path, always in time.
    pub fn confirm(&mut self) {
        self.tables.set_trial(self.generation, false);
        self.installed.mark_confirmed(&self.before);
        self.note_confirmed();
    }

    /// Like `Kernel::revert_by` of a data path, at the time `now`.
    pub fn revert(&mut self, now: Ticks) {
        self.generation += 1;
        let tried = std::mem::take(&mut self.installed);
        self.installed = std::mem::take(&mut self.before).after_trial_of(&tried);
        self.note_reverted(&tried, now);
    }

    /// Called after the present generation replaced the previous one.
    fn note_change(&mut self, now: Ticks) {
        self.moments.set(self.generation, Moment::new(self.generation, now));
        self.write(self.before.not_in(&self.installed).ended(ended_in(self.generation)));
    }

    /// Called after [`Self::note_change`] for a trial until `end`.
    fn note_trial(&mut self, end: Ticks) {
        let next = self.generation + 1;
        self.moments.set(next, Moment::new(next, end));
        self.write(self.installed.not_in(&self.before).ended(ended_in(next)));
    }

    /// Called after a trial was confirmed.
    fn note_confirmed(&mut self) {
        self.moments.set(self.generation + 1, Moment::UNKNOWN);
        self.write(self.installed.not_in(&self.before).ended(0));
    }

    /// Called after a trial of `tried` was reverted.
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
