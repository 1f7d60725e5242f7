//! Finds the bucket to which a packet's limits are charged: that of its key, a shared budget, or
//! the overflow bucket that keys without a bucket share.

use limiter_common::bucket::{Resolved, Slot};
use limiter_common::wire::{Full, MAX_TABLES, Record};

use crate::cell::Cell;
use crate::maps::{Keyed as _, Maps};
use crate::table::result::{BudgetRef, ChargeTarget, Stale};
use crate::table::scratch::Scratch;

pub(crate) enum TargetLookup<'m, K> {
    /// No rule, or nothing to charge; with the record, if there is one.
    Free(Option<&'m Record>),
    /// The key has no bucket, and its rule says `drop` or blocks.
    Full(&'m Record),
    Target(ChargeTarget<'m, K>),
    /// A bucket must be refreshed first.
    Stale(Stale),
}

/// The bucket of a shared budget, or the overflow bucket of a rule.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn budget_bucket<W: Maps>(maps: &W, budget: BudgetRef) -> Option<W::Keyed> {
    maps.budget(budget.index())
}

/// Finds the limits of a record in `slot`; `own` is the key's bucket and its scale bit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn target_of<'m, W: Maps>(
    maps: &'m W,
    scratch: &Scratch,
    slot: Slot,
    own: Option<(W::Keyed, bool)>,
) -> TargetLookup<'m, W::Keyed> {
    let Some(record) = maps.record(slot) else {
        return TargetLookup::Free(None);
    };
    if record.is_unlimited() {
        return TargetLookup::Free(Some(record));
    }
    if record.is_block() {
        return TargetLookup::Full(record);
    }
    if record.budget == 0 {
        if let Some((bucket, scale)) = own {
            let target = ChargeTarget {
                record,
                slot,
                bucket,
                scale,
                budget: BudgetRef::OWN,
                stale: Stale::KEY,
            };
            return TargetLookup::Target(target);
        }
        match record.when_full() {
            Full::Share => {}
            Full::Pass => return TargetLookup::Free(Some(record)),
            Full::Drop => return TargetLookup::Full(record),
        }
    }
    let budget = BudgetRef::of(record);
    let Some(bucket) = budget_bucket(maps, budget) else {
        return TargetLookup::Free(Some(record));
    };
    let stale = Stale::budget_of(slot);
    let resolved = Resolved::from_raw(bucket.resolved().load());
    // A record never changes in its slot, so a budget needs no new look-up while the slot is the
    // same.
    let same = resolved.slot() == slot && resolved.generation().knows(record.since);
    let newer = resolved.generation().covers(scratch.generation());
    if resolved.is_converting() || !same && !newer {
        return TargetLookup::Stale(stale);
    }
    let slot = resolved.slot();
    match maps.record(slot) {
        Some(record) => TargetLookup::Target(ChargeTarget {
            record,
            slot,
            bucket,
            scale: resolved.scale(),
            budget,
            stale,
        }),
        None => TargetLookup::Stale(stale),
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn find_target<'m, W: Maps>(
    maps: &'m W,
    bucket: Option<&W::Keyed>,
    scratch: &Scratch,
    index: u32,
) -> TargetLookup<'m, W::Keyed> {
    if let Some(slot) = scratch.fixed(index) {
        return target_of(maps, scratch, slot, None);
    }
    let Some(bucket) = bucket else {
        return TargetLookup::Stale(Stale::KEY);
    };
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if resolved.is_converting() || !resolved.generation().covers(scratch.generation()) {
        return TargetLookup::Stale(Stale::KEY);
    }
    target_of(maps, scratch, resolved.slot(), Some((bucket.clone(), resolved.scale())))
}

/// The bucket of the packet in a table, if it has one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn bucket<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> Option<W::Keyed> {
    if index >= MAX_TABLES || scratch.fixed(index).is_some() {
        return None;
    }
    // Unknown, because otherwise the compiler omits the mask by which the verifier sees the bound.
    of_key(maps, scratch, scratch.unknown(index))
}

/// The bucket of the key of the packet in a table, if there is one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn of_key<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> Option<W::Keyed> {
    maps.keyed(scratch.key(index)?)
}
