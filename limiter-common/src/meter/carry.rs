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

use core::hint::black_box;

use super::place::Place;
use super::share::Share;
use crate::algorithm::sliding_log::{self, LogLimit, MAX_SIZE};
use crate::algorithm::window::{Tally, WallOffset};
use crate::algorithm::{Words, fixed_window, sliding_counter};
use crate::gcra::cost;
use crate::rounds::Rounds;
use crate::time::{MAX_TICKS, Ticks};
use crate::wire::{Algorithm, Limit, LimitSpec};

/// The share of a limit that is used at `now`, rounded up. Scale bits are ignored.
#[inline(always)]
pub fn used<W: Words>(spec: &LimitSpec, words: &W, now: Ticks, offset: WallOffset) -> Share {
    // The scale bit is not looked at.
    let place = Place::new(spec, words, false);
    let (part, whole) = match spec.algorithm() {
        Algorithm::TokenBucket => {
            (Ticks::new(place.state(0)).since(now).get(), spec.rate().tolerance)
        }
        Algorithm::LeakyBucket => {
            let limit = spec.rate();
            let owed = Ticks::new(place.state(0)).since(now).get();
            let capacity = leaky_capacity(&limit);
            (if owed > limit.tolerance { capacity } else { owed }, capacity)
        }
        Algorithm::FixedWindow => {
            let limit = spec.window();
            let position = limit.at(now, offset);
            (fixed_window::present(&limit, place.state(0), position).count, limit.limit)
        }
        Algorithm::SlidingCounter => {
            let (states, _) = place.two();
            sliding_counter::weighted(&spec.window(), &states, now)
        }
        Algorithm::SlidingSlots => {
            let limit = spec.window();
            let number = limit.at(now, WallOffset::BOOT).number;
            (place.slots(&limit, number).0.sum(), limit.limit)
        }
        Algorithm::SlidingLog => (logged(&spec.log(), &place, now), u64::from(spec.log().size)),
    };
    // One division for all algorithms, and not one for each.
    Share::of(black_box(part), black_box(whole))
}

/// The 63-bit state of the word at `index`, below `spec.words`, of a limit of which that share is
/// used at `now`.
#[inline(always)]
pub fn seed(spec: &LimitSpec, share: Share, now: Ticks, offset: WallOffset, index: u32) -> u64 {
    Seed::new(spec, share, now, offset).word(index)
}

/// The states of all words of a limit of which a share is used: one value in some of them, and zero
/// in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    first: u32,
    /// A bit for each word that is not zero.
    mask: u64,
    state: u64,
}

impl Seed {
    /// Of a limit of which that share is used at `now`.
    #[inline(always)]
    pub fn new(spec: &LimitSpec, share: Share, now: Ticks, offset: WallOffset) -> Self {
        if share == Share::NOTHING {
            return Self { first: 0, mask: 0, state: 0 };
        }
        match spec.algorithm() {
            Algorithm::TokenBucket => Self::debt(share, spec.rate().tolerance, now),
            Algorithm::LeakyBucket => Self::debt(share, leaky_capacity(&spec.rate()), now),
            Algorithm::FixedWindow => Self::count(spec, share, now, offset, 0),
            Algorithm::SlidingCounter => Self::count(spec, share, now, WallOffset::BOOT, 1),
            Algorithm::SlidingSlots => {
                let last = u64::from(spec.window().slots).wrapping_sub(1);
                Self::count(spec, share, now, WallOffset::BOOT, last)
            }
            Algorithm::SlidingLog => {
                let size = u64::from(spec.log().size);
                // The head is zero: at the first entry of its first lap. The free entries come
                // first, so that all others free up together, and none is of the head's lap. All
                // are at most 31.
                let free = size.wrapping_sub(share.of_count(size)) & 31;
                let (first, last) = (free + 1, size & 31);
                let mask = (2u64 << last).wrapping_sub(1 << first);
                Self { first: (first & 63) as u32, mask, state: sliding_log::stamped(now) }
            }
        }
    }

    /// The state of one word.
    #[inline(always)]
    pub const fn word(&self, index: u32) -> u64 {
        // No branch: the verifier would walk both sides for every word.
        self.state & (self.mask >> (index & 63) & 1).wrapping_neg()
    }

    /// The first word that is not zero; 0 if all are.
    ///
    /// CPUs whose clocks are on both sides of a border disagree about it. Whoever converts a limit
    /// stores this word first: then a mixture of two conversions holds the share once or twice, but
    /// never not at all.
    #[inline(always)]
    pub const fn first(&self) -> u32 {
        self.first
    }

    #[inline(always)]
    fn debt(share: Share, capacity: u64, now: Ticks) -> Self {
        Self { first: 0, mask: 1, state: now.plus(Ticks::new(share.of_time(capacity))).get() }
    }

    /// A count in the present window, whose word is that of the low bits of its number.
    #[inline(always)]
    fn count(spec: &LimitSpec, share: Share, now: Ticks, offset: WallOffset, last: u64) -> Self {
        let limit = spec.window();
        let number = limit.at(now, offset).number;
        let state = limit.pack(Tally { number, count: share.of_count(limit.limit) });
        // At most 7.
        let first = (number & last & 7) as u32;
        Self { first, mask: 1 << first, state }
    }
}

/// What a leaky bucket lets pass at once: it conforms up to its backlog and then takes one more.
#[inline(always)]
fn leaky_capacity(limit: &Limit) -> u64 {
    let capacity = limit.tolerance.wrapping_add(cost(limit, 1).get());
    // Room for one more bit; the compile step allows nothing as long.
    if capacity > MAX_TICKS >> 1 { MAX_TICKS >> 1 } else { capacity }
}

/// The packets of the last window.
#[inline(always)]
fn logged<W: Words>(limit: &LogLimit, place: &Place<'_, W>, now: Ticks) -> u64 {
    let mut count = 0u64;
    let mut rounds = Rounds::new();
    // At most 31, and no branch within, for the verifier.
    while let Some(entry) = rounds.next(u64::from(limit.size & MAX_SIZE)) {
        count = count.wrapping_add(limit.counts(place.state(entry.wrapping_add(1)), now) & 1);
    }
    count
}
