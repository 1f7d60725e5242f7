//! Going back to the rule set before.

use super::Installed;
use super::step::retired;

impl Installed {
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
