//! What a token or leaky bucket owes, whatever its rate.
//!
//! A word holds the instant at which all is paid. A debt that was made under a fast rate can take
//! longer than a word has time for, once the rate is slow: a million packets at one a week. It must
//! not become less by that, or a change to a slow rate and back would grant a burst. So the last
//! instants of the range, 4.3 s of 9.1 years, are no times: they are a number of units that are owed
//! until the rate changes again, which takes longer than two years to be a difference.

use limiter_common::time::{MAX_TICKS, Ticks};

/// The longest debt that is kept as a time: the longest that a limit allows, 2.28 years.
pub(super) const LONGEST: u64 = 1 << 61;

/// The bit of a debt that is a number of units.
const IN_UNITS: u64 = 1 << 62;

/// Instants that are numbers of units.
const NUMBERS: u64 = 1 << 38;

/// The first of these instants. The very last one is none of them, because a bucket that leaves has
/// it.
const FIRST: u64 = MAX_TICKS - NUMBERS;

/// Numbers below this one are so many units; above it each one is 2^[`COARSE`] units.
const EXACT: u64 = 1 << 37;
const COARSE: u32 = 27;

/// What is owed at `at` by a bucket that is full at `tat`: ticks, or the code of [`in_units`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn debt(tat: Ticks, at: Ticks) -> u64 {
    if tat.get() >= FIRST { IN_UNITS | (tat.get() - FIRST) } else { tat.since(at).get() }
}

/// The instant to keep for a debt at `at`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn full_at(at: Ticks, debt: u64) -> Ticks {
    if debt >= IN_UNITS {
        return Ticks::new(FIRST + (debt & (NUMBERS - 1)));
    }
    let full = at.plus(Ticks::new(debt));
    if full.get() >= FIRST { Ticks::new(FIRST - 1) } else { full }
}

/// True if `tat` is no time: the bucket owes more than it pays in two years.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn is_endless(tat: Ticks) -> bool {
    tat.get() >= FIRST
}

/// A debt of so many units, rounded up, below 2^63.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn in_units(units: u64) -> u64 {
    let number = if units < EXACT { units } else { EXACT + (units >> COARSE) + 1 };
    // Past a number that no limit has.
    IN_UNITS | if number < NUMBERS { number } else { NUMBERS - 1 }
}

/// The units of a debt that is a number of them; `None` for one that is a time.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn units_of(debt: u64) -> Option<u64> {
    if debt < IN_UNITS {
        return None;
    }
    let number = debt & (NUMBERS - 1);
    Some(if number < EXACT { number } else { (number - EXACT) << COARSE })
}
