//! Budgets that limit limiter's own answers and new bans.

use limiter_common::bucket::Slot;
use limiter_common::verdict::Reason;
use limiter_common::wire::OwnBudget;

use super::charge::charge_limits;
use crate::maps::{Keyed as _, Maps};
use crate::rounds::Rounds;
use crate::table::buckets::refresh;
use crate::table::buckets::target::{TargetLookup, target_of};
use crate::table::limits::check::{Check, check_target};
use crate::table::limits::limit;
use crate::table::result::Stale;
use crate::table::scratch::Scratch;

/// Checks of a budget before it counts as used up: one as it is, and one after bringing it up to
/// date.
const MAX_LOOKS: u64 = 2;

/// Charges the packet to one of limiter's own budgets, at account `index`. False if there is none,
/// or it is used up.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn spend<W: Maps>(maps: &W, scratch: &Scratch, budget: OwnBudget, index: u32) -> bool {
    let Some(slot) = OwnBudget::slot(maps.control(budget.word(scratch.generation()))) else {
        return false;
    };
    let mut rounds = Rounds::new();
    while rounds.more(MAX_LOOKS) {
        match once(maps, scratch, slot, index) {
            Ok(spent) => return spent,
            Err(stale) => refresh::refresh_budget(maps, scratch, stale),
        }
    }
    false
}

/// `Err` with the budget that must first be brought up to date.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn once<W: Maps>(maps: &W, scratch: &Scratch, slot: Slot, index: u32) -> Result<bool, Stale> {
    let target = match target_of(maps, scratch, slot, None) {
        TargetLookup::Target(target) => target,
        TargetLookup::Stale(stale) => return Err(stale),
        TargetLookup::Free(_) | TargetLookup::Full(_) => return Ok(false),
    };
    match check_target(maps, scratch, &target) {
        Check::WITHIN | Check::SOFT => {}
        Check::OVER => {
            target.bucket.count(false, scratch.size::<W>().packets());
            maps.count_rule(target.record.rule, Reason::OverLimit, scratch.size::<W>(), true);
            return Ok(false);
        }
        // The bucket was pointed to another rule meanwhile.
        _ => return Err(target.stale),
    }
    if let Some(account) = scratch.account(index) {
        account.charges.set(0);
    }
    let spent = charge_limits(maps, scratch, &target, index).is_ok();
    if spent {
        target.bucket.count(true, scratch.size::<W>().packets());
        maps.count_rule(target.record.rule, Reason::Conforming, scratch.size::<W>(), true);
    } else {
        limit::give_back(maps, scratch, &target.bucket, index);
    }
    Ok(spent)
}
