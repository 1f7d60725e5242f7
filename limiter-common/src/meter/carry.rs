//! What happens to the state of a limit when the limit changes.
//!
//! **The share of the limit that is used stays used**, whatever the algorithm before and after. Every
//! algorithm has a *capacity*, what it lets pass at once, and knows how much of it is used now:
//!
//! | algorithm | capacity C | used | what comes back in a time t: R(t) |
//! |---|---|---|---|
//! | token bucket | the burst | what is owed | rate * t |
//! | leaky bucket | backlog and one unit | what is owed; all of it when a packet would be over | rate * t |
//! | fixed window | N | the present window's count | N * ceil(t / W) |
//! | counter | N | the weighted sum | N * t / W |
//! | slots | N | the sum | N * ceil(max(0, ceil(t / slot) + 1 - S) / S) |
//! | log | N | the packets of the last window | N * floor(t / W) |
//!
//! [`used`] is that share, rounded up to 2^-32. [`seed`] is the state of the new limit with that
//! share of its capacity used *now*: a debt of that much time, a count in the present window or slot
//! (it is forgotten when that is), or that many packets in the log, which all leave it a window from
//! now. Rounded up to a tick or a unit.
//!
//! Then, when a limit changes at c, and `p` pass from s to c and `q` from c to e, for any s and e:
//!
//! ```text
//! (p - R(c - s)) / C + (q - R'(e - c)) / C' <= 1        primes: the new limit's
//! ```
//!
//! because what passed and did not come back is at most the used share of `C`, and what passes
//! before anything comes back is at most the rest of `C'`. So where both count the same,
//! `p + q <= max(C, C') + R(c - s) + R'(e - c)`: never more than the larger capacity, and what each
//! limit gives back in its own time. With a capacity at both ends of the time, twice the larger one
//! would be possible; that the share is carried is what rules it out.
//!
//! * Exact but for 2^-32 of `C'` where that is a count, so to a unit below 2^32 units. A leaky bucket
//!   of bytes takes its last frame whole: one frame more on its side of the change.
//! * An untouched limit becomes an untouched one (words of zero), and a used-up one a used-up one.
//!   What is used in a fixed window is forgotten at its border and what is owed to a bucket is paid
//!   in time, so the *length* of a penalty is the new limit's.
//! * A limit whose parameters are the same needs no change ([`LimitSpec::same_meter`]).

use super::look::{place, raw, read};
use super::share::Share;
use crate::algorithm::sliding_log::{self, MAX_SIZE};
use crate::algorithm::window::{MAX_SLOTS, Tally, WallOffset};
use crate::algorithm::{Words, fixed_window, sliding_counter, sliding_slots};
use crate::gcra::cost;
use crate::time::{MAX_TICKS, Ticks};
use crate::wire::{Algorithm, Limit, LimitSpec};

/// The share of a limit that is used at `now`, rounded up. Scale bits are ignored.
#[inline(always)]
pub fn used<W: Words>(spec: &LimitSpec, words: &W, now: Ticks, offset: WallOffset) -> Share {
    let first = || raw(words, place(spec, 0)) >> 1;
    let (part, whole) = match spec.algorithm() {
        Algorithm::TokenBucket => (Ticks::new(first()).since(now).get(), spec.rate().tolerance),
        Algorithm::LeakyBucket => {
            let limit = spec.rate();
            let owed = Ticks::new(first()).since(now).get();
            let capacity = leaky_capacity(&limit);
            (if owed > limit.tolerance { capacity } else { owed }, capacity)
        }
        Algorithm::FixedWindow => {
            let limit = spec.window();
            (fixed_window::present(&limit, offset, first(), now).count, limit.limit)
        }
        Algorithm::SlidingCounter => {
            let states = read::<2, W>(spec, words).map(|raw| raw >> 1);
            sliding_counter::weighted(&spec.window(), &states, now)
        }
        Algorithm::SlidingSlots => {
            let states = read::<MAX_SLOTS, W>(spec, words).map(|raw| raw >> 1);
            (sliding_slots::sum(&spec.window(), &states, now), spec.window().limit)
        }
        Algorithm::SlidingLog => (logged(spec, words, now), u64::from(spec.log().size)),
    };
    Share::of(part, whole)
}

/// The 63-bit state of the word at `index`, below `spec.words`, of a limit of which that share is
/// used at `now`.
#[inline(always)]
pub fn seed(spec: &LimitSpec, share: Share, now: Ticks, offset: WallOffset, index: u32) -> u64 {
    if share == Share::NOTHING {
        return 0;
    }
    match spec.algorithm() {
        Algorithm::TokenBucket => now.plus(Ticks::new(share.of_time(spec.rate().tolerance))).get(),
        Algorithm::LeakyBucket => {
            now.plus(Ticks::new(share.of_time(leaky_capacity(&spec.rate())))).get()
        }
        Algorithm::SlidingLog => {
            let size = u64::from(spec.log().size);
            // The head is at the first entry of its first lap. Free entries come first, so that it
            // meets none of the present lap, and the others all free up together.
            let free = size.wrapping_sub(share.of_count(size));
            if u64::from(index) > free { sliding_log::stamped(now) } else { 0 }
        }
        Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingSlots => {
            let limit = spec.window();
            let number = present(spec, now, offset);
            if u64::from(index) == number & places(spec) {
                limit.pack(Tally { number, count: share.of_count(limit.limit) })
            } else {
                0
            }
        }
    }
}

/// The index of the word that holds the whole used share of a limit that was seeded at `now`; of a
/// log the head.
///
/// CPUs whose clocks are on both sides of a border disagree about it. So whoever converts a limit
/// stores this word first: then a mixture of two conversions holds the share once or twice, but
/// never not at all.
#[inline(always)]
pub fn holder(spec: &LimitSpec, now: Ticks, offset: WallOffset) -> u32 {
    // At most 7.
    (present(spec, now, offset) & places(spec) & 7) as u32
}

/// The number of the present window or slot. Only calendar windows follow the wall clock.
#[inline(always)]
fn present(spec: &LimitSpec, now: Ticks, offset: WallOffset) -> u64 {
    let offset = match spec.algorithm() {
        Algorithm::FixedWindow => offset,
        _ => WallOffset::BOOT,
    };
    spec.window().at(now, offset).number
}

/// The bits of the number of a window or slot that say which word is its.
#[inline(always)]
const fn places(spec: &LimitSpec) -> u64 {
    match spec.algorithm() {
        Algorithm::SlidingCounter => 1,
        Algorithm::SlidingSlots => (spec.window().slots as u64).wrapping_sub(1),
        _ => 0,
    }
}

/// What a leaky bucket lets pass at once: it conforms up to its backlog and then takes one more.
#[inline(always)]
fn leaky_capacity(limit: &Limit) -> u64 {
    let capacity = limit.tolerance.wrapping_add(cost(limit, 1).get());
    if capacity > MAX_TICKS { MAX_TICKS } else { capacity }
}

/// The packets of the last window.
#[inline(always)]
fn logged<W: Words>(spec: &LimitSpec, words: &W, now: Ticks) -> u64 {
    let limit = spec.log();
    let mut count = 0;
    let mut index = 0;
    while index < u32::from(MAX_SIZE) {
        index += 1;
        let entry = raw(words, place(spec, index)) >> 1;
        count += u64::from(index <= u32::from(limit.size)) & u64::from(limit.counts(entry, now));
    }
    count
}
