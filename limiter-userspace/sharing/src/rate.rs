//! Rate of a shared limit as a ratio of integers, and the theoretical arrival time (TAT) of its
//! bucket. The store and its Lua script calculate with the same ratio, so they agree to the unit.

/// Exclusive bound up to which a Lua number (a double) represents every integer: 2^53.
pub const EXACT: u64 = 1 << 53;

/// Largest product of a rate's two numbers: sums of such a product and a remainder stay exact.
const PRODUCT: u64 = 1 << 52;

/// Largest units and microseconds of a rate: a week has less than 2^40 microseconds, and 100 Gbit/s
/// are less than 2^34 bytes a second.
pub const LARGEST: u64 = 1 << 42;

/// `units` every `micros` microseconds, in lowest terms; the product is at most 2^52.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    units: u64,
    micros: u64,
}

impl Rate {
    /// One unit in seven weeks.
    pub(super) const SLOWEST: Self = Self { units: 1, micros: LARGEST };

    /// `units` every `micros`, both in lowest terms 1 to [`LARGEST`]; `None` outside.
    ///
    /// Exact while the reduced product is at most 2^52: 1 a week is `1 / 604,800,000,000`, and 100
    /// Gbit/s are `12,500 / 1`. Any other ratio becomes the next lower one within the bound, by
    /// less than a ten-millionth.
    pub fn new(units: u64, micros: u64) -> Option<Self> {
        let divisor = greatest_divisor(units, micros).max(1);
        let (units, micros) = (units / divisor, micros / divisor);
        if !(1..=LARGEST).contains(&units) || !(1..=LARGEST).contains(&micros) {
            return None;
        }
        if u128::from(units) * u128::from(micros) <= u128::from(PRODUCT) {
            return Some(Self { units, micros });
        }
        // Only half of the room: rounding adds less than the other half.
        let room = PRODUCT / 2;
        Some(if units >= micros {
            let over = mul_div(room, micros, units).isqrt().max(1);
            Self { units: mul_div(units, over, micros), micros: over }
        } else {
            let under = mul_div(room, units, micros).isqrt().max(1);
            Self { units: under, micros: mul_div_up(micros, under, units) }
        })
    }

    /// `thousandths` of the rate, divided among `nodes`; `None` if nothing is left.
    pub fn share(self, thousandths: u64, nodes: u64) -> Option<Self> {
        let (over, under) = (thousandths, 1000 * nodes.max(1));
        let divisor = greatest_divisor(over, under).max(1);
        let (over, under) = (over / divisor, under / divisor);
        let units = self.units * over;
        let micros = self.micros.checked_mul(under)?;
        // Numbers beyond the range are reduced on both sides, and rounded to the slower rate.
        let shift = (units.max(micros) / LARGEST).checked_ilog2().map_or(0, |bits| bits + 1);
        Self::new(units >> shift, micros.div_ceil(1 << shift))
    }

    /// The units of the ratio.
    pub fn units(self) -> u64 {
        self.units
    }

    /// The microseconds of the ratio.
    pub fn micros(self) -> u64 {
        self.micros
    }

    /// Units that arrive in `micros` microseconds, rounded up.
    pub fn units_in(self, micros: u64) -> u64 {
        mul_div_up(micros, self.units, self.micros)
    }

    /// Microseconds in which `units` arrive, rounded up.
    pub fn micros_of(self, units: u64) -> u64 {
        mul_div_up(units, self.micros, self.units)
    }
}

/// Theoretical arrival time: when the bucket will be full again. Exact to parts of a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tat {
    /// Whole microseconds.
    pub micros: u64,
    /// Parts of a microsecond, in the rate's units: below [`Rate::units`].
    pub part: u64,
}

impl Tat {
    /// A bucket that is full at `micros`.
    pub fn at(micros: u64) -> Self {
        Self { micros, part: 0 }
    }

    /// This time, or `micros` if that is later: a full bucket holds no information.
    #[must_use]
    pub fn not_before(self, micros: u64) -> Self {
        self.max(Self::at(micros))
    }

    /// The time after `units` more are owed.
    #[must_use]
    pub fn plus(self, rate: Rate, units: u64) -> Self {
        let parts = u128::from(units) * u128::from(rate.micros) + u128::from(self.part);
        let whole = u64::try_from(parts / u128::from(rate.units)).unwrap_or(u64::MAX);
        let part = u64::try_from(parts % u128::from(rate.units)).unwrap_or(0);
        Self { micros: self.micros.saturating_add(whole), part }
    }

    /// Units owed at `now`, rounded up.
    pub fn owed(self, rate: Rate, now: u64) -> u64 {
        if self <= Self::at(now) {
            return 0;
        }
        let parts = u128::from(self.micros - now) * u128::from(rate.units) + u128::from(self.part);
        u64::try_from(parts.div_ceil(u128::from(rate.micros))).unwrap_or(u64::MAX)
    }
}

/// `a * b / c`, rounded down, at most `u64::MAX`; `c` of 0 counts as 1.
pub fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c.max(1))).unwrap_or(u64::MAX)
}

/// `a * b / c`, rounded up, at most `u64::MAX`; `c` of 0 counts as 1.
pub fn mul_div_up(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    u64::try_from(product.div_ceil(u128::from(c.max(1)))).unwrap_or(u64::MAX)
}

fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_a_week_and_100_gbit_are_exact() {
        let week = Rate::new(1, 604_800_000_000).expect("in range");
        assert_eq!((week.units(), week.micros()), (1, 604_800_000_000));
        let fast = Rate::new(12_500_000_000, 1_000_000).expect("in range");
        assert_eq!((fast.units(), fast.micros()), (12_500, 1));
        assert_eq!(Tat::at(0).plus(fast, 12_500_000_000), Tat::at(1_000_000));
    }

    fn rates() -> impl Strategy<Value = (u64, u64)> {
        let number = || (0u32..=42, any::<u64>()).prop_map(|(bits, x)| (x >> (63 - bits)).max(1));
        (number(), number()).prop_map(|(a, b)| (a.min(LARGEST), b.min(LARGEST)))
    }

    proptest! {
        #[test]
        fn a_rate_is_exact_or_just_below((units, micros) in rates()) {
            let rate = Rate::new(units, micros).expect("in range");
            let product = u128::from(rate.units) * u128::from(rate.micros);
            prop_assert!(product <= u128::from(PRODUCT) && rate.units > 0 && rate.micros > 0);
            // rate <= units / micros, and less than 1e-7 below it.
            let (kept, asked) = (
                u128::from(rate.units) * u128::from(micros),
                u128::from(units) * u128::from(rate.micros),
            );
            prop_assert!(kept <= asked);
            prop_assert!((asked - kept) * 10_000_000 <= asked, "{rate:?}");
        }

        #[test]
        fn a_share_is_not_more_than_its_part(
            (units, micros) in rates(), thousandths in 1u64..=1000, nodes in 1u64..1000,
        ) {
            let rate = Rate::new(units, micros).expect("in range");
            if let Some(share) = rate.share(thousandths, nodes) {
                let kept = u128::from(share.units) * u128::from(rate.micros)
                    * u128::from(1000 * nodes);
                let asked = u128::from(rate.units) * u128::from(thousandths)
                    * u128::from(share.micros);
                prop_assert!(kept <= asked);
            }
        }

        #[test]
        fn what_is_owed_is_what_was_added(
            (units, micros) in rates(), owed in 0u64..1 << 20, now in 0u64..1 << 51,
        ) {
            let rate = Rate::new(units, micros).expect("in range");
            let tat = Tat::at(now).plus(rate, owed);
            prop_assert!(tat.part < rate.units);
            prop_assert_eq!(tat.owed(rate, now), owed);
        }
    }
}
