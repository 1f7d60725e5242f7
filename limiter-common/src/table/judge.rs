//! One packet in one table: the look, the charge, and taking the charge back.
//!
//! All tables are looked at before any is charged, so a packet that one of them drops is charged to
//! none. Another CPU may use up a limit between the look and the charge: then what was charged
//! already is given back, word by word, where nobody has charged the word since; otherwise it stays
//! charged, which errs to the safe side.

use core::hint::black_box;

use super::over::{CONFORMING, MARKED, over, weight};
use super::ready::is_converting;
use super::scratch::{Planned, REPAIR_KEY};
use super::{Code, Keyed, PLACES, Scratch, Tables, limit};
use crate::bucket::{Resolved, Slot};
use crate::cell::Cell;
use crate::meter::{Charged, Peek};
use crate::rounds::Rounds;
use crate::verdict::Reason;
use crate::wire::{RULE_NONE, Record, Role};

/// A record and the bucket that its limits are charged to.
pub(super) struct Held<'m, K> {
    pub(super) record: &'m Record,
    /// Where that is.
    slot: Slot,
    pub(super) bucket: K,
    /// The scale bit of its words.
    scale: bool,
    /// One more than the index of the shared budget, 0 for the key's own bucket.
    budget: u32,
    /// What to repair when its words turn out to belong to another rule.
    pub(super) repair: u32,
}

/// What was found where the limits of a packet should be.
pub(super) enum Found<'m, K> {
    /// No rule, or nothing to charge; the record, if there is one.
    Free(Option<&'m Record>),
    /// Limits to charge.
    Held(Held<'m, K>),
    /// To be repaired: see `Step::repair`.
    Stale(u32),
}

/// Finds the limits that a record in `slot` charges; `own` is the key's bucket and its scale bit.
#[inline(always)]
pub(super) fn hold<'m, T: Tables>(
    maps: &'m T,
    scratch: &Scratch,
    slot: Slot,
    own: Option<(T::Keyed, bool)>,
) -> Found<'m, T::Keyed> {
    let Some(record) = maps.record(slot) else {
        return Found::Free(None);
    };
    if record.is_unlimited() {
        return Found::Free(Some(record));
    }
    if record.budget == 0 {
        return match own {
            Some((bucket, scale)) => {
                Found::Held(Held { record, slot, bucket, scale, budget: 0, repair: REPAIR_KEY })
            }
            None => Found::Free(Some(record)),
        };
    }
    let Some(bucket) = maps.budget(record.budget.wrapping_sub(1)) else {
        return Found::Free(Some(record));
    };
    let resolved = Resolved::from_raw(bucket.resolved().load());
    // A record does not change in its slot, so a budget needs no new look-up while it is the same.
    let same = resolved.slot() == slot && resolved.generation().knows(record.since);
    let newer = resolved.generation().covers(scratch.generation());
    if is_converting(resolved) || !same && !newer {
        return Found::Stale(slot.index());
    }
    let budget = record.budget;
    let repair = slot.index();
    let (slot, scale) = (resolved.slot(), resolved.scale());
    match maps.record(slot) {
        Some(record) => Found::Held(Held { record, slot, bucket, scale, budget, repair }),
        None => Found::Stale(repair),
    }
}

/// Finds the limits that a key is charged to.
#[inline(always)]
fn find<'m, T: Tables>(
    maps: &'m T,
    bucket: Option<T::Keyed>,
    scratch: &Scratch,
    index: u32,
) -> Found<'m, T::Keyed> {
    if let Some(slot) = scratch.fixed(index) {
        return hold(maps, scratch, slot, None);
    }
    let Some(bucket) = bucket else {
        return Found::Stale(REPAIR_KEY);
    };
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if is_converting(resolved) || !resolved.generation().covers(scratch.generation()) {
        return Found::Stale(REPAIR_KEY);
    }
    hold(maps, scratch, resolved.slot(), Some((bucket, resolved.scale())))
}

/// What the limits of a record say of the packet, without charging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Sight {
    /// It is within all of them.
    Within = 0,
    /// It is over a soft one.
    Soft = 1,
    /// It is over a hard one.
    Over = 2,
    /// The bucket was pointed at another rule meanwhile.
    Moved = 3,
}

#[inline(always)]
pub(super) fn look<T: Tables>(maps: &T, scratch: &Scratch, held: &Held<'_, T::Keyed>) -> Sight {
    maps.sight(scratch, &held.bucket, held.slot, held.scale)
}

/// Looks at the limits of the record in a slot, whose state is in `bucket`.
#[inline(always)]
pub fn sight<T: Tables>(
    maps: &T,
    scratch: &Scratch,
    bucket: &T::Keyed,
    slot: Slot,
    scale: bool,
) -> Sight {
    let Some(record) = maps.record(slot) else {
        return Sight::Moved;
    };
    let mut soft = false;
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(PLACES) {
        if place >= u32::from(record.count) {
            break;
        }
        let role = role(record, place);
        if !matches!(role, Role::Excess) || soft {
            match maps.peek_limit(scratch, bucket, slot, place, scale) {
                Peek::Conforming => {}
                Peek::Moved => return Sight::Moved,
                Peek::Over if matches!(role, Role::Soft) => soft = true,
                Peek::Over => return Sight::Over,
            }
        }
    }
    if soft { Sight::Soft } else { Sight::Within }
}

#[inline(always)]
fn role(record: &Record, place: u32) -> Role {
    // All of them in one word, and not that of one: see [`Scratch::unknown`].
    let [a, b, c, d] = &record.limits;
    let roles = u32::from_le_bytes([a.role, b.role, c.role, d.role]);
    Role::from_raw((black_box(roles) >> (place.wrapping_mul(8) & 31) & 0xff) as u8)
}

/// Looks at the packet in one table and plans what to do there.
#[inline(always)]
pub(super) fn peek<T: Tables>(
    maps: &T,
    bucket: Option<T::Keyed>,
    scratch: &Scratch,
    index: u32,
) -> Code {
    let mut planned = Planned::Nothing;
    let mut rule = RULE_NONE;
    let mut reason = Reason::Conforming;
    let mut action = 0;
    let mut repair = REPAIR_KEY;
    let mut code = Code::Ready;
    match find(maps, bucket, scratch, index) {
        Found::Stale(what) => {
            repair = what;
            code = Code::Stale;
        }
        Found::Free(None) => {}
        Found::Free(Some(record)) => {
            planned = Planned::Count;
            rule = counted_rule(record);
            reason = if record.is_unlimited() { Reason::Unlimited } else { Reason::Untracked };
        }
        Found::Held(held) => {
            rule = held.record.rule;
            match look(maps, scratch, &held) {
                Sight::Within => {
                    planned = Planned::Charge;
                    rule = counted_rule(held.record);
                }
                Sight::Soft => {
                    planned = Planned::Charge;
                    reason = Reason::Marked;
                    action = u32::from(held.record.soft_action);
                }
                Sight::Moved => {
                    repair = held.repair;
                    code = Code::Stale;
                }
                Sight::Over if held.record.is_shadow() => {
                    planned = Planned::Count;
                    reason = Reason::Shadow;
                }
                Sight::Over => {
                    action = u32::from(held.record.action);
                    let over = over(maps, scratch, action);
                    planned = over.planned;
                    reason = over.reason;
                    code = over.code;
                    repair = over.repair;
                }
            }
        }
    }
    if let Some(step) = scratch.step(index) {
        step.planned.set(planned as u32);
        step.weight.set(if planned as u32 == Planned::Nothing as u32 { 0 } else { weight(reason) });
        step.rule.set(rule);
        step.reason.set(reason.index());
        step.action.set(action);
        step.repair.set(repair);
    }
    code
}

/// Does in one table what the look has planned.
#[inline(always)]
pub(super) fn charge<T: Tables>(
    maps: &T,
    bucket: Option<T::Keyed>,
    scratch: &Scratch,
    index: u32,
) -> Code {
    let Some(step) = scratch.step(index) else {
        return Code::Ready;
    };
    step.charges.set(0);
    step.budget.set(0);
    let (planned, action) = (step.planned.get(), step.action.get());
    let found = match Planned::from_raw(planned) {
        Planned::Nothing => return Code::Ready,
        Planned::Count => {
            settle(maps, bucket, scratch, index);
            return Code::Ready;
        }
        Planned::Charge => find(maps, bucket.clone(), scratch, index),
        Planned::Class => match maps.action(action) {
            Some(action) => hold(maps, scratch, Slot::new(action.target), None),
            None => Found::Stale(REPAIR_KEY),
        },
    };
    let Found::Held(held) = found else {
        return Code::Contended;
    };
    if let Some(step) = scratch.step(index) {
        step.budget.set(held.budget);
    }
    let soft = match charge_limits(maps, scratch, &held, index) {
        Ok(soft) => soft,
        Err(code) => {
            give_back(maps, bucket, scratch, index);
            return code;
        }
    };
    if let Some(step) = scratch.step(index)
        && matches!(Planned::from_raw(planned), Planned::Charge)
    {
        // Who was under its soft limit at the look may be over it now, and the other way round.
        let reason = if soft { Reason::Marked } else { Reason::Conforming };
        step.reason.set(reason.index());
        step.weight.set(if soft { MARKED } else { CONFORMING });
        step.action.set(if soft { u32::from(held.record.soft_action) } else { 0 });
        step.rule.set(if soft { held.record.rule } else { counted_rule(held.record) });
    }
    // A table without keys has no bucket but the budget.
    let counted = if bucket.is_none() { Some(held.bucket) } else { bucket };
    settle(maps, counted, scratch, index);
    Code::Ready
}

/// Charges every limit of a record; says whether a soft one was over.
#[inline(always)]
pub(super) fn charge_limits<T: Tables>(
    maps: &T,
    scratch: &Scratch,
    held: &Held<'_, T::Keyed>,
    index: u32,
) -> Result<bool, Code> {
    match maps.pay(scratch, &held.bucket, held.slot, held.scale, index) {
        Paid::Hard => Ok(false),
        Paid::Soft => Ok(true),
        Paid::Over => Err(Code::Over),
        Paid::Contended => Err(Code::Contended),
    }
}

/// How charging all limits of a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Paid {
    /// The packet is within all of them.
    Hard = 0,
    /// It is over a soft one.
    Soft = 1,
    /// It is over a hard one.
    Over = 2,
    /// Other CPUs were in the way.
    Contended = 3,
}

/// Charges the packet to the limits of the record in a slot, whose state is in `bucket`.
#[inline(always)]
pub fn pay<T: Tables>(
    maps: &T,
    scratch: &Scratch,
    bucket: &T::Keyed,
    slot: Slot,
    scale: bool,
    index: u32,
) -> Paid {
    let Some(record) = maps.record(slot) else {
        return Paid::Contended;
    };
    let mut soft = false;
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(PLACES) {
        if place >= u32::from(record.count) {
            break;
        }
        let role = role(record, place);
        if !matches!(role, Role::Excess) || soft {
            match maps.charge_limit(scratch, bucket, slot, place, scale, index) {
                Charged::Conforming => {}
                Charged::Over | Charged::Contended if matches!(role, Role::Soft) => soft = true,
                Charged::Over => return Paid::Over,
                Charged::Contended | Charged::Moved => return Paid::Contended,
            }
        }
    }
    if soft { Paid::Soft } else { Paid::Hard }
}

/// Counts what a table let pass.
#[inline(always)]
fn settle<T: Tables>(maps: &T, bucket: Option<T::Keyed>, scratch: &Scratch, index: u32) {
    let Some(step) = scratch.step(index) else {
        return;
    };
    let reason = Reason::from_index(step.reason.get());
    maps.count_rule(step.rule.get(), reason, scratch.length(), true);
    if let Some(bucket) = bucket {
        bucket.count(true, true);
    }
}

/// Gives back what the step has charged.
#[inline(always)]
fn give_back<T: Tables>(maps: &T, bucket: Option<T::Keyed>, scratch: &Scratch, index: u32) {
    let budget = scratch.step(index).map_or(0, |step| step.budget.get());
    let holder = if budget == 0 { bucket } else { maps.budget(budget.wrapping_sub(1)) };
    if let Some(holder) = holder {
        limit::give_back(scratch, &holder, index);
    }
}

/// Takes back a whole step: its charges and its counts.
#[inline(always)]
pub(super) fn undo<T: Tables>(maps: &T, bucket: Option<T::Keyed>, scratch: &Scratch, index: u32) {
    let Some(step) = scratch.step(index) else {
        return;
    };
    if matches!(Planned::from_raw(step.planned.get()), Planned::Nothing) {
        return;
    }
    let reason = Reason::from_index(step.reason.get());
    maps.count_rule(step.rule.get(), reason, scratch.length(), false);
    let budget = step.budget.get();
    let counted = if budget != 0 && bucket.is_none() {
        maps.budget(budget.wrapping_sub(1))
    } else {
        bucket.clone()
    };
    if let Some(counted) = counted {
        counted.count(true, false);
    }
    give_back(maps, bucket, scratch, index);
}

/// The rule that counts a packet which passes.
#[inline(always)]
fn counted_rule(record: &Record) -> u32 {
    if record.companion != 0 { RULE_NONE } else { record.rule }
}
