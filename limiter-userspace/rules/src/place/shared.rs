//! Limits that nodes share: their names over all nodes, and which lease each one has.

use std::sync::Arc;

use limiter_common::wire::{Algorithm, LimitSpec, Record, lease_of_budget};
use limiter_sharing::fnv::Fnv;
use limiter_sharing::{Shared, SharedId, SharedPlace, SharedRule, SharedSet, SharedTerms};

use super::installed::InstalledTables;
use super::records::{budget_tag, everything};
use crate::compile::{CompiledSet, CompiledTerms};

/// All of a rule set whose tables are `installed`.
pub(super) fn of(set: &CompiledSet<'_>, installed: &InstalledTables) -> SharedSet {
    let mut all = SharedSet::default();
    for budget in &set.budgets {
        let placed = installed.budget(budget_tag(budget.name));
        all.budgets.extend(of_budget(budget.name, &budget.limits.shared, placed));
    }
    for rule in &set.keyed {
        let CompiledTerms::Limits(limits) = &rule.terms else { continue };
        if limits.shared.is_empty() {
            continue;
        }
        if !rule.id.form.has_keys() {
            let name = everything(rule.id.form.direction());
            let placed = installed.budget(budget_tag(name));
            all.budgets.extend(of_budget(name, &limits.shared, placed));
            continue;
        }
        let (slot, table) = (installed.rules.get(&rule.id), installed.ids.get(&rule.id.form));
        if let (Some(slot), Some(table)) = (slot, table) {
            let name: Arc<str> = rule.path.to_string().into();
            let places = (0..).zip(&limits.record.limits).zip(&limits.shared);
            let limits = places.map(|((place, spec), terms)| {
                let mut tag = Fnv::default();
                tag.add(format!("{place}:{}", kind(spec)).as_bytes());
                tag.add(name.as_bytes());
                SharedPlace { place, tag: tag.finish(), terms: *terms }
            });
            let limits = limits.collect();
            all.rules.push(SharedRule { name, slot: *slot, table: *table, limits });
        }
    }
    all
}

fn of_budget(budget: &str, terms: &[SharedTerms], placed: Option<(u32, &Record)>) -> Vec<Shared> {
    let index = placed.and_then(|(_, record)| Some((record.budget.checked_sub(1)?, record)));
    let limits = index.into_iter().flat_map(move |(index, record)| {
        (0..).zip(&record.limits).zip(terms).map(move |((place, spec), terms)| Shared {
            name: format!("{place}:{}:{budget}", kind(spec)).into(),
            id: SharedId::Named,
            lease: lease_of_budget(index, place),
            terms: *terms,
        })
    });
    limits.collect()
}

/// True if a lease of a budget would mean something else: it counts another unit, or in another
/// way. Units of the one must never pass as those of the other, so the budget gets other leases.
pub(super) fn others(old: &Record, new: &Record) -> bool {
    let shared = old.leased & new.leased;
    let both = (0..).zip(old.limits.iter().zip(&new.limits));
    both.filter(|(place, _)| shared & 1_u8.checked_shl(*place).unwrap_or(0) != 0)
        .any(|(_, (old, new))| kind(old) != kind(new))
}

/// The kind of a shared limit: its unit, and whether a bucket or which window counts it. Rate,
/// burst and quota are not part of it, nor is what of them is this node's.
fn kind(spec: &LimitSpec) -> String {
    let count = spec.counts().name();
    let seconds = |nanos: u64| nanos / 1_000_000_000;
    match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => format!("{count}:bucket"),
        Algorithm::FixedWindow => format!("{count}:fixed_{}s", seconds(spec.window().width)),
        // None is shared.
        Algorithm::SlidingSlots => format!("{count}:slots_{}s", seconds(spec.window().width)),
        Algorithm::SlidingCounter => format!("{count}:counter_{}s", seconds(spec.window().width)),
        Algorithm::SlidingLog => format!("{count}:log_{}s", seconds(spec.log().window)),
    }
}
