//! Budgets that limit what the limiter itself does: its answers, and its new bans.

use super::held::{Found, hold};
use super::judge::{Sight, charge_limits, look};
use super::{Keyed as _, Scratch, Tables, limit, ready};
use crate::bucket::Slot;
use crate::rounds::Rounds;
use crate::verdict::Reason;

/// Looks at a budget before it counts as used up: as it is, and after bringing it up to date.
const MAX_LOOKS: u64 = 2;

/// Charges the packet to a budget alone, at step `index`. `slot` is one more than that of the
/// budget's record. False when that is 0, or when the budget has no room.
#[inline(always)]
pub fn spend<T: Tables>(maps: &T, scratch: &Scratch, slot: u64, index: u32) -> bool {
    if slot == 0 {
        return false;
    }
    let slot = Slot::new((slot.wrapping_sub(1) & 0xffff_ffff) as u32);
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
fn once<T: Tables>(maps: &T, scratch: &Scratch, slot: Slot, index: u32) -> Result<bool, u32> {
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
