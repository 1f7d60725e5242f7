//! A rule set on trial, and going back to the one before.

use std::collections::BTreeMap;

use limiter_common::wire::{Limit, LimitSpec, Record};

use super::largest::{token, units};
use super::left::limits_of;
use super::step::retired;
use super::used::Held;
use super::{Installed, Plan};

impl Plan {
    /// The plan for a rule set on trial in the place of `before`: none of its new limits is marked
    /// as the largest, and those that are smaller than before as cut on trial.
    #[must_use]
    pub fn on_trial(mut self, before: &Installed) -> Self {
        let mut new: BTreeMap<u32, Limit> = self.limits.iter().copied().collect();
        for (selector, rule) in &mut self.installed.rules {
            let Some(limit) = new.get_mut(&rule.slot) else { continue };
            let cut = match before.held(selector) {
                Some(Held::Source(_, old)) if !old.is_unlimited() && !limit.is_unlimited() => {
                    is_cut(&token(old), &token(limit))
                }
                _ => false,
            };
            rule.limit = limit.with_largest(false).with_cut_on_trial(cut);
            *limit = rule.limit;
        }
        let tables = &mut self.installed.tables;
        let of_rules = tables.rules.iter().map(|(id, slot)| (*slot, before.tables.record(id)));
        let of_rules: BTreeMap<u32, Option<&Record>> = of_rules.collect();
        for (slot, record) in &mut self.tables.records {
            let old = if record.budget_tag == 0 {
                of_rules.get(slot).copied().flatten()
            } else {
                before.tables.budget(record.budget_tag).map(|(_, record)| record)
            };
            let old = old.and_then(|old| old.limits.get(..usize::from(old.count)));
            for (place, limit) in record.limits.iter_mut().enumerate() {
                let old = old.and_then(|old| old.get(place));
                let cut = old.is_some_and(|old| is_cut(old, limit));
                *limit = limit.with_largest(false).with_cut_on_trial(cut);
            }
            tables.records.entry(*slot).and_modify(|installed| *installed = *record);
        }
        new.extend(limits_of(&self.tables.records));
        self.limits = new.into_iter().collect();
        self
    }
}

/// True if `new` is a smaller limit of a rate than `old`.
fn is_cut(old: &LimitSpec, new: &LimitSpec) -> bool {
    old.is_rate() && new.is_rate() && old.counts() == new.counts() && units(new) < units(old)
}

impl Installed {
    /// True if a limit came in force on trial in the place of a larger one, and was not put in
    /// force anew since.
    pub fn has_cuts_on_trial(&self) -> bool {
        let mut records = self.tables.records.values().flat_map(|record| &record.limits);
        self.rules.values().any(|rule| rule.limit.is_cut_on_trial())
            || records.any(LimitSpec::is_cut_on_trial)
    }

    /// State of the maps once `tried`, which was planned from `self`, is not in force any more:
    /// the rules of `self` again. What `tried` had used is not handed out in the next step.
    #[must_use]
    pub fn after_trial_of(self, tried: &Self) -> Self {
        let kept = |slot: &u32| self.rules.values().any(|rule| rule.slot == *slot);
        let retired_slots =
            tried.rules.values().map(|rule| rule.slot).filter(|slot| !kept(slot)).collect();
        let mut tables = self.tables;
        tables.retired = retired(&tried.tables, &tables);
        Self { rules: self.rules, retired_slots, next_slot: tried.next_slot, tables }
    }
}
