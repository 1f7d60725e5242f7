//! Where the limits of a packet are: in the bucket of its key, in a shared budget, or in what keys
//! without a bucket share.

use super::scratch::{REPAIR_KEY, Scratch};
use crate::bucket::{Resolved, Slot};
use crate::cell::Cell;
use crate::verdict::Reason;
use crate::wire::{Full, MAX_BUDGETS, MAX_TABLES, Record};
use crate::world::{Keyed as _, World};

/// A record and the bucket that its limits are charged to.
pub(super) struct Held<'m, K> {
    pub(super) record: &'m Record,
    /// Where that is.
    pub(super) slot: Slot,
    pub(super) bucket: K,
    /// The scale bit of its words.
    pub(super) scale: bool,
    /// What [`holder`] finds, 0 for the key's own bucket.
    pub(super) budget: u32,
    /// What to repair when its words turn out to belong to another rule.
    pub(super) repair: u32,
}

impl<K> Held<'_, K> {
    /// What a packet within the limits is counted as.
    #[inline(always)]
    pub(super) const fn within(&self) -> Reason {
        if is_overflow(self.budget) { Reason::Aggregate } else { Reason::Conforming }
    }
}

/// What was found where the limits of a packet should be.
pub(super) enum Found<'m, K> {
    /// No rule, or nothing to charge; the record, if there is one.
    Free(Option<&'m Record>),
    /// The key has no bucket, and its rule says `drop`.
    Full(&'m Record),
    /// Limits to charge.
    Held(Held<'m, K>),
    /// To be repaired: see `Step::repair`.
    Stale(u32),
}

/// Where the limits of a record are charged that do not have the key's own bucket: one more than
/// the index into `BUDGETS`. Behind the budgets, that has what keys without a bucket share, by rule
/// number.
#[inline(always)]
pub(super) const fn shared_by(record: &Record) -> u32 {
    let shared = (MAX_BUDGETS + 1).wrapping_add(record.rule);
    if record.budget == 0 { shared } else { record.budget }
}

/// Whether [`shared_by`] names what keys without a bucket share.
#[inline(always)]
pub(super) const fn is_overflow(budget: u32) -> bool {
    budget > MAX_BUDGETS
}

/// The bucket that [`shared_by`] names.
#[inline(always)]
pub(super) fn holder<W: World>(maps: &W, budget: u32) -> Option<W::Keyed> {
    maps.budget(budget.wrapping_sub(1))
}

/// Finds the limits that a record in `slot` charges; `own` is the key's bucket and its scale bit.
#[inline(always)]
pub(super) fn hold<'m, W: World>(
    maps: &'m W,
    scratch: &Scratch,
    slot: Slot,
    own: Option<(W::Keyed, bool)>,
) -> Found<'m, W::Keyed> {
    let Some(record) = maps.record(slot) else {
        return Found::Free(None);
    };
    if record.is_unlimited() {
        return Found::Free(Some(record));
    }
    if record.budget == 0 {
        if let Some((bucket, scale)) = own {
            let held = Held { record, slot, bucket, scale, budget: 0, repair: REPAIR_KEY };
            return Found::Held(held);
        }
        match record.when_full() {
            Full::Share => {}
            Full::Pass => return Found::Free(Some(record)),
            Full::Drop => return Found::Full(record),
        }
    }
    let budget = shared_by(record);
    let Some(bucket) = holder(maps, budget) else {
        return Found::Free(Some(record));
    };
    let resolved = Resolved::from_raw(bucket.resolved().load());
    // A record does not change in its slot, so a budget needs no new look-up while it is the same.
    let same = resolved.slot() == slot && resolved.generation().knows(record.since);
    let newer = resolved.generation().covers(scratch.generation());
    if resolved.is_converting() || !same && !newer {
        return Found::Stale(slot.index());
    }
    let repair = slot.index();
    let (slot, scale) = (resolved.slot(), resolved.scale());
    match maps.record(slot) {
        Some(record) => Found::Held(Held { record, slot, bucket, scale, budget, repair }),
        None => Found::Stale(repair),
    }
}

/// Finds the limits that a key is charged to.
#[inline(always)]
pub(super) fn find<'m, W: World>(
    maps: &'m W,
    bucket: Option<&W::Keyed>,
    scratch: &Scratch,
    index: u32,
) -> Found<'m, W::Keyed> {
    if let Some(slot) = scratch.fixed(index) {
        return hold(maps, scratch, slot, None);
    }
    let Some(bucket) = bucket else {
        return Found::Stale(REPAIR_KEY);
    };
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if resolved.is_converting() || !resolved.generation().covers(scratch.generation()) {
        return Found::Stale(REPAIR_KEY);
    }
    hold(maps, scratch, resolved.slot(), Some((bucket.clone(), resolved.scale())))
}

/// The bucket of the packet in a table, if it has one.
#[inline(always)]
pub fn bucket<W: World>(maps: &W, scratch: &Scratch, index: u32) -> Option<W::Keyed> {
    if index >= MAX_TABLES || scratch.fixed(index).is_some() {
        return None;
    }
    of_key(maps, scratch, index)
}

/// The bucket of the key of the packet in a table, if there is one.
#[inline(always)]
pub(super) fn of_key<W: World>(maps: &W, scratch: &Scratch, index: u32) -> Option<W::Keyed> {
    maps.keyed(scratch.key(index)?)
}
