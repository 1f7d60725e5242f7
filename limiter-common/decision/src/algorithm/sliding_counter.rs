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
//!   packet for each other CPU at a border is passed too many. A word that is newer than the
//!   packet's clock sets the time to that window's start, where the previous window weighs most.
//! * Ranges: the fixed window's. The products need `limit * (width >> shift) < 2^62`. A cut makes
//!   the weight of `previous` too large by at most `2 / (width >> shift)`, never too small. Nothing
//!   is cut (shift 0) up to 4.6 * 10^9 units a second, 7.6 * 10^7 a minute, 1.2 * 10^6 an hour,
//!   53,375 a day or 7,625 a week, and at least 7 bits of the width remain: the compile step
//!   refuses limits of 2^54.

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::window::{Position, Tally, WallOffset, WindowLimit, larger, less, smaller};

use crate::algorithm::{Change, Charged, Words, charge_one_of};

/// The contents of the two words at `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    /// The window in force, which may be newer than the clock's.
    number: u64,
    /// The index of that window's word.
    index: u32,
    /// The word of that window.
    own: u64,
    /// Units counted in that window.
    current: u64,
    /// The remaining share of the previous window, in units times [`View::width`].
    left: u64,
    /// The width, cut so that the products fit.
    width: u64,
}

/// Reads the two words, of the even and the odd windows. Without a branch, because the verifier
/// walks both sides of each in every attempt.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn view(limit: &WindowLimit, words: &[u64; 2], position: Position) -> View {
    let [even, odd] = *words;
    let newest = larger(limit.unpack(even).number, limit.unpack(odd).number);
    let number = larger(position.number, newest);
    let elapsed = position.elapsed & !less(position.number, newest);
    let is_odd = (number & 1).wrapping_neg();
    let own = even ^ (even ^ odd) & is_odd;
    let other = odd ^ (even ^ odd) & is_odd;
    let current = limit.unpack(own).count_in(number);
    // The mask is for the very first window: no word belongs to a window before it.
    let previous = limit.unpack(other).count_in(number.wrapping_sub(1) & MAX_TICKS);
    let previous = smaller(previous, limit.limit);
    let shift = limit.shift & 63;
    let width = limit.cut_width();
    // Rounded up, so that cutting never forgets too much.
    let left = limit.width.wrapping_sub(elapsed).wrapping_add((1 << shift) - 1) >> shift;
    let left = smaller(left, width);
    // At most 1. The product is under 2^62.
    let index = (number & 1) as u32;
    View { number, index, own, current, left: previous.wrapping_mul(left), width }
}

/// The word to exchange if the packet conforms. `words` are of the even and the odd windows.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn decide(limit: &WindowLimit, words: &[u64; 2], now: Ticks, units: u64) -> Option<Change> {
    decide_at(limit, words, limit.at(now, WallOffset::BOOT), units)
}

/// [`decide`] with a known clock window.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn decide_at(
    limit: &WindowLimit,
    words: &[u64; 2],
    position: Position,
    units: u64,
) -> Option<Change> {
    let View { number, index, own, current, left, width } = view(limit, words, position);
    let count = current.wrapping_add(units);
    if units > limit.limit || count > limit.limit {
        return None;
    }
    if left.wrapping_add(count.wrapping_mul(width)) > limit.limit.wrapping_mul(width) {
        return None;
    }
    Some(Change { index, old: own, new: limit.pack(Tally { number, count }) })
}

/// The weighted count at `now` and the limit, both times the cut width.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn weighted(limit: &WindowLimit, words: &[u64; 2], now: Ticks) -> (u64, u64) {
    let View { current, left, width, .. } = view(limit, words, limit.at(now, WallOffset::BOOT));
    let current = smaller(current, limit.limit);
    (left.wrapping_add(current.wrapping_mul(width)), limit.limit.wrapping_mul(width))
}

/// Charges a packet to the two words of a key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge(limit: &WindowLimit, words: &impl Words, now: Ticks, units: u64) -> Charged {
    charge_one_of::<2>(words, |words| decide(limit, words, now, units))
}
