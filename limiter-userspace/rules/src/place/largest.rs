//! Limits of a rate that are the largest of their rule so far: [`LimitSpec::is_largest`].
//!
//! Only a raise from one of them to another gives sources the difference at once, so a rule that
//! was ever cut has none, until it is removed. A rule set on trial may be taken back, which would
//! be such a cut: its limits are marked when somebody confirms it.

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::wire::{Algorithm, Limit, LimitSpec, MAX_LIMITS, Record, Role};

use super::installed::Installed;
use crate::compile::TableForm;
use crate::model::Selector;

/// What was in force for the keys of a rule before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before<'a, T> {
    Rule(&'a T),
    /// Maybe other rules, of which a bucket comes with what they left of it.
    Others,
    Nothing,
}

/// A limit of the source table, marked if it is the largest of its rule.
pub(super) fn marked(before: Before<'_, Limit>, new: Limit) -> Limit {
    let old = match before {
        Before::Rule(old) if !old.is_unlimited() => Some(token(old)),
        _ => None,
    };
    let is_taken = matches!(before, Before::Others);
    new.with_largest(!new.is_unlimited() && !is_taken && is_largest(old.as_ref(), &token(&new)))
}

/// A record whose limits are marked where they are the largest of their rule.
pub(super) fn marked_record(before: Before<'_, Record>, mut new: Record) -> Record {
    let old = match before {
        Before::Rule(old) if !old.is_unlimited() => {
            old.limits.get(..usize::from(old.count)).unwrap_or_default()
        }
        _ => &[],
    };
    let is_taken = matches!(before, Before::Others);
    let limits = new.limits.iter_mut().take(usize::from(new.count).min(MAX_LIMITS));
    for (place, limit) in limits.enumerate() {
        *limit = limit.with_largest(!is_taken && is_largest(old.get(place), limit));
    }
    new
}

fn is_largest(old: Option<&LimitSpec>, new: &LimitSpec) -> bool {
    new.is_rate()
        && old.is_none_or(|old| {
            old.is_largest() && old.counts() == new.counts() && units(new) >= units(old)
        })
}

/// A limit of the source table as one of the others.
pub(super) fn token(limit: &Limit) -> LimitSpec {
    LimitSpec::of_rate(Algorithm::TokenBucket, limit, Role::Hard)
}

/// The units that a limit lets pass at once.
pub(super) fn units(spec: &LimitSpec) -> u128 {
    match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let rate = spec.rate();
            let units =
                (u128::from(rate.tolerance) << rate.shift) / u128::from(rate.increment.max(1));
            units + u128::from(spec.algorithm() == Algorithm::LeakyBucket)
        }
        Algorithm::SlidingLog => spec.log().size.into(),
        _ => spec.window().limit.into(),
    }
}

impl Installed {
    /// True if a rule in the source table holds all of these sources.
    pub(super) fn holds(&self, selector: &Selector) -> bool {
        !self.rules.is_empty() && selector.wider().any(|wider| self.rules.contains_key(&wider))
    }

    /// Marks the limits that a trial brought, now that it is confirmed; `before` was in force
    /// before it.
    pub fn mark_confirmed(&mut self, before: &Self) {
        for (selector, rule) in &mut self.rules {
            let was = match before.rules.get(selector) {
                Some(old) if old.slot == rule.slot => continue,
                Some(old) => Before::Rule(&old.limit),
                None if before.holds(selector) => Before::Others,
                None => Before::Nothing,
            };
            rule.limit = marked(was, rule.limit);
        }
        let kept = &before.tables;
        let held: BTreeSet<TableForm> = kept.rules.keys().map(|id| id.form).collect();
        let of_rules = self.tables.rules.iter().map(|(id, slot)| {
            let was = match kept.record(id) {
                Some(old) => Before::Rule(old),
                None if held.contains(&id.form) => Before::Others,
                None => Before::Nothing,
            };
            (*slot, was)
        });
        let slots: BTreeMap<u32, Before<'_, Record>> = of_rules.collect();
        for (slot, record) in &mut self.tables.records {
            if kept.records.contains_key(slot) {
                continue;
            }
            let was = if record.budget_tag == 0 {
                slots.get(slot).copied()
            } else {
                let old = kept.records.values().find(|old| old.budget_tag == record.budget_tag);
                old.map(Before::Rule)
            };
            *record = marked_record(was.unwrap_or(Before::Nothing), *record);
        }
    }
}
