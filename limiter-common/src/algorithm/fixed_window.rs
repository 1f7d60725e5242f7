//! The fixed window: at most `limit` units in each window of the wall clock.
//!
//! * Guarantee: in every *aligned* window at most `limit`. In a window of length `t` anywhere, at
//!   most `limit * (ceil(t / width) + 1)`: twice the limit in no time, around a border. That is the
//!   algorithm and not a defect of this code; take a sliding one where it matters.
//! * A source that sends at most `limit` in each aligned window loses nothing.
//! * State: one word, `number | count`, packed as [`WindowLimit::count_bits`] says: 34 bits of
//!   count for a second, 40 a minute, 46 an hour, 51 a day, 54 a week, 59 for 366 days. The number
//!   of a window counts from before boot and outlasts the clock's range of 9.1 years, so no idle
//!   time brings an old count back.
//! * Cost: two divisions, and one compare-and-exchange for a packet that passes; one read when over.
//!   Exact on any number of CPUs: number and count change together.
//! * Clocks: a packet whose window is older than the word's is counted in the word's window. So a
//!   monotonic clock that is read late grants nothing; a wall clock set back by `d` makes the
//!   present window longer by `d`, and one set forward past a border starts the next window early.
//!   Numbers begin anew with each lap of [`WallOffset`], so `d` is modulo 13 days.
//! * The compile step refuses a limit that the count's bits cannot hold or that holds no frame.

use crate::algorithm::window::{Position, Tally, WallOffset, WindowLimit, larger};
use crate::algorithm::{self, Charged};
use crate::cell::Cell;
use crate::time::Ticks;

/// The window in force, which may be newer than the clock says, and what it has counted.
#[inline(always)]
pub(crate) fn present(limit: &WindowLimit, word: u64, position: Position) -> Tally {
    let stored = limit.unpack(word);
    let number = larger(position.number, stored.number);
    Tally { number, count: stored.count_in(number) }
}

/// The word to store when the packet conforms.
#[inline(always)]
pub fn decide(
    limit: &WindowLimit,
    offset: WallOffset,
    word: u64,
    now: Ticks,
    units: u64,
) -> Option<u64> {
    decide_at(limit, word, limit.at(now, offset), units)
}

/// [`decide`], where the clock's window is known.
#[inline(always)]
pub(crate) fn decide_at(
    limit: &WindowLimit,
    word: u64,
    position: Position,
    units: u64,
) -> Option<u64> {
    let Tally { number, count } = present(limit, word, position);
    // First alone, so that the sum cannot wrap.
    if units > limit.limit || count.wrapping_add(units) > limit.limit {
        return None;
    }
    Some(limit.pack(Tally { number, count: count.wrapping_add(units) }))
}

/// Charges a packet to the word of a key.
#[inline(always)]
pub fn charge(
    limit: &WindowLimit,
    offset: WallOffset,
    cell: &impl Cell,
    now: Ticks,
    units: u64,
) -> Charged {
    algorithm::charge(cell, |word| decide(limit, offset, word, now, units))
}
