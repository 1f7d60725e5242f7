//! The generic cell rate algorithm (ITU-T I.371, "virtual scheduling"): a token bucket in one word.
//!
//! The state is the *theoretical arrival time* (TAT): the instant at which the bucket will be full
//! again. A packet of `units` conforms at `now` when
//!
//! ```text
//! max(tat, now) + cost(units) <= now + tolerance        tolerance = burst * increment
//! ```
//!
//! and then the left side becomes the new TAT; otherwise nothing changes. A TAT in the past is a
//! full bucket and holds no information.
//!
//! Bound: every admission moves the TAT by its cost, the first one in a window of length `t` starts
//! at or after the window's start, and the last one ends at or before `now + tolerance`. So the
//! admitted costs sum to at most `t + tolerance`: burst + rate * t, whatever the interleaving of
//! CPUs and however their clocks disagree in between. Costs are rounded up, never down.
//!
//! A super-frame ([`FrameSize`]) passes or is dropped as a whole. One that costs more than the
//! whole burst conforms when the bucket is full, and the rest of its cost is owed: so the bound is
//! burst + rate * t + one super-frame where super-frames are larger than the burst, and the rate
//! stays exact. Otherwise such a stream would never pass.

use limiter_common::bucket::{Change, Word};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::verdict::Reason;
use limiter_common::wire::Limit;

use crate::cell::Cell;

/// One packet against one limit: everything that does not depend on the bucket, so that a retry
/// after a lost compare-and-exchange costs four instructions.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    now: Ticks,
    cost: Ticks,
    horizon: Ticks,
}

impl Charge {
    /// A frame that arrives at `now`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn of_frame(limit: &Limit, now: Ticks, size: FrameSize) -> Self {
        Self::of_units(limit, now, limit.units(size), size.is_super_frame())
    }

    /// A frame of `units` that arrives at `now`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn of_units(limit: &Limit, now: Ticks, units: u64, is_super_frame: bool) -> Self {
        let horizon = now.plus(Ticks::new_within(limit.tolerance));
        Self { now, cost: cost_of(limit, units, is_super_frame), horizon }.of_whole(is_super_frame)
    }

    /// The charge of a packet of `units` that arrives at `now`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn new(limit: &Limit, now: Ticks, units: u64) -> Self {
        Self::of_units(limit, now, units, false)
    }

    /// The charge of a super-frame, if it is one. It cannot be split, so it conforms when the
    /// bucket is full, whatever it costs.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_whole(self, is_super_frame: bool) -> Self {
        let whole = self.now.plus(self.cost);
        if is_super_frame && whole > self.horizon { Self { horizon: whole, ..self } } else { self }
    }

    /// Copy of the charge at another time.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub fn at(&self, limit: &Limit, now: Ticks, is_super_frame: bool) -> Self {
        let horizon = now.plus(Ticks::new_within(limit.tolerance));
        Self { now, cost: self.cost, horizon }.of_whole(is_super_frame)
    }

    /// True if the packet is over the limit now and at any earlier time. A single comparison, so a
    /// packet larger than the whole burst can be over the limit and still get `false`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn is_over_until_now(&self, tat: Ticks) -> bool {
        tat.plus_within(self.cost) > self.horizon
    }

    /// The parts: arrival, cost, and the time up to which it may owe.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn parts(&self) -> [u64; 3] {
        [self.now.get(), self.cost.get(), self.horizon.get()]
    }

    /// Restores the result of [`Charge::parts`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_parts([now, cost, horizon]: [u64; 3]) -> Self {
        Self {
            now: Ticks::new_within(now),
            cost: Ticks::new_within(cost),
            horizon: Ticks::new_within(horizon),
        }
    }

    /// The TAT to store if the packet conforms; `None` if it is over the limit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn apply(&self, tat: Ticks) -> Option<Ticks> {
        let start = if tat > self.now { tat } else { self.now };
        let next = start.plus_within(self.cost);
        if next <= self.horizon { Some(next) } else { None }
    }

    /// Tries once to charge a bucket whose word is `word`, and writes the change to `stored`. A
    /// packet over the limit is answered from the word alone. `None` if another CPU was faster.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn attempt(&self, cell: &impl Cell, word: Word, stored: &mut Change) -> Option<Reason> {
        let Some(tat) = self.apply(word.tat()) else {
            return Some(Reason::OverLimit);
        };
        let next = Word::new(tat, word.scale());
        if !cell.compare_exchange(word.raw(), next.raw()) {
            return None;
        }
        *stored = Change { old: word.raw(), new: next.raw() };
        Some(Reason::Conforming)
    }
}

/// The time that `units` take at the limit's rate, rounded up to a whole tick.
///
/// Exact while `units <= limit.max_units()`: the rule compiler picks `shift` so that the product
/// stays under 2^62. Larger counts are charged as `max_units`, so the product never wraps.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn cost(limit: &Limit, units: u64) -> Ticks {
    let units = if units > limit.max_units() { limit.max_units() } else { units };
    rounded(limit, limit.increment.wrapping_mul(units))
}

/// [`cost`] of a frame. A super-frame has more units than `max_units`: its cost is exact as long as
/// the product is under 2^62, and otherwise that of 2^62 - 1.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn cost_of(limit: &Limit, units: u64, is_super_frame: bool) -> Ticks {
    if is_super_frame {
        rounded(limit, product(limit.increment, units))
    } else {
        cost(limit, units)
    }
}

/// Ticks for a product of a limit's increment.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn rounded(limit: &Limit, product: u64) -> Ticks {
    let round_up = (1u64 << (limit.shift & 63)) - 1;
    Ticks::new_within(product.wrapping_add(round_up) >> (limit.shift & 63))
}

/// `increment * units` for an increment below 2^62, or 2^62 - 1 if the product is far larger. More
/// than 2^20 - 1 units count as so many: no super-frame has them (`GSO_MAX_SIZE` is 2^19 bytes).
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn product(increment: u64, units: u64) -> u64 {
    const MOST: u64 = (1 << 20) - 1;
    let units = if units > MOST { MOST } else { units };
    // Ignores the lower half of the increment, which adds less than 2^52.
    if (increment >> 32).wrapping_mul(units) >> 30 == 0 {
        increment.wrapping_mul(units)
    } else {
        (1 << 62) - 1
    }
}

/// When a packet charged at `now` conforms, if packets may wait: the charge raised the TAT from
/// `before` to `after`. Departing packets then keep the bound of [`self`].
///
/// A super-frame that costs more than the whole burst departs when the bucket is full.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn departure(limit: &Limit, before: Ticks, after: Ticks, now: Ticks) -> Ticks {
    let start = if before > now { before } else { now };
    let room = after.since(Ticks::new_within(limit.tolerance));
    let departure = if room < start { room } else { start };
    if departure > now { departure } else { now }
}

/// The units that would conform at `now` if they came at once, rounded down.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn remaining(limit: &Limit, tat: Ticks, now: Ticks) -> u64 {
    let room = Ticks::new(limit.tolerance).since(tat.since(now)).get();
    if limit.increment == 0 {
        return u64::MAX;
    }
    // room / (increment / 2^shift) without losing the fraction: quotient and remainder are
    // calculated separately.
    let whole = div(room, limit.increment);
    let rest = room.wrapping_sub(whole.wrapping_mul(limit.increment));
    let shift = u32::from(limit.shift) & 63;
    let mut units = whole;
    let mut rest = rest;
    let mut bit = 0;
    while bit < shift {
        units = units.wrapping_shl(1);
        rest = rest.wrapping_shl(1);
        if rest >= limit.increment {
            rest = rest.wrapping_sub(limit.increment);
            units |= 1;
        }
        bit += 1;
    }
    units
}

/// The TAT if the limit under which it was charged is unknown, because its slot has been reused: a
/// bucket with any debt counts as empty. Anything else could grant what neither limit would have.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn forget(new: &Limit, tat: Ticks, now: Ticks) -> Ticks {
    if tat > now { now.plus(Ticks::new(new.tolerance)) } else { Ticks::ZERO }
}

/// `a / b`, or the largest instant for `b == 0`: no division can trap or panic.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn div(a: u64, b: u64) -> u64 {
    match a.checked_div(b) {
        Some(quotient) => quotient,
        None => MAX_TICKS,
    }
}
