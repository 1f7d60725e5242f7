//! How much a limit would still let pass, in its units.

use crate::rounds::Rounds;
use crate::wire::Limit;

/// Units that may pass at once: whole ones, and a rest in 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Available {
    whole: u64,
    /// Below 2^32.
    rest: u64,
}

/// Fraction bits of a rest.
const BITS: u32 = 32;
const LOW: u64 = (1 << BITS) - 1;

impl Available {
    /// Whole units.
    #[inline(always)]
    pub(super) const fn units(whole: u64) -> Self {
        Self { whole, rest: 0 }
    }

    /// Whole units, without the rest.
    #[inline(always)]
    pub(super) const fn whole(self) -> u64 {
        self.whole
    }

    /// What a time below 2^62 ticks is worth at a rate, rounded down to 2^-32 of a unit.
    ///
    /// `time / (increment / 2^shift)` by long division, a bit a round, because `increment` has up to 62
    /// bits. No branch within a round, for the verifier.
    #[inline(always)]
    pub(super) fn of_time(limit: &Limit, time: u64) -> Self {
        let increment = limit.increment;
        let mut whole = time.checked_div(increment).unwrap_or_default();
        let mut left = time.wrapping_sub(whole.wrapping_mul(increment));
        let mut rounds = Rounds::new();
        while rounds.more(u64::from(limit.shift & 63)) {
            whole = whole.wrapping_shl(1) | digit(&mut left, increment);
        }
        let mut rest = 0u64;
        let mut rounds = Rounds::new();
        while rounds.more(u64::from(BITS)) {
            rest = rest.wrapping_shl(1) | digit(&mut left, increment);
        }
        Self { whole, rest }
    }

    /// The time that they are worth at a rate, rounded down, and at most `most` ticks.
    #[inline(always)]
    pub(super) fn as_time(self, limit: &Limit, most: u64) -> u64 {
        let shift = u32::from(limit.shift & 63);
        let (high, low) = multiply(self.whole, limit.increment);
        if high >> shift != 0 {
            return most;
        }
        // In two steps: a shift by 64 is none.
        let whole = low >> shift | (high << 1) << (63 - shift);
        // Both halves are below 2^62.
        let rest = self.rest.wrapping_mul(limit.increment >> BITS);
        let rest = rest.wrapping_add(self.rest.wrapping_mul(limit.increment & LOW) >> BITS);
        let time = whole.saturating_add(rest >> shift);
        if time > most { most } else { time }
    }
}

/// The next binary digit of a division whose remainder is `left`, below `divisor` and 2^62.
#[inline(always)]
fn digit(left: &mut u64, divisor: u64) -> u64 {
    let doubled = left.wrapping_shl(1);
    // The sign of the difference, for both are below 2^63.
    let fits = (doubled.wrapping_sub(divisor) >> 63) ^ 1;
    *left = doubled.wrapping_sub(divisor & fits.wrapping_neg());
    fits
}

/// The product in two words, the high one first. BPF has no wider one.
#[inline(always)]
const fn multiply(a: u64, b: u64) -> (u64, u64) {
    let (a1, a0, b1, b0) = (a >> BITS, a & LOW, b >> BITS, b & LOW);
    let low = a0.wrapping_mul(b0);
    let middle = a1.wrapping_mul(b0).wrapping_add(low >> BITS);
    let other = a0.wrapping_mul(b1).wrapping_add(middle & LOW);
    let high = a1.wrapping_mul(b1).wrapping_add(middle >> BITS).wrapping_add(other >> BITS);
    (high, other << BITS | low & LOW)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate() -> impl Strategy<Value = Limit> {
        let packets = (100u64..1 << 55).prop_map(|increment| (increment, 0));
        let bytes = (1u64 << 30..1 << 45, 0u8..=32);
        prop_oneof![packets, bytes].prop_map(|(increment, shift)| Limit {
            increment,
            shift,
            ..Limit::default()
        })
    }

    proptest! {
        #[test]
        fn products_have_two_words(a: u64, b: u64) {
            let (high, low) = multiply(a, b);
            prop_assert_eq!(u128::from(high) << 64 | u128::from(low), u128::from(a) * u128::from(b));
        }

        /// Against rational arithmetic, both ways.
        #[test]
        fn a_time_is_worth_units_and_back(limit in rate(), time in 0u64..1 << 61) {
            let units = Available::of_time(&limit, time);
            let exact = (u128::from(time) << limit.shift) / u128::from(limit.increment);
            prop_assert_eq!(u128::from(units.whole), exact);
            let left = (u128::from(time) << limit.shift) % u128::from(limit.increment);
            prop_assert_eq!(u128::from(units.rest), (left << BITS) / u128::from(limit.increment));
            let back = units.as_time(&limit, u64::MAX);
            // A part of 2^-32 of a unit, and a tick.
            let lost = (limit.increment >> limit.shift >> BITS) + 2;
            prop_assert!(back <= time && time - back <= lost, "{} of {}", back, time);
            prop_assert_eq!(units.as_time(&limit, time / 2), time / 2);
        }

        /// Whole units are exact, however many.
        #[test]
        fn units_are_worth_a_time(limit in rate(), whole: u64) {
            let exact = u128::from(whole) * u128::from(limit.increment) >> limit.shift;
            let most = 1u64 << 61;
            let time = Available::units(whole).as_time(&limit, most);
            prop_assert_eq!(u128::from(time), exact.min(u128::from(most)));
        }
    }
}
