//! The leaky bucket as a meter: conforming packets are one interval apart, up to a backlog.
//!
//! The bucket drains at the limit's rate. A packet conforms when what is still in the bucket would
//! drain within the backlog; then the whole packet is poured in, whatever its size:
//!
//! ```text
//! tat <= now + backlog        then tat = max(tat, now) + cost(units)
//! ```
//!
//! This is the GCRA of ITU-T I.371 with its tolerance as a time of its own. The token bucket of
//! [`crate::gcra`] asks for room for the packet *and* what was before it, and so its burst must
//! hold a frame; here a backlog of zero is the strictest: never two packets within one interval.
//!
//! * Bound: n conforming packets in a row span at least the cost of the first n - 1 of them minus
//!   the backlog, so in a window of length `t` at most `t + backlog` of cost and the last packet:
//!   `rate * (t + backlog) + one packet`. Exact: costs are rounded up.
//! * A source whose packets are at least their predecessor's cost apart, or late by no more than
//!   the backlog in sum, loses none.
//! * State: one word, the theoretical arrival time. One compare-and-exchange for a packet that
//!   passes, one read for one that does not; exact on any number of CPUs, like [`crate::gcra`].
//! * Ranges: those of [`crate::gcra`] for the increment; `Limit::tolerance` is the backlog, 0 to
//!   2^61 ticks. The compile step refuses what does not fit. In the last `backlog + cost` of the
//!   clock's 9.1 years a packet whose debt would not fit the word is refused.

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::wire::Limit;

use crate::algorithm::{self, Charged};
use crate::cell::Cell;
use crate::gcra::cost_of;

/// One packet against one limit.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    now: Ticks,
    cost: Ticks,
    horizon: Ticks,
}

impl Charge {
    /// A packet of `units` that arrives at `now`. The limit's `tolerance` is the backlog.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn new(limit: &Limit, now: Ticks, units: u64) -> Self {
        Self::of_units(limit, now, units, false)
    }

    /// A frame of `units` that arrives at `now`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn of_units(limit: &Limit, now: Ticks, units: u64, is_super_frame: bool) -> Self {
        let cost = cost_of(limit, units, is_super_frame);
        Self { now, cost, horizon: now.plus(Ticks::new(limit.tolerance)) }
    }

    /// The TAT to store if the packet conforms.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn apply(&self, tat: Ticks) -> Option<Ticks> {
        if tat > self.horizon {
            return None;
        }
        let start = if tat > self.now { tat } else { self.now };
        let next = start.plus_within(self.cost);
        // A sum that does not fit would become a shorter debt than the packet's.
        if next.get() <= MAX_TICKS { Some(next) } else { None }
    }
}

/// The time that a packet arriving at `now` would wait in a queue of the same rate.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn backlog(tat: Ticks, now: Ticks) -> Ticks {
    tat.since(now)
}

/// When a packet charged at `now` conforms, if packets may wait. `before` is the TAT that the
/// charge found.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn departure(limit: &Limit, before: Ticks, now: Ticks) -> Ticks {
    let departure = before.since(Ticks::new_within(limit.tolerance));
    if departure > now { departure } else { now }
}

/// Charges a packet to the word of a key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge(limit: &Limit, cell: &impl Cell, now: Ticks, units: u64) -> Charged {
    let charge = Charge::new(limit, now, units);
    algorithm::charge(cell, |word| charge.apply(Ticks::new(word)).map(Ticks::get))
}
