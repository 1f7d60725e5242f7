//! Limits that nodes share: their names over all nodes, and which lease each one has.

use limiter_common::wire::{Algorithm, Count, LimitSpec, Record, lease_of_budget};

use super::installed::InstalledTables;
use super::records::budget_tag;
use crate::cluster::Shared;
use crate::rules::compile::CompiledBudget;

/// All of a rule set whose tables are `installed`.
pub(super) fn of(budgets: &[CompiledBudget<'_>], installed: &InstalledTables) -> Vec<Shared> {
    let mut all = Vec::new();
    for budget in budgets.iter().filter(|budget| !budget.shared.is_empty()) {
        let Some((_, record)) = installed.budget(budget_tag(budget.name)) else {
            continue;
        };
        let Some(index) = record.budget.checked_sub(1) else {
            continue;
        };
        for ((place, spec), terms) in (0..).zip(&record.limits).zip(&budget.shared) {
            let name = format!("{place}:{}:{}", kind(spec), budget.name);
            all.push(Shared { name, lease: lease_of_budget(index, place), terms: *terms });
        }
    }
    all
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
    let count = match spec.counts() {
        Count::Packets => "packets",
        Count::Bytes => "bytes",
        Count::Syns => "syns",
        Count::Flows => "flows",
    };
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
