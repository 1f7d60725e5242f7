//! The fixed window: at most `limit` units in each window of the wall clock.
//!
//! * Guarantee: in every *aligned* window at most `limit`. In a window of length `t` anywhere, at
//!   most `limit * (ceil(t / width) + 1)`: twice the limit in no time, around a border. That is the
//!   algorithm and not a defect of this code; take a sliding one where it matters.
//! * A source that sends at most `limit` in each aligned window loses nothing.
//! * State: one word, `number | count`, packed as [`WindowLimit::count_bits`] says: 34 bits of
//!   count for a second, 40 a minute, 46 an hour, 51 a day, 54 a week, 59 for 366 days. The number
//!   outlasts the clock's range of 9.1 years, so no idle time brings an old count back.
//! * Cost: one division, and one compare-and-exchange for a packet that passes; one read when over.
//!   Exact on any number of CPUs: number and count change together.
//! * Clocks: a packet whose window ended at most [`LATE`] before the word's began is counted in the
//!   word's. So a monotonic clock that is read late by that grants nothing. Any other window begins
//!   anew: a wall clock that is set, by any time in either direction, grants at most one window,
//!   and makes the present one longer by less than a window and [`LATE`].
//! * The compile step refuses a limit that the count's bits cannot hold or that holds no frame.

use limiter_common::time::Ticks;
#[cfg(doc)]
use limiter_common::window::LATE;
use limiter_common::window::{Position, Tally, WallOffset, WindowLimit, opaque_less};

use crate::algorithm::{self, Charged};
use crate::cell::Cell;

/// The window in force and its count. If the clock may be late, it is the word's window.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn present(limit: &WindowLimit, word: u64, position: Position) -> Tally {
    let stored = limit.unpack(word);
    // A word without a count belongs to no window.
    let late = limit.is_late(position.number, stored.number) & opaque_less(0, stored.count);
    let present = limit.cut(position.number);
    let number = present ^ (present ^ stored.number) & late;
    Tally { number, count: stored.count_in(number) }
}

/// The word to store if the packet conforms.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn decide(
    limit: &WindowLimit,
    offset: WallOffset,
    word: u64,
    now: Ticks,
    units: u64,
) -> Option<u64> {
    decide_at(limit, word, limit.at(now, offset), units)
}

/// [`decide`] with a known clock window.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn decide_at(
    limit: &WindowLimit,
    word: u64,
    position: Position,
    units: u64,
) -> Option<u64> {
    let Tally { number, count } = present(limit, word, position);
    // Checked separately, so that the sum cannot wrap.
    if units > limit.limit || count.wrapping_add(units) > limit.limit {
        return None;
    }
    Some(limit.pack(Tally { number, count: count.wrapping_add(units) }))
}

/// Charges a packet to the word of a key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge(
    limit: &WindowLimit,
    offset: WallOffset,
    cell: &impl Cell,
    now: Ticks,
    units: u64,
) -> Charged {
    algorithm::charge(cell, |word| decide(limit, offset, word, now, units))
}
