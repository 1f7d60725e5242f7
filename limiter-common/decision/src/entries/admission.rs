//! The budget of new entries: token buckets of each CPU, so that no word is shared.
//!
//! The first bucket measures the *demand*: every packet without an entry is charged to it. While it
//! has tokens, each gets an entry. It bounds the cost of inserts and the turnover of a table. When
//! no more is left than a second brings back, there is *pressure* until the demand falls: then
//! entries go to sources and keys that came back recently ([`super::fingerprint`]), from a second
//! bucket of the same rate. Once that bucket owes more than half of what the first may, each
//! further step of debt ([`STEP_BITS`]) requires one more visit. So:
//!
//! - a flood that sends each address once costs others one packet, and uses up nothing;
//! - one that sends each address `k` times makes others come `k + 1` times;
//! - sources that came more often take precedence, and a source that came often enough is never
//!   turned away.
//!
//! A packet over the demand's budget marks the table as flooded for [`super::HYSTERESIS`]: until
//! then no entry is evicted that was used more than once within [`limiter_common::wire::KEEP`].

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

/// Minimum number of visits to get an entry under pressure.
const LEAST: u64 = 2;

/// The answer to a packet that needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admittance {
    /// An entry may be made.
    Granted,
    /// Under pressure, and this name did not come recently.
    FirstSeen,
    /// Under pressure, and it came back, but not as often as required now.
    OverBudget,
}

variants!(Admittance: Granted FirstSeen, else OverBudget; lost OverBudget);

/// Answers a packet that needs an entry for a name
/// ([`limiter_common::bucket_key::BucketKey::name`]), and charges it to the budgets of this CPU.
/// [`limiter_common::bucket_key::EMPTY`] and [`BUSY`] are no names, and get no entry.
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

/// Charges the demand with another packet without an entry; false under pressure.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn demand(entry_table: &impl EntryTableWords, admission: &AdmissionCells, now: Ticks) -> bool {
    let Some(next) = charge(entry_table, Ticks::new(admission.tat.get()), now) else {
        mark(entry_table, now);
        return false;
    };
    admission.tat.set(next.get());
    !is_pressed(entry_table, next, now)
}

/// Number of visits required for an entry under pressure, if [`Admission::returned`] is at `start`.
///
/// [`Admission::returned`]: limiter_common::wire::Admission::returned
#[cfg_attr(target_arch = "bpf", inline(always))]
fn takes(entry_table: &impl EntryTableWords, start: Ticks, now: Ticks) -> u64 {
    LEAST + (start.since(now.plus(calm(entry_table))).get() >> STEP_BITS)
}

/// The part of the budget for returning sources and keys for which [`LEAST`] visits suffice.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn calm(entry_table: &impl EntryTableWords) -> Ticks {
    Ticks::new(entry_table.tolerance().get() >> 1)
}

/// The time until which the budget for returning sources and keys is used. It exceeds what a cell
/// can count only if the clock ran backwards: then the budget starts again.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn owed(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> Ticks {
    let most = Ticks::new(u64::from(MOST) << STEP_BITS);
    let horizon = now.plus(calm(entry_table)).plus(most).plus(entry_table.cost());
    if tat > now && tat <= horizon { tat } else { now }
}

/// True if a CPU whose demand is at `tat` would give an entry to any packet.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_open(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> bool {
    charge(entry_table, tat, now).is_some_and(|next| !is_pressed(entry_table, next, now))
}

/// True if a demand at `tat` leaves no more than what comes back in a second.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_pressed(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> bool {
    tat.since(now) > entry_table.tolerance().since(Ticks::new(SECOND))
}

/// The theoretical arrival time of a CPU's demand after one more entry; `None` if it has no tokens.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge(entry_table: &impl EntryTableWords, tat: Ticks, now: Ticks) -> Option<Ticks> {
    let horizon = now.plus(entry_table.tolerance());
    // Past the horizon the clock must have run backwards: the budget starts again.
    let start = if tat > now && tat <= horizon { tat } else { now };
    let next = start.plus(entry_table.cost());
    if next > horizon { None } else { Some(next) }
}

/// Notes that no entry could be evicted for a new one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn full<W: Maps>(maps: &W, kind: EntryKind, now: Ticks) {
    if let Some(admission) = maps.admission(kind) {
        bump(&admission.full);
    }
    if let Some(entry_table) = maps.entry_table(kind) {
        mark(&entry_table, now);
    }
}

/// True if there are too many new entries.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_flooded(entry_table: &impl EntryTableWords, now: Ticks) -> bool {
    let left = Ticks::new(entry_table.flood_until().load()).since(now).get();
    // Much more is left only if the clock ran backwards.
    left != 0 && left <= 2 * HYSTERESIS
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn mark(entry_table: &impl EntryTableWords, now: Ticks) {
    let word = entry_table.flood_until();
    let until = word.load();
    let next = now.plus(Ticks::new(HYSTERESIS));
    if !is_flooded(entry_table, now) || next.since(Ticks::new(until)).get() >= RENEW {
        // Another CPU's mark is just as good.
        word.compare_exchange(until, next.get());
    }
}
