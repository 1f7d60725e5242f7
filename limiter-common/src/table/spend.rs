//! Budgets that limit what the limiter itself does: its answers, and its new bans.

use super::held::{Found, hold};
use super::judge::charge_limits;
use super::limit;
use super::ready;
use super::scratch::Scratch;
use super::sight::{Sight, look};
use crate::bucket::Slot;
use crate::rounds::Rounds;
use crate::verdict::Reason;
use crate::wire::OwnBudget;
use crate::world::{Keyed as _, World};

/// Looks at a budget before it counts as used up: as it is, and after bringing it up to date.
const MAX_LOOKS: u64 = 2;

/// Charges the packet to a budget of the limiter itself, at step `index`. False when there is none,
/// or it has no room.
#[inline(always)]
pub fn spend<W: World>(maps: &W, scratch: &Scratch, budget: OwnBudget, index: u32) -> bool {
    let Some(slot) = OwnBudget::slot(maps.control(budget.word(scratch.generation()))) else {
        return false;
    };
    let mut rounds = Rounds::new();
    while rounds.more(MAX_LOOKS) {
        match once(maps, scratch, slot, index) {
            Ok(spent) => return spent,
            Err(repair) => ready::repair_budget(maps, scratch, repair),
        }
    }
    false
}

/// `Err` with the slot whose budget is to be brought up to date first.
#[inline(always)]
fn once<W: World>(maps: &W, scratch: &Scratch, slot: Slot, index: u32) -> Result<bool, u32> {
    let held = match hold(maps, scratch, slot, None) {
        Found::Held(held) => held,
        Found::Stale(repair) => return Err(repair),
        Found::Free(_) | Found::Full(_) => return Ok(false),
    };
    match look(maps, scratch, &held) {
        Sight::Within | Sight::Soft => {}
        Sight::Moved => return Err(held.repair),
        Sight::Over => {
            held.bucket.count(false, true);
            maps.count_rule(held.record.rule, Reason::OverLimit, scratch.length(), true);
            return Ok(false);
        }
    }
    if let Some(step) = scratch.step(index) {
        step.charges.set(0);
    }
    let spent = charge_limits(maps, scratch, &held, index).is_ok();
    if spent {
        held.bucket.count(true, true);
        maps.count_rule(held.record.rule, Reason::Conforming, scratch.length(), true);
    } else {
        limit::give_back(scratch, &held.bucket, index);
    }
    Ok(spent)
}
