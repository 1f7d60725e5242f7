//! The budget of new entries: a token bucket of each CPU's own, so that no word is shared.
//!
//! This budget bounds what inserts cost and how fast a table turns over. A packet that it refuses
//! marks the table as flooded for [`super::HYSTERESIS`]: until then no entry leaves that was used
//! more than once within [`super::KEEP`].

use super::{EntryTableWords, HYSTERESIS, bump};
use crate::cell::Cell;
use crate::time::Ticks;
use crate::wire::EntryKind;
use crate::world::World;

/// The part of [`HYSTERESIS`] that may pass before the mark is renewed, so that a flood writes the
/// shared word a few times a second.
const RENEW: u64 = HYSTERESIS >> 3;

/// Charges the budget of this CPU with one more entry; false if there is no room in it.
#[inline(always)]
pub fn admit<W: World>(maps: &W, kind: EntryKind, now: Ticks) -> bool {
    let (Some(entry_table), Some(admission)) = (maps.entry_table(kind), maps.admission(kind))
    else {
        return false;
    };
    let Some(next) = charge(&entry_table, Ticks::new(admission.tat.get()), now) else {
        bump(&admission.over_budget);
        mark(&entry_table, now);
        return false;
    };
    admission.tat.set(next.get());
    true
}

/// The theoretical arrival time of a CPU's budget after one more entry, `None` without room in it.
#[inline(always)]
pub fn charge(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> Option<Ticks> {
    let horizon = now.plus(entry_table.tolerance());
    // Past the horizon it is only where the clock ran backwards: the budget begins anew.
    let start = if tat > now && tat <= horizon { tat } else { now };
    let next = start.plus(entry_table.cost());
    if next > horizon { None } else { Some(next) }
}

/// Notes that no entry could leave for a new one.
#[inline(always)]
pub fn full<W: World>(maps: &W, kind: EntryKind, now: Ticks) {
    if let Some(admission) = maps.admission(kind) {
        bump(&admission.full);
    }
    if let Some(entry_table) = maps.entry_table(kind) {
        mark(&entry_table, now);
    }
}

/// True if there are more new entries than may be.
#[inline(always)]
pub fn is_flooded(entry_table: &impl EntryTableWords, now: Ticks) -> bool {
    let left = Ticks::new(entry_table.flood_until().load()).since(now).get();
    // Much more than that is left only where the clock ran backwards.
    left != 0 && left <= 2 * HYSTERESIS
}

#[inline(always)]
fn mark(entry_table: &impl EntryTableWords, now: Ticks) {
    let word = entry_table.flood_until();
    let until = word.load();
    let next = now.plus(Ticks::new(HYSTERESIS));
    if !is_flooded(entry_table, now) || next.since(Ticks::new(until)).get() >= RENEW {
        // Another CPU's mark is as good.
        word.compare_exchange(until, next.get());
    }
}
