//! Limits of a rate that are the largest of their rule so far: [`LimitSpec::is_largest`].
//!
//! Only a raise from one of them to another gives sources the difference at once, so a rule that
//! was ever cut has none, until it is removed. A rule set on trial may be taken back, which would be
//! such a cut: its limits are marked when somebody confirms it.

use limiter_common::wire::{Algorithm, Limit, LimitSpec, MAX_LIMITS, Record, Role};

use super::Plan;
use super::installed::Installed;
use super::used::units;

/// A limit of the source table, marked if it is the largest of its rule; `old` is the one before.
pub(super) fn marked(old: Option<&Limit>, new: Limit) -> Limit {
    let old = old.filter(|old| old.rule == new.rule && !old.is_unlimited());
    let largest = !new.is_unlimited() && is_largest(old.map(token).as_ref(), &token(&new));
    new.with_largest(largest)
}

/// A record whose limits are marked where they are the largest of their rule.
pub(super) fn marked_record(old: Option<&Record>, mut new: Record) -> Record {
    let old = old.filter(|old| old.rule == new.rule && !old.is_unlimited());
    let before = |place: usize| {
        old.and_then(|old| old.limits.get(place).filter(|_| place < usize::from(old.count)))
    };
    let limits = new.limits.iter_mut().take(usize::from(new.count).min(MAX_LIMITS));
    for (place, limit) in limits.enumerate() {
        *limit = limit.with_largest(is_largest(before(place), limit));
    }
    new
}

fn is_largest(old: Option<&LimitSpec>, new: &LimitSpec) -> bool {
    new.is_rate()
        && old.is_none_or(|old| {
            old.is_largest() && old.counts() == new.counts() && units(new) >= units(old)
        })
}

fn token(limit: &Limit) -> LimitSpec {
    LimitSpec::of_rate(Algorithm::TokenBucket, limit, Role::Hard)
}

impl Plan {
    /// The plan for a rule set on trial: none of its new limits is marked as the largest.
    #[must_use]
    pub fn on_trial(mut self) -> Self {
        let installed = &mut self.installed;
        for (slot, limit) in &mut self.limits {
            *limit = limit.with_largest(false);
            let rules = installed.rules.values_mut().filter(|rule| rule.slot == *slot);
            rules.for_each(|rule| rule.limit = *limit);
        }
        for (slot, record) in &mut self.tables.records {
            record.limits = record.limits.map(|limit| limit.with_largest(false));
            installed.tables.records.entry(*slot).and_modify(|installed| *installed = *record);
        }
        self
    }
}

impl Installed {
    /// Marks the limits that a trial brought, now that it is confirmed; `before` was in force
    /// before it.
    pub fn mark_confirmed(&mut self, before: &Self) {
        for (selector, rule) in &mut self.rules {
            let old = before.rules.get(selector);
            if old.is_none_or(|old| old.slot != rule.slot) {
                rule.limit = marked(old.map(|old| &old.limit), rule.limit);
            }
        }
        let kept = &before.tables;
        let of_rules = self.tables.rules.iter().map(|(id, slot)| (*slot, kept.record(id)));
        let slots: std::collections::BTreeMap<u32, Option<&Record>> = of_rules.collect();
        for (slot, record) in &mut self.tables.records {
            if kept.records.contains_key(slot) {
                continue;
            }
            let old = if record.budget_tag == 0 {
                slots.get(slot).copied().flatten()
            } else {
                kept.records.values().find(|old| old.budget_tag == record.budget_tag)
            };
            *record = marked_record(old, *record);
        }
    }
}
