//! The sliding-window counter: this window's count and a share of the last one's.
//!
//! With `e` of the present window gone, a packet conforms when
//!
//! ```text
//! previous * (width - e) / width + current + units <= limit
//! ```
//!
//! which assumes that the previous window's packets came evenly.
//!
//! * Guarantee: `limit` in every aligned window, and `limit * (1 + t / width)` in a window of any
//!   length `t`, the bound of a token bucket whose burst is the limit: of `p <= limit` packets late
//!   in one window, `p * b / width` have been forgotten `b` after the border. At the border itself
//!   nothing is, so there is no double burst.
//! * Where it errs: above the exact log by at most `p * e / width` (all of `p` came late), below it
//!   by at most `p * (width - e) / width` (all came early). A source with even gaps of at least
//!   `width / (limit - 1)` loses nothing; one that sends its whole limit at once each `width` does.
//! * State: two words, `number | count` as in [`crate::algorithm::fixed_window`], one for even and
//!   one for odd windows. One division and two products, no division by the limit; a packet that
//!   passes exchanges the word of its own window.
//! * Concurrency: within a window exact. A packet that read both words before the border and is
//!   stored after another CPU has judged one behind it is missing in that judgement: at most one
//!   packet for each other CPU at a border is passed too many. A word that is newer than the packet's
//!   clock sets the time to that window's start, where the previous window weighs most.
//! * Ranges: the fixed window's. The products need `limit * (width >> shift) < 2^62`. A cut makes the
//!   weight of `previous` too large by at most `2 / (width >> shift)`, never too small. Nothing is cut
//!   (shift 0) up to 4.6 * 10^9 units a second, 7.6 * 10^7 a minute, 1.2 * 10^6 an hour, 53,375 a day
//!   or 7,625 a week, and at least 7 bits of the width remain for all that the words hold.

use crate::algorithm::window::{Tally, WallOffset, WindowLimit};
use crate::algorithm::{Change, Charged, Words, charge_one_of};
use crate::time::Ticks;

/// What the two words say at `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    /// The window in force, which may be newer than the clock says.
    number: u64,
    /// Which word is its.
    index: u32,
    /// That word.
    own: u64,
    /// What it has counted.
    current: u64,
    /// What is left of the window before, in units times [`View::width`].
    left: u64,
    /// The width, cut to fit the products.
    width: u64,
}

/// Reads the two words, which are of the even and the odd windows.
#[inline(always)]
fn view(limit: &WindowLimit, words: &[u64; 2], now: Ticks) -> View {
    let [even, odd] = *words;
    let position = limit.at(now, WallOffset::BOOT);
    let mut number = position.number;
    let mut elapsed = position.elapsed;
    for word in words {
        let seen = limit.unpack(*word).number;
        if seen > number {
            number = seen;
            elapsed = 0;
        }
    }
    let (index, own, other) = if number & 1 == 0 { (0, even, odd) } else { (1, odd, even) };
    let current = limit.unpack(own).count_in(number);
    // Wraps for the first window of all, whose number no word has.
    let previous = limit.unpack(other).count_in(number.wrapping_sub(1));
    let previous = if previous > limit.limit { limit.limit } else { previous };
    let shift = limit.shift & 63;
    let width = limit.width >> shift;
    // Rounded up, so that cutting never forgets too much.
    let left = limit.width.saturating_sub(elapsed).wrapping_add((1 << shift) - 1) >> shift;
    let left = if left > width { width } else { left };
    // Each product is under 2^62.
    View { number, index, own, current, left: previous.wrapping_mul(left), width }
}

/// The word to exchange when the packet conforms. `words` are of the even and the odd windows.
#[inline(always)]
pub fn decide(limit: &WindowLimit, words: &[u64; 2], now: Ticks, units: u64) -> Option<Change> {
    let View { number, index, own, current, left, width } = view(limit, words, now);
    let count = current.wrapping_add(units);
    if units > limit.limit || count > limit.limit {
        return None;
    }
    if left.wrapping_add(count.wrapping_mul(width)) > limit.limit.wrapping_mul(width) {
        return None;
    }
    Some(Change { index, old: own, new: limit.pack(Tally { number, count }) })
}

/// What counts at `now`, and the limit; both times the same factor, the cut width.
#[inline(always)]
pub fn weighted(limit: &WindowLimit, words: &[u64; 2], now: Ticks) -> (u64, u64) {
    let View { current, left, width, .. } = view(limit, words, now);
    let current = if current > limit.limit { limit.limit } else { current };
    (left.wrapping_add(current.wrapping_mul(width)), limit.limit.wrapping_mul(width))
}

/// Charges a packet to the two words of a key.
#[inline(always)]
pub fn charge(limit: &WindowLimit, words: &impl Words, now: Ticks, units: u64) -> Charged {
    charge_one_of::<2>(words, |words| decide(limit, words, now, units))
}
