//! Rates and bursts by the numbers that the program has.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use limiter_common::time::TICK_BITS;
use limiter_common::wire::{Count, Limit};

use crate::compile::{increment, tolerance};
use crate::model::{Period, Quota, RateLimit, Unit};

/// Largest multiplier of a unit of time that is tried.
const MULTIPLIERS: u32 = 60;

/// Digits of a number that is short enough to look no further.
const SHORT: u32 = 2;

/// Rates that were found, by their numbers: the rules of a set mostly have few.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<(u8, u64, u8), (Quota, bool)>);

impl Rates {
    /// The rate and the burst of a bucket, and whether they give its numbers again.
    pub(super) fn bucket(&mut self, limit: &Limit) -> (RateLimit, bool) {
        let (quota, exact) = self.quota(limit);
        let (burst, fits) = burst(limit);
        (quota.with_burst(burst), exact && fits)
    }

    /// The rate of a bucket, and whether it gives its increment again.
    pub(super) fn quota(&mut self, limit: &Limit) -> (Quota, bool) {
        let Limit { count, increment, shift, .. } = *limit;
        *self.0.entry((count, increment, shift)).or_insert_with(|| quota(limit))
    }
}

/// Time in nanoseconds as a period of the longest unit, and whether it is exactly that: whole
/// seconds.
pub(super) fn period(nanos: u64) -> (Period, bool) {
    const SECOND: u64 = 1_000_000_000;
    let seconds = (nanos / SECOND).max(1);
    let fits = |unit: &Unit| seconds.is_multiple_of(unit.seconds());
    let unit = Unit::ALL.into_iter().rev().find(fits).unwrap_or(Unit::Second);
    let multiplier = u32::try_from(seconds / unit.seconds()).unwrap_or(u32::MAX);
    (Period { unit, multiplier }, seconds.checked_mul(SECOND) == Some(nanos))
}

/// A rate in one period that gives an increment, with the digits that it takes to write it.
#[derive(Clone, Copy)]
struct Candidate {
    units: u64,
    period: Period,
    digits: u32,
}

fn quota(limit: &Limit) -> (Quota, bool) {
    let count = limit.counts();
    let mut best: Option<Candidate> = None;
    for unit in Unit::ALL {
        let Some(found) = candidate(limit, Period::one(unit)) else { continue };
        // A longer unit is worth it only if it says much less.
        if best.is_none_or(|best| found.digits + 1 < best.digits) {
            best = Some(found);
        }
    }
    if best.is_none_or(|best| best.digits > SHORT) {
        for unit in Unit::ALL {
            for multiplier in 2..=MULTIPLIERS {
                let found = candidate(limit, Period { unit, multiplier });
                let digits = |of: Candidate| of.digits + multiplier.ilog10() + 1;
                if let Some(found) = found
                    && best.is_none_or(|best| digits(found) < best.digits)
                {
                    best = Some(Candidate { digits: digits(found), ..found });
                }
            }
        }
    }
    let best = best.or_else(|| of_any_period(limit));
    if let Some(Candidate { units, period, .. }) = best {
        return (Quota::new(count, units, period), true);
    }
    // The nearest rate, in the shortest unit that has some digits.
    let nearest = Unit::ALL.map(|unit| (unit, in_period(limit, Period::one(unit))));
    let [.., week] = nearest;
    let (unit, units) = nearest.into_iter().find(|(_, units)| *units >= 1_000_000).unwrap_or(week);
    (Quota::new(count, units.max(1), Period::one(unit)), false)
}

/// Ticks of a period with the fraction bits of a limit's increment.
fn scaled(limit: &Limit, period: Period) -> u128 {
    (u128::from(period.nanos()) << TICK_BITS) << limit.shift.min(32)
}

/// Units that a limit passes in a period, rounded.
fn in_period(limit: &Limit, period: Period) -> u64 {
    let increment = u128::from(limit.increment).max(1);
    u64::try_from((scaled(limit, period) + increment / 2) / increment).unwrap_or(u64::MAX)
}

/// The roundest number of units in a period that gives a limit's increment.
fn candidate(limit: &Limit, period: Period) -> Option<Candidate> {
    let (ticks, wanted) = (scaled(limit, period), u128::from(limit.increment));
    // All numbers with `ceil(ticks / units) == wanted`.
    let least = ticks.checked_div(wanted)? + u128::from(!ticks.is_multiple_of(wanted));
    let most = match wanted.checked_sub(1) {
        None | Some(0) => u128::from(u64::MAX),
        Some(below) => (ticks - 1) / below,
    };
    let narrow = |value: u128| u64::try_from(value).ok();
    let (least, most) = (narrow(least)?, most.min(u64::MAX.into()));
    let units = roundest(least.max(1)..=narrow(most)?)?;
    let count = limit.counts();
    let same = increment(count, units, period.nanos()) == Some((wanted, u32::from(limit.shift)));
    let digits = match count {
        // Shown in bits.
        Count::Bytes if period == Period::one(Unit::Second) => {
            digits(units).min(units.checked_mul(8).map_or(u32::MAX, digits))
        }
        _ => digits(units),
    };
    same.then_some(Candidate { units, period, digits })
}

/// The rate of the shortest period of whole seconds that gives a limit's increment.
fn of_any_period(limit: &Limit) -> Option<Candidate> {
    let (second, wanted) = (scaled(limit, Period::one(Unit::Second)), u128::from(limit.increment));
    // `ceil(second * seconds / units) == wanted`
    let (seconds, units) = simplest((wanted.checked_sub(1)?, second), (wanted, second))?;
    let (period, _) = period(u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?);
    let fits = u64::from(period.multiplier) <= Period::most(period.unit);
    let units = u64::try_from(units).ok()?;
    let same =
        increment(limit.counts(), units, period.nanos()) == Some((wanted, u32::from(limit.shift)));
    (fits && same).then(|| Candidate { units, period, digits: digits(units) })
}

/// The fraction with the least numbers that is more than one and at most another; each as numerator
/// and denominator, of which none is 0, and the first the smaller one.
fn simplest(over: (u128, u128), most: (u128, u128)) -> Option<(u128, u128)> {
    let (low, high) = (over.0 / over.1, most.0 / most.1);
    if low < high {
        return Some((low + 1, 1));
    }
    // Between the same whole numbers: what is left, turned over.
    let (low_rest, high_rest) = (over.0 % over.1, most.0 % most.1);
    let (numerator, denominator) = simplest_from((most.1, high_rest), (over.1, low_rest))?;
    Some((low.checked_mul(numerator)?.checked_add(denominator)?, numerator))
}

/// As [`simplest`], but at least one and less than another, whose denominator may be 0: without
/// end.
fn simplest_from(least: (u128, u128), under: (u128, u128)) -> Option<(u128, u128)> {
    let low = least.0.checked_div(least.1)?;
    let whole = if least.0.is_multiple_of(least.1) { low } else { low + 1 };
    // `whole < under`
    if under.1 == 0 || whole.checked_mul(under.1)? < under.0 {
        return Some((whole, 1));
    }
    let rest = |of: (u128, u128)| of.0.checked_sub(low.checked_mul(of.1)?);
    let (numerator, denominator) = simplest((under.1, rest(under)?), (least.1, rest(least)?))?;
    Some((low.checked_mul(numerator)?.checked_add(denominator)?, numerator))
}

/// The burst of a bucket, and whether it gives its tolerance again.
fn burst(limit: &Limit) -> (u64, bool) {
    let (increment, shift) = (u128::from(limit.increment), u32::from(limit.shift).min(32));
    let wanted = u128::from(limit.tolerance);
    let of = |burst: u64| tolerance(limit.counts(), burst, increment, shift);
    let Some(whole) = (wanted << shift).checked_div(increment) else { return (1, false) };
    let end = u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(2);
    let first = |is: &dyn Fn(u128) -> bool| {
        let (mut low, mut high) = (0, end);
        while low < high {
            let middle = low + (high - low) / 2;
            if is(of(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    };
    let least = first(&|tolerance| tolerance >= wanted);
    let past = first(&|tolerance| tolerance > wanted);
    match past.checked_sub(1).and_then(|most| roundest(least..=most)) {
        Some(burst) => (burst, true),
        None => (least.max(1), false),
    }
}

/// The number with the fewest digits before its zeros, and the lowest of those; `None` for an empty
/// range.
fn roundest(range: RangeInclusive<u64>) -> Option<u64> {
    let (least, most) = range.into_inner();
    let steps = (0..=19).rev().filter_map(|zeros| 10u64.checked_pow(zeros));
    let multiple = |step: u64| least.div_ceil(step).checked_mul(step);
    steps.filter_map(multiple).find(|number| *number <= most && *number > 0)
}

/// Digits of a number without the zeros at its end.
const fn digits(number: u64) -> u32 {
    let mut number = number;
    while number != 0 && number.is_multiple_of(10) {
        number /= 10;
    }
    match number.checked_ilog10() {
        Some(log) => log + 1,
        None => 1,
    }
}
