//! The exchange of an amount in the measure of one limit for one in the measure of another.

use limiter_common::wire::{Algorithm, Limit, LimitSpec};

use crate::rounds::Rounds;

/// One unit (a packet, a byte) in the measure of a limit: `size / 2^shift`, a time in ticks, or a
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The size, at most 2^62.
    pub size: u64,
    /// The shift, at most 32.
    pub shift: u8,
}

impl Unit {
    /// The unit of a count.
    pub const ONE: Self = Self { size: 1, shift: 0 };

    /// The unit of a rate: the time that it takes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_rate(limit: &Limit) -> Self {
        Self { size: limit.increment, shift: limit.shift }
    }

    /// The unit of the measure in which a limit's used part is computed.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn of_used(spec: &LimitSpec) -> Self {
        match spec.algorithm() {
            Algorithm::SlidingCounter => Self { size: spec.window().cut_width(), shift: 0 },
            _ => Self::of_seeded(spec),
        }
    }

    /// The unit of the measure in which a limit's state is seeded.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn of_seeded(spec: &LimitSpec) -> Self {
        match spec.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::of_rate(&spec.rate()),
            _ => Self::ONE,
        }
    }
}

/// The units of two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// The unit that an amount is in.
    pub from: Unit,
    /// The unit that it is exchanged for.
    pub to: Unit,
}

impl Units {
    /// Three registers: both sizes, and the shifts as `to:8 | from:8`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn registers(&self) -> [u64; 3] {
        let shifts = self.from.shift as u64 | (self.to.shift as u64) << 8;
        [self.from.size, self.to.size, shifts]
    }

    /// Takes what [`Units::registers`] gave.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_registers([from, to, shifts]: [u64; 3]) -> Self {
        Self {
            from: Unit { size: from, shift: (shifts & 63) as u8 },
            to: Unit { size: to, shift: (shifts >> 8 & 63) as u8 },
        }
    }
}

/// Binary digits of a unit that are kept beside whole ones.
const BITS: u32 = 32;
const LOW: u64 = (1 << BITS) - 1;

/// The amount in the measure `to` that is as many units as `amount`, below 2^62, in the measure
/// `from`: rounded down to 2^-32 of a unit and to one of `to`, and at most `most`, below 2^62.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn exchange(units: &Units, amount: u64, most: u64) -> u64 {
    rounded(units, amount, most, false)
}

/// As [`exchange`], but rounded up: exact for whole units.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn owed(units: &Units, amount: u64, most: u64) -> u64 {
    rounded(units, amount, most, true)
}

/// [`exchange`], or [`owed`] if it is to be rounded up.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn rounded(units: &Units, amount: u64, most: u64, up: bool) -> u64 {
    let Units { from, to } = *units;
    let up = u64::from(up).wrapping_neg();
    let (whole, rest, is_more) = divide(from, amount);
    // At most 2^32, so that no sum wraps.
    let rest = rest.wrapping_add(is_more & up);
    let shift = u32::from(to.shift & 63);
    let below = (1u64 << shift).wrapping_sub(1) & up;
    let (high, product) = multiply(whole, to.size);
    let low = product.wrapping_add(below);
    let high = high.wrapping_add(u64::from(low < product));
    if high >> shift != 0 {
        return most;
    }
    // In two steps: a shift by 64 is none.
    let whole = low >> shift | (high << 1) << (63 - shift);
    // Both halves are below 2^62.
    let part = rest.wrapping_mul(to.size & LOW).wrapping_add(LOW & up) >> BITS;
    let part = rest.wrapping_mul(to.size >> BITS).wrapping_add(part);
    let part = part.wrapping_add(below) >> shift;
    // The first is below 2^64 and the second below 2^62.
    if whole > most || whole.wrapping_add(part) > most { most } else { whole.wrapping_add(part) }
}

/// Whole units, a rest in 2^-32, and 1 if there is more than that, otherwise 0.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn divide(unit: Unit, amount: u64) -> (u64, u64, u64) {
    let whole = amount.checked_div(unit.size).unwrap_or_default();
    let left = amount.wrapping_sub(whole.wrapping_mul(unit.size));
    // 64 digits of the fraction, of which the first are whole units once they are shifted.
    let (high, left) = digits(left, unit.size);
    let (low, left) = digits(left, unit.size);
    let fraction = high << BITS | low;
    let shift = u32::from(unit.shift & 63);
    let rest = fraction << shift;
    let is_more = u64::from((left | rest & LOW) != 0);
    (whole << shift | (fraction >> 1) >> (63 - shift), rest >> BITS, is_more)
}

/// The next 32 binary digits of a division whose remainder is `left`, below `divisor` and 2^62, and
/// the remainder after them. By two bits in a round, because two more are what fits; no branch in
/// it, for the verifier. Not unrolled: the kernel patches each division of a program by itself, and
/// moves all that follows.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn digits(mut left: u64, divisor: u64) -> (u64, u64) {
    let mut quotient = 0u64;
    let mut rounds = Rounds::new();
    while rounds.more(u64::from(BITS >> 1)) {
        left = left.wrapping_shl(2);
        let digit = left.checked_div(divisor).unwrap_or_default();
        left = left.wrapping_sub(digit.wrapping_mul(divisor));
        quotient = quotient.wrapping_shl(2) | digit;
    }
    (quotient, left)
}

/// The product in two words, the high one first. BPF has no wider one.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn multiply(a: u64, b: u64) -> (u64, u64) {
    let (a1, a0, b1, b0) = (a >> BITS, a & LOW, b >> BITS, b & LOW);
    let low = a0.wrapping_mul(b0);
    let middle = a1.wrapping_mul(b0).wrapping_add(low >> BITS);
    let other = a0.wrapping_mul(b1).wrapping_add(middle & LOW);
    let high = a1.wrapping_mul(b1).wrapping_add(middle >> BITS).wrapping_add(other >> BITS);
    (high, other << BITS | low & LOW)
}

#[cfg(test)]
#[expect(clippy::integer_division_remainder_used, reason = "the oracle is of the host")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unit() -> impl Strategy<Value = Unit> {
        let packets = (100u64..1 << 55).prop_map(|size| Unit { size, shift: 0 });
        let bytes = (1u64 << 30..1 << 45, 0u8..=32).prop_map(|(size, shift)| Unit { size, shift });
        prop_oneof![Just(Unit::ONE), packets, bytes]
    }

    proptest! {
        #[test]
        fn products_have_two_words(a: u64, b: u64) {
            let (high, low) = multiply(a, b);
            prop_assert_eq!(u128::from(high) << 64 | u128::from(low), u128::from(a) * u128::from(b));
        }

        #[test]
        fn an_amount_has_units(unit in unit(), amount in 0u64..1 << 61) {
            let (whole, rest, is_more) = divide(unit, amount);
            let (size, scaled) = (u128::from(unit.size), u128::from(amount) << unit.shift);
            prop_assert_eq!(u128::from(whole), scaled / size);
            prop_assert_eq!(u128::from(rest), ((scaled % size) << BITS) / size);
            prop_assert_eq!(is_more != 0, !((scaled % size) << BITS).is_multiple_of(size));
        }

        /// No debt becomes less: whole units stay as they are, a part of one grows by 2^-32 of a
        /// unit and three ticks at most.
        #[test]
        fn no_debt_becomes_less(from in unit(), to in unit(), amount in 0u64..1 << 61) {
            let most = (1u64 << 62) - 1;
            // Units in 2^-34 of one.
            let units = |unit: Unit, amount: u64| {
                (u128::from(amount) << unit.shift << 34) / u128::from(unit.size)
            };
            let owed_now = owed(&Units { from, to }, amount, most);
            let (had, has) = (units(from, amount), units(to, owed_now));
            prop_assert!(has >= had || owed_now == most, "{has} of {had} >> 34");
            prop_assert!(has <= had + 5 + units(to, 3), "{has} of {had} >> 34");
            let down = exchange(&Units { from, to }, amount, most);
            prop_assert!(owed_now >= down);
        }

        /// Whole packets are whole packets under any rate.
        #[test]
        fn whole_units_are_owed_exactly(
            from in 100u64..1 << 50, to in 100u64..1 << 50, units in 0u64..1000,
        ) {
            let [from, to] = [from, to].map(|size| Unit { size, shift: 0 });
            let found = owed(&Units { from, to }, from.size * units, (1 << 62) - 1);
            prop_assert_eq!(found, to.size * units);
        }

        /// Whole units are exact, however many; a part of one is short of 2^-32 of a unit and a
        /// tick, and never more.
        #[test]
        fn amounts_are_exchanged(from in unit(), to in unit(), amount in 0u64..1 << 61, units: u64) {
            let most = 1u64 << 61;
            let exact = |units: u128| (units * u128::from(to.size)) >> to.shift;
            prop_assert_eq!(
                u128::from(exchange(&Units { from: Unit::ONE, to }, units, most)),
                exact(units.into()).min(most.into())
            );
            let scaled = (u128::from(amount) << from.shift) / u128::from(from.size);
            let found = u128::from(exchange(&Units { from, to }, amount, most));
            let least = exact(scaled).min(most.into());
            let less_than = exact(scaled + 1).min(u128::from(most));
            prop_assert!(found >= least && found <= less_than, "{found}: {least} to {less_than}");
            let there = exchange(&Units { from, to }, amount, u64::MAX >> 2);
            let back = exchange(&Units { from: to, to: from }, there, most);
            prop_assert!(back <= amount);
        }
    }
}
