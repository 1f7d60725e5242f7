//! Charges one packet in one table after the check ([`crate::table::peek`]), and undoes that.
//!
//! All tables are checked before any is charged, so a packet that one of them drops is charged to
//! none. Another CPU may use up a limit between the check and the charge. Then earlier charges are
//! undone word by word, if nobody has charged the word since; otherwise it stays charged, which
//! errs on the safe side. Then there is a second check.

use limiter_common::bucket::Slot;
use limiter_common::verdict::Reason;
use limiter_common::wire::{MAX_TABLES, Role};

use super::over::count_class;
use crate::call::call;
use crate::maps::{Keyed as _, Maps};
use crate::meter::Charged;
use crate::register::variants;
use crate::rounds::Rounds;
use crate::table::buckets::target;
use crate::table::buckets::target::{TargetLookup, budget_bucket, find_target, target_of};
use crate::table::limits::check::role;
use crate::table::limits::delay::delay;
use crate::table::limits::limit;
use crate::table::limits::limit::charge_limit;
use crate::table::limits::weight::{MARKED, weight};
use crate::table::peek::peek;
use crate::table::plain_route::plain::{AtOnce, SECOND, charge_at_once};
use crate::table::result::{BudgetRef, ChargeTarget, PLACES, Stale, TableResult};
use crate::table::scratch::{Account, Plan, SOURCE_CLASS, Scratch};

/// Carries out the plan of the check in one table. Looks up a bucket that was made meanwhile.
/// Checks again if another CPU has used up the limit since the check, because not every rule drops
/// packets over its limit. If the packet loses the race after that as well, it counts as over the
/// limit, whatever its rule does.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
) -> TableResult {
    let Some(account) = scratch.account(index) else {
        return TableResult::READY;
    };
    if account.plan.get() == Plan::Nothing as u32 {
        return TableResult::READY;
    }
    let found = bucket.cloned().or_else(|| target::bucket(maps, scratch, index));
    // After this, the bucket's presence is not tested again: without `CAP_PERFMON`, the verifier
    // would continue with a bucket that is present but has no address.
    let Some(bucket) = found else {
        let result = call!(charge_shared(maps, scratch; index));
        if result != TableResult::OVER || index >= MAX_TABLES {
            return result;
        }
        let again = call!(peek(maps, scratch; None::<&W::Keyed>, index));
        if again != TableResult::READY {
            return again;
        }
        return call!(charge_shared(maps, scratch; index));
    };
    let result = match charge_at_once(maps, scratch, &bucket, account, index) {
        AtOnce::ALL => {
            // The check has written this to the account.
            maps.count_rule(account.rule.get(), Reason::Conforming, scratch.size::<W>(), true);
            bucket.count(true, scratch.size::<W>().packets());
            return TableResult::READY;
        }
        AtOnce::OVER => TableResult::OVER,
        AtOnce::FIRST => call!(charge_rest(maps, scratch; &bucket, index)),
        _ => call!(charge_planned(maps, scratch; &bucket, index)),
    };
    if result != TableResult::OVER {
        return result;
    }
    let again = call!(peek(maps, scratch; Some(&bucket), index));
    if again != TableResult::READY {
        return again;
    }
    call!(charge_planned(maps, scratch; &bucket, index))
}

/// Charges the second of two limits, after the first.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_rest<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    index: u32,
) -> TableResult {
    let Some(account) = scratch.account(index) else {
        return TableResult::READY;
    };
    let (slot, scale) = account.target();
    let charged = match charge_limit(maps, scratch, bucket, slot, SECOND, scale, index) {
        Charged::Conforming => RecordCharge::Within,
        Charged::Over => RecordCharge::Over,
        Charged::Contended | Charged::Moved => RecordCharge::Contended,
    };
    end(maps, scratch, Some(bucket), index, charged)
}

/// Carries out the plan for a key with a bucket.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_planned<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    index: u32,
) -> TableResult {
    charge_by_plan(maps, scratch, Some(bucket), index)
}

/// Carries out the plan for a key without a bucket, or for a table without keys.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_shared<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> TableResult {
    charge_by_plan(maps, scratch, None, index)
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge_by_plan<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
) -> TableResult {
    match call!(plan_charge(maps, scratch; bucket, index)) {
        ChargePlan::Done => return TableResult::READY,
        ChargePlan::Contended => return TableResult::CONTENDED,
        ChargePlan::Charge => {}
    }
    let Some(account) = scratch.account(index) else {
        return TableResult::READY;
    };
    let (slot, scale) = account.target();
    let budget = account.budget.get();
    let charged_to = if budget.is_own() { bucket.cloned() } else { budget_bucket(maps, budget) };
    let Some(charged_to) = charged_to else {
        return TableResult::CONTENDED;
    };
    let charged = call!(charge_record(maps, scratch; &charged_to, slot, scale, index));
    end(maps, scratch, bucket, index, charged)
}

/// Ends a charge: counts the packet, or undoes the charges.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn end<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
    charged: RecordCharge,
) -> TableResult {
    if matches!(charged, RecordCharge::Within | RecordCharge::Soft) {
        call!(note_passed(maps, scratch; bucket, index, matches!(charged, RecordCharge::Soft)));
        return TableResult::READY;
    }
    call!(give_back(maps, scratch; bucket, index));
    if matches!(charged, RecordCharge::Over) { TableResult::OVER } else { TableResult::CONTENDED }
}

/// What remains to be done of a planned charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChargePlan {
    /// Nothing is left.
    Done = 0,
    /// The limits in the account must be charged.
    Charge = 1,
    /// Other CPUs interfered.
    Contended = 2,
}

variants!(ChargePlan: Done Charge, else Contended; lost Contended);

/// The first half of [`charge`]: writes into the account which limits to charge.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn plan_charge<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
) -> ChargePlan {
    let Some(account) = scratch.account(index) else {
        return ChargePlan::Done;
    };
    account.charges.set(0);
    account.budget.set(BudgetRef::OWN);
    let (plan, action) = (account.plan.get(), account.action.get());
    let found = match Plan::from_raw(plan) {
        Plan::Nothing => return ChargePlan::Done,
        Plan::Count => {
            count_passed(maps, bucket.cloned(), scratch, index);
            return ChargePlan::Done;
        }
        Plan::Charge => find_target(maps, bucket, scratch, index),
        Plan::Class => match maps.action(action) {
            Some(action) => target_of(maps, scratch, Slot::new(action.target), None),
            None => TargetLookup::Stale(Stale::KEY),
        },
    };
    let TargetLookup::Target(target) = found else {
        return ChargePlan::Contended;
    };
    if let Some(account) = scratch.account(index) {
        account.set_target(&target);
    }
    ChargePlan::Charge
}

/// Records and counts a packet that passed with its limits charged. `soft` means that it was over a
/// soft limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn note_passed<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
    soft: bool,
) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    let budget = account.budget.get();
    let plan = Plan::from_raw(account.plan.get());
    if matches!(plan, Plan::Charge)
        && let Some(record) = maps.record(account.target().0)
    {
        // A packet under its soft limit at the check may be over it now, or vice versa.
        let within = if budget.is_overflow() { Reason::Aggregate } else { Reason::Conforming };
        let reason = if soft { Reason::Marked } else { within };
        account.reason.set(reason.index());
        account.weight.set(if soft { MARKED } else { weight(within) });
        account.action.set(if soft { u32::from(record.soft_action) } else { 0 });
    }
    if W::DELAYS {
        call!(delay(maps, scratch; index));
    }
    if matches!(plan, Plan::Class) {
        call!(count_class(maps, scratch; index, true, true));
    }
    // A table without keys has no bucket except the budget.
    let counted = if !budget.is_own() && bucket.is_none() {
        budget_bucket(maps, budget)
    } else {
        bucket.cloned()
    };
    count_passed(maps, counted, scratch, index);
}

/// Charges every limit of a record; true if a soft limit was exceeded.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn charge_limits<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    target: &ChargeTarget<'_, W::Keyed>,
    index: u32,
) -> Result<bool, TableResult> {
    match call!(charge_record(maps, scratch; &target.bucket, target.slot, target.scale, index)) {
        RecordCharge::Within => Ok(false),
        RecordCharge::Soft => Ok(true),
        RecordCharge::Over => Err(TableResult::OVER),
        RecordCharge::Contended => Err(TableResult::CONTENDED),
    }
}

/// The result of charging all limits of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordCharge {
    /// The packet is within all of them.
    Within = 0,
    /// The packet is over a soft one.
    Soft = 1,
    /// The packet is over a hard one.
    Over = 2,
    /// Other CPUs interfered.
    Contended = 3,
}

variants!(RecordCharge: Within Soft Over, else Contended; lost Contended);

/// Charges the packet to the limits of the record in a slot, whose state is in `bucket`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_record<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    scale: bool,
    index: u32,
) -> RecordCharge {
    let Some(record) = maps.record(slot) else {
        return RecordCharge::Contended;
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
                Charged::Over => return RecordCharge::Over,
                Charged::Contended | Charged::Moved => return RecordCharge::Contended,
            }
        }
    }
    if soft { RecordCharge::Soft } else { RecordCharge::Within }
}

/// Counts a packet that a table lets pass.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn count_passed<W: Maps>(maps: &W, bucket: Option<W::Keyed>, scratch: &Scratch, index: u32) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    count(maps, scratch, account, index, true);
    if let Some(bucket) = bucket {
        bucket.count(true, scratch.size::<W>().packets());
    }
}

/// Counts a packet that passes under the rule of account `index`, or undoes that if `add` is false.
/// Skips the class of the source table: its rule is that of the outcome, which is counted at the
/// end.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn count<W: Maps>(maps: &W, scratch: &Scratch, account: &Account, index: u32, add: bool) {
    if index == SOURCE_CLASS {
        return;
    }
    let reason = Reason::from_index(account.reason.get());
    maps.count_rule(account.rule.get(), reason, scratch.size::<W>(), add);
}

/// Undoes the charges of the account.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn give_back<W: Maps>(maps: &W, scratch: &Scratch, bucket: Option<&W::Keyed>, index: u32) {
    let budget = scratch.account(index).map_or(BudgetRef::OWN, |account| account.budget.get());
    let charged_to = if budget.is_own() { bucket.cloned() } else { budget_bucket(maps, budget) };
    if let Some(charged_to) = charged_to {
        limit::give_back(maps, scratch, &charged_to, index);
    }
}

/// Undoes a whole account: its charges and its counts.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn undo<W: Maps>(maps: &W, bucket: Option<&W::Keyed>, scratch: &Scratch, index: u32) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    if matches!(Plan::from_raw(account.plan.get()), Plan::Nothing) {
        return;
    }
    count(maps, scratch, account, index, false);
    call!(count_class(maps, scratch; index, true, false));
    let budget = account.budget.get();
    let counted = if !budget.is_own() && bucket.is_none() {
        budget_bucket(maps, budget)
    } else {
        bucket.cloned()
    };
    if let Some(counted) = counted {
        counted.count(true, scratch.size::<W>().packets().wrapping_neg());
    }
    give_back(maps, scratch, bucket, index);
}
