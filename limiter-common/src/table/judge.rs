//! One packet in one table: the look, the charge, and taking the charge back.
//!
//! All tables are looked at before any is charged, so a packet that one of them drops is charged to
//! none. Another CPU may use up a limit between the look and the charge: then what was charged
//! already is given back, word by word, where nobody has charged the word since; otherwise it stays
//! charged, which errs to the safe side.

use super::code::{Code, PLACES};
use super::held::{self, Found, Held, find, hold, holder, is_overflow};
use super::limit::{self, charge_limit};
use super::over::{count_class, over};
use super::scratch::{Planned, REPAIR_KEY, SOURCE_CLASS, Scratch, Step};
use super::sight::{Sight, look, role};
use super::weight::{MARKED, weight};
use crate::bucket::Slot;
use crate::meter::Charged;
use crate::register::variants;
use crate::rounds::Rounds;
use crate::step::step;
use crate::verdict::Reason;
use crate::wire::{RULE_NONE, Record, Role};
use crate::world::{Keyed as _, World};

/// Looks at the packet in one table and plans what to do there.
#[inline(always)]
pub fn peek<W: World>(maps: &W, scratch: &Scratch, bucket: Option<&W::Keyed>, index: u32) -> Code {
    if let Some(bucket) = bucket {
        bucket.touch(scratch.now());
    }
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
            rule = record.rule;
            reason = if record.is_unlimited() { Reason::Unlimited } else { Reason::Untracked };
        }
        Found::Full(record) => {
            rule = record.rule;
            if record.is_shadow(scratch.daemon_lost()) {
                planned = Planned::Count;
                reason = Reason::Shadow;
            } else {
                reason = Reason::TableFull;
                code = Code::Over;
            }
        }
        Found::Held(held) => {
            rule = held.record.rule;
            match look(maps, scratch, &held) {
                Sight::Within => {
                    planned = Planned::Charge;
                    reason = held.within();
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
                Sight::Over if held.record.is_shadow(scratch.daemon_lost()) => {
                    planned = Planned::Count;
                    reason = Reason::Shadow;
                }
                // Who shares with strangers is not banned, told or sent elsewhere for what they
                // did.
                Sight::Over if is_overflow(held.budget) => {
                    reason = Reason::OverAggregate;
                    code = Code::Over;
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

/// Does in one table what the look has planned. A bucket that was made meanwhile is looked up.
#[inline(always)]
pub fn charge<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
) -> Code {
    let bucket = bucket.cloned().or_else(|| held::bucket(maps, scratch, index));
    let bucket = bucket.as_ref();
    match step!(prepare(maps, scratch; bucket, index)) {
        Prepared::Done => return Code::Ready,
        Prepared::Contended => return Code::Contended,
        Prepared::Pay => {}
    }
    let Some(step) = scratch.step(index) else {
        return Code::Ready;
    };
    let (slot, scale) = (Slot::new(step.slot.get() >> 1), step.slot.get() & 1 != 0);
    let budget = step.budget.get();
    let held = if budget == 0 { bucket.cloned() } else { holder(maps, budget) };
    let Some(held) = held else {
        return Code::Contended;
    };
    let paid = match pay_at_once(maps, scratch, &held, slot, scale, index) {
        Charged::Conforming => Paid::Hard,
        Charged::Over => Paid::Over,
        Charged::Moved => Paid::Contended,
        Charged::Contended => step!(pay(maps, scratch; &held, slot, scale, index)),
    };
    match paid {
        Paid::Hard | Paid::Soft => {
            step!(passed(maps, scratch; bucket, index, matches!(paid, Paid::Soft)));
            Code::Ready
        }
        Paid::Over | Paid::Contended => {
            step!(give_back(maps, scratch; bucket, index));
            if matches!(paid, Paid::Over) { Code::Over } else { Code::Contended }
        }
    }
}

/// What is left to do for a packet in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Prepared {
    /// Nothing.
    Done = 0,
    /// The limits are to be charged that the step names.
    Pay = 1,
    /// Other CPUs were in the way.
    Contended = 2,
}

variants!(Prepared: Done Pay, else Contended; lost Contended);

/// The first half of [`charge`]: leaves in the step which limits to charge.
#[inline(always)]
pub fn prepare<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
) -> Prepared {
    let Some(step) = scratch.step(index) else {
        return Prepared::Done;
    };
    step.charges.set(0);
    step.budget.set(0);
    let (planned, action) = (step.planned.get(), step.action.get());
    let found = match Planned::from_raw(planned) {
        Planned::Nothing => return Prepared::Done,
        Planned::Count => {
            settle(maps, bucket.cloned(), scratch, index);
            return Prepared::Done;
        }
        Planned::Charge => find(maps, bucket, scratch, index),
        Planned::Class => match maps.action(action) {
            Some(action) => hold(maps, scratch, Slot::new(action.target), None),
            None => Found::Stale(REPAIR_KEY),
        },
    };
    let Found::Held(held) = found else {
        return Prepared::Contended;
    };
    if let Some(step) = scratch.step(index) {
        step.budget.set(held.budget);
        step.slot.set(held.slot.index() << 1 | u32::from(held.scale));
    }
    Prepared::Pay
}

/// Notes that a packet passed whose limits are charged, and counts it. `soft` says that it was over
/// a soft one.
#[inline(always)]
pub fn passed<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
    soft: bool,
) {
    let Some(step) = scratch.step(index) else {
        return;
    };
    let budget = step.budget.get();
    let planned = Planned::from_raw(step.planned.get());
    if matches!(planned, Planned::Class) {
        step!(count_class(maps, scratch; index, true, true));
    }
    if matches!(planned, Planned::Charge)
        && let Some(record) = maps.record(Slot::new(step.slot.get() >> 1))
    {
        // Who was under its soft limit at the look may be over it now, and the other way round.
        let within = if is_overflow(budget) { Reason::Aggregate } else { Reason::Conforming };
        let reason = if soft { Reason::Marked } else { within };
        step.reason.set(reason.index());
        step.weight.set(if soft { MARKED } else { weight(within) });
        step.action.set(if soft { u32::from(record.soft_action) } else { 0 });
    }
    // A table without keys has no bucket but the budget.
    let counted =
        if budget != 0 && bucket.is_none() { holder(maps, budget) } else { bucket.cloned() };
    settle(maps, counted, scratch, index);
}

/// Charges every limit of a record; says whether a soft one was over.
#[inline(always)]
pub(super) fn charge_limits<W: World>(
    maps: &W,
    scratch: &Scratch,
    held: &Held<'_, W::Keyed>,
    index: u32,
) -> Result<bool, Code> {
    match step!(pay(maps, scratch; &held.bucket, held.slot, held.scale, index)) {
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

variants!(Paid: Hard Soft Over, else Contended; lost Contended);

/// The most common way of [`pay`]: one token bucket, and nobody in the way. [`Charged::Contended`]
/// for all else.
#[inline(always)]
fn pay_at_once<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    scale: bool,
    index: u32,
) -> Charged {
    match maps.record(slot).and_then(Record::alone) {
        Some(spec) => limit::attempt_alone(maps, scratch, bucket, spec, scale, index),
        None => Charged::Contended,
    }
}

/// Charges the packet to the limits of the record in a slot, whose state is in `bucket`.
#[inline(always)]
pub fn pay<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
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
            match charge_limit(maps, scratch, bucket, slot, place, scale, index) {
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
fn settle<W: World>(maps: &W, bucket: Option<W::Keyed>, scratch: &Scratch, index: u32) {
    let Some(step) = scratch.step(index) else {
        return;
    };
    count(maps, scratch, step, index, true);
    if let Some(bucket) = bucket {
        bucket.count(true, true);
    }
}

/// Counts a packet that passes under the rule of step `index`; takes it back when `add` is false.
/// That of the class of the source table is the rule of the outcome, which is counted at the end.
#[inline(always)]
fn count<W: World>(maps: &W, scratch: &Scratch, step: &Step, index: u32, add: bool) {
    if index == SOURCE_CLASS {
        return;
    }
    let reason = Reason::from_index(step.reason.get());
    maps.count_rule(step.rule.get(), reason, scratch.length(), add);
}

/// Gives back what the step has charged.
#[inline(always)]
pub fn give_back<W: World>(maps: &W, scratch: &Scratch, bucket: Option<&W::Keyed>, index: u32) {
    let budget = scratch.step(index).map_or(0, |step| step.budget.get());
    let holder = if budget == 0 { bucket.cloned() } else { holder(maps, budget) };
    if let Some(holder) = holder {
        limit::give_back(scratch, &holder, index);
    }
}

/// Takes back a whole step: its charges and its counts.
#[inline(always)]
pub(super) fn undo<W: World>(maps: &W, bucket: Option<&W::Keyed>, scratch: &Scratch, index: u32) {
    let Some(step) = scratch.step(index) else {
        return;
    };
    if matches!(Planned::from_raw(step.planned.get()), Planned::Nothing) {
        return;
    }
    count(maps, scratch, step, index, false);
    step!(count_class(maps, scratch; index, true, false));
    let budget = step.budget.get();
    let counted =
        if budget != 0 && bucket.is_none() { holder(maps, budget) } else { bucket.cloned() };
    if let Some(counted) = counted {
        counted.count(true, false);
    }
    give_back(maps, scratch, bucket, index);
}
