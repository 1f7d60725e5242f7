//! The sliding window of 2, 4 or 8 slots: the counts of the present slot and those before it.
//!
//! A packet conforms when the sum over the present slot and the `slots - 1` before it, with the
//! packet, is at most `limit`. Slots are `width` long.
//!
//! * Guarantee: `limit` in any window of length `(slots - 1) * width`, wherever it starts, because
//!   such a window touches no more than `slots` slots. In a window of length `t` at most
//!   `limit * ceil((ceil(t / width) + 1) / slots)`. Exact on one CPU.
//! * A source that sends at most `limit` in every window of `slots * width` loses nothing, because
//!   the sum never looks further back than that.
//! * So the error is one slot, and the rule's window can be put on either side of it: a *lenient*
//!   compile makes `slots` slots of the window (a source within the limit loses nothing; after an
//!   idle slot up to twice the limit may pass in one window, and `limit` in `1 - 1 / slots` of it),
//!   a *strict* one makes `slots - 1` (never over in any window; a steady source gets
//!   `(slots - 1) / slots` of the rate, 87.5 % with 8 slots).
//! * State: one word a slot, `number | count`: with 8 slots in one second 31 bits of count, and more
//!   for longer windows ([`WindowLimit::count_bits_of`]). Eight words are one cache line.
//! * Cost: one division and a read of each slot; a packet that passes exchanges its own slot's word.
//! * Concurrency: within a slot exact. A packet that read the words before the border of a slot and
//!   is stored after another CPU has judged one behind it is missing in that judgement: at most one
//!   packet for each other CPU at a border is passed too many. A word that is newer than the
//!   packet's clock sets the packet's slot to that one, so a late clock grants nothing.
//! * The compile step refuses other numbers of slots, a limit that the count's bits cannot hold, and
//!   one that holds no frame.

use crate::algorithm::window::{MAX_SLOTS, Position, Tally, WallOffset, WindowLimit, larger, less};
use crate::algorithm::{Change, Charged, Words, charge_one_of};
use crate::time::Ticks;

/// The slot in force, which may be newer than the clock says.
#[inline(always)]
fn newest<const N: usize>(limit: &WindowLimit, words: &[u64; N], position: Position) -> u64 {
    let mut number = position.number;
    for word in words {
        number = larger(number, limit.unpack(*word).number);
    }
    number
}

/// The count of a word, if it is of the slot `number` or one of those before it that still count.
#[inline(always)]
const fn recent(limit: &WindowLimit, word: u64, number: u64) -> u64 {
    let tally = limit.unpack(word);
    tally.count & less(number.wrapping_sub(tally.number), limit.slots as u64)
}

/// What counts at `now`. Words past the limit's slots are zero.
#[inline(always)]
pub fn sum<const N: usize>(limit: &WindowLimit, words: &[u64; N], now: Ticks) -> u64 {
    let number = newest(limit, words, limit.at(now, WallOffset::BOOT));
    let mut sum = 0u64;
    for word in words {
        sum = sum.wrapping_add(recent(limit, *word, number));
    }
    sum
}

/// The word to exchange when the packet conforms. Words past the limit's slots are zero.
#[inline(always)]
pub fn decide<const N: usize>(
    limit: &WindowLimit,
    words: &[u64; N],
    now: Ticks,
    units: u64,
) -> Option<Change> {
    decide_at(limit, words, limit.at(now, WallOffset::BOOT), units)
}

/// [`decide`], where the clock's slot is known.
#[inline(always)]
pub(crate) fn decide_at<const N: usize>(
    limit: &WindowLimit,
    words: &[u64; N],
    position: Position,
    units: u64,
) -> Option<Change> {
    let number = newest(limit, words, position);
    let own_index = number & u64::from(limit.slots).wrapping_sub(1);
    let mut sum = units;
    let mut own = 0;
    for (index, word) in (0..).zip(words) {
        sum = sum.wrapping_add(recent(limit, *word, number));
        own |= *word & less(own_index ^ index, 1);
    }
    // The first alone, so that the sum cannot wrap.
    if units > limit.limit || sum > limit.limit {
        return None;
    }
    let count = limit.unpack(own).count_in(number).wrapping_add(units);
    let new = limit.pack(Tally { number, count });
    // Below `slots`, which is at most 8.
    Some(Change { index: (own_index & 7) as u32, old: own, new })
}

/// Charges a packet to the words of a key: as many as the limit has slots, or more.
#[inline(always)]
pub fn charge(limit: &WindowLimit, words: &impl Words, now: Ticks, units: u64) -> Charged {
    charge_one_of::<MAX_SLOTS>(words, |words| decide(limit, words, now, units))
}
