//! The budget of new entries: token buckets of each CPU's own, so that no word is shared.
//!
//! The first bucket measures the *demand*: every packet without an entry is charged to it. While it
//! has room, each gets an entry. It bounds what inserts cost and how fast a table turns over. When
//! no more of it is left than a second brings back, there is *pressure*, until the demand falls:
//! then an entry goes to who came back lately ([`super::fingerprint`]), out of a second bucket of
//! the same rate. Once that owes more than half of what the first may, it takes one coming more for
//! each step ([`STEP_BITS`]) that it owes beyond. So:
//!
//! - a flood that sends each address once costs others one packet, and uses up nothing;
//! - one that sends each address `k` times makes others come `k + 1` times;
//! - who came more often is ahead of who came less, and nobody who came as often as it takes is
//!   turned away.
//!
//! A packet over the demand's budget marks the table as flooded for [`super::HYSTERESIS`]: until
//! then no entry leaves that was used more than once within [`limiter_common::wire::KEEP`].

use limiter_common::bucket_key::BUSY;
use limiter_common::time::{SECOND, Ticks};
use limiter_common::wire::EntryKind;

use super::fingerprint::{MOST, STEP_BITS, come_back, hash};
use super::{AdmissionCells, EntryTableWords, HYSTERESIS, bump};
use crate::cell::Cell;
use crate::maps::Maps;
use crate::register::variants;

/// The part of [`HYSTERESIS`] that may pass before the mark is renewed, so that a flood writes the
/// shared word a few times a second.
const RENEW: u64 = HYSTERESIS >> 3;

/// Comings that it takes at least to get an entry under pressure.
const LEAST: u64 = 2;

/// The answer to a packet that wants an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admittance {
    /// An entry may be made.
    Granted,
    /// Pressure, and nobody with this name came lately.
    FirstSeen,
    /// Pressure, and it came back, but not as often as it takes now.
    OverBudget,
}

variants!(Admittance: Granted FirstSeen, else OverBudget; lost OverBudget);

/// Answers a packet that wants an entry for a name
/// ([`limiter_common::bucket_key::BucketKey::name`]), and charges it to the budgets of this CPU.
/// Nobody is named [`limiter_common::bucket_key::EMPTY`] or [`BUSY`], and nobody gets an entry so.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn admit<W: Maps>(maps: &W, kind: EntryKind, name: u64, now: Ticks) -> Admittance {
    let (Some(entry_table), Some(admission)) = (maps.entry_table(kind), maps.admission(kind))
    else {
        return Admittance::OverBudget;
    };
    if name <= BUSY {
        return Admittance::OverBudget;
    }
    if demand(&entry_table, admission, now) {
        return Admittance::Granted;
    }
    let count = come_back(maps, hash(name, entry_table.seed()), now);
    if u64::from(count) < LEAST {
        bump(&admission.first_seen);
        return Admittance::FirstSeen;
    }
    let start = owed(&entry_table, Ticks::new(admission.returned.get()), now);
    if u64::from(count) < takes(&entry_table, start, now) {
        bump(&admission.over_budget);
        return Admittance::OverBudget;
    }
    admission.returned.set(start.plus(entry_table.cost()).get());
    Admittance::Granted
}

/// Charges the demand with one more packet without an entry; false under pressure.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn demand(entry_table: &impl EntryTableWords, admission: &AdmissionCells, now: Ticks) -> bool {
    let Some(next) = charge(entry_table, Ticks::new(admission.tat.get()), now) else {
        mark(entry_table, now);
        return false;
    };
    admission.tat.set(next.get());
    !is_pressed(entry_table, next, now)
}

/// Comings that it takes to get an entry under pressure, if [`Admission::returned`] is at `start`.
///
/// [`Admission::returned`]: limiter_common::wire::Admission::returned
#[cfg_attr(target_arch = "bpf", inline(always))]
fn takes(entry_table: &impl EntryTableWords, start: Ticks, now: Ticks) -> u64 {
    LEAST + (start.since(now.plus(calm(entry_table))).get() >> STEP_BITS)
}

/// The part of the budget of those that came back for which it takes [`LEAST`] comings.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn calm(entry_table: &impl EntryTableWords) -> Ticks {
    Ticks::new(entry_table.tolerance().get() >> 1)
}

/// The time until which the budget of those that came back is used. Past what a cell can count it
/// is only where the clock ran backwards: the budget begins anew then.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn owed(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> Ticks {
    let most = Ticks::new(u64::from(MOST) << STEP_BITS);
    let horizon = now.plus(calm(entry_table)).plus(most).plus(entry_table.cost());
    if tat > now && tat <= horizon { tat } else { now }
}

/// True if a CPU whose demand is at `tat` would give an entry to anybody.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_open(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> bool {
    charge(entry_table, tat, now).is_some_and(|next| !is_pressed(entry_table, next, now))
}

/// True if a demand that is at `tat` leaves no more than what comes back in a second.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_pressed(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> bool {
    tat.since(now) > entry_table.tolerance().since(Ticks::new(SECOND))
}

/// The theoretical arrival time of a CPU's demand after one more entry, `None` without room in it.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> Option<Ticks> {
    let horizon = now.plus(entry_table.tolerance());
    // Past the horizon it is only where the clock ran backwards: the budget begins anew.
    let start = if tat > now && tat <= horizon { tat } else { now };
    let next = start.plus(entry_table.cost());
    if next > horizon { None } else { Some(next) }
}

/// Notes that no entry could leave for a new one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn full<W: Maps>(maps: &W, kind: EntryKind, now: Ticks) {
    if let Some(admission) = maps.admission(kind) {
        bump(&admission.full);
    }
    if let Some(entry_table) = maps.entry_table(kind) {
        mark(&entry_table, now);
    }
}

/// True if there are more new entries than may be.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_flooded(entry_table: &impl EntryTableWords, now: Ticks) -> bool {
    let left = Ticks::new(entry_table.flood_until().load()).since(now).get();
    // Much more than that is left only where the clock ran backwards.
    left != 0 && left <= 2 * HYSTERESIS
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn mark(entry_table: &impl EntryTableWords, now: Ticks) {
    let word = entry_table.flood_until();
    let until = word.load();
    let next = now.plus(Ticks::new(HYSTERESIS));
    if !is_flooded(entry_table, now) || next.since(Ticks::new(until)).get() >= RENEW {
        // Another CPU's mark is as good.
        word.compare_exchange(until, next.get());
    }
}
