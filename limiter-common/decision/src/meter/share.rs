//! The used share of a limit, whatever the algorithm.

/// A used share of a limit, from nothing owed to used up, in 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u64);

/// Fraction bits of a [`Share`].
const BITS: u32 = 32;

impl Share {
    /// Nothing is owed.
    pub const NOTHING: Self = Self(0);

    /// All of the limit is used.
    pub const ALL: Self = Self(1 << BITS);

    /// Takes 2^-32; more than [`Share::ALL`] becomes that.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_raw(raw: u64) -> Self {
        if raw > Self::ALL.0 { Self::ALL } else { Self(raw) }
    }

    /// The share in 2^-32.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// `part / whole`, rounded up to the next 2^-32. `whole` is at most 2^62.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn of(part: u64, whole: u64) -> Self {
        if part == 0 {
            return Self::NOTHING;
        }
        if part >= whole {
            return Self::ALL;
        }
        // Long division by two bits in a round, because two more are what fits. No branch in it,
        // for the verifier: `whole` is not zero here.
        let (mut rest, mut quotient) = (part, 0u64);
        let mut bit = 0;
        while bit < BITS {
            rest = rest.wrapping_shl(2);
            let digit = match rest.checked_div(whole) {
                Some(digit) => digit,
                None => 0,
            };
            rest = rest.wrapping_sub(digit.wrapping_mul(whole));
            quotient = quotient.wrapping_shl(2) | digit;
            bit += 2;
        }
        Self(quotient.wrapping_add((rest != 0) as u64))
    }

    /// This share of a length of time below 2^63, rounded up: exactly all of it for all, and 0 for
    /// nothing.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn of_time(self, whole: u64) -> u64 {
        // In two halves: `whole >> 32` is below 2^31 and a share at most 2^32.
        let high = (whole >> BITS).wrapping_mul(self.0);
        let low = (whole & LOW).wrapping_mul(self.0).wrapping_add(LOW) >> BITS;
        high.wrapping_add(low)
    }

    /// This share of a count below 2^63 in whole units, rounded up.
    ///
    /// A share is itself rounded up, by less than 2^-32: what exceeds a whole number by no more
    /// than that is not rounded again, or one unit of three would come back as two. It is only
    /// there that a count of 2^32 or more has room for an error, and there everything is rounded
    /// up.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn of_count(self, whole: u64) -> u64 {
        if self.0 == 0 || whole > LOW {
            return self.of_time(whole);
        }
        (self.0.wrapping_sub(1).wrapping_mul(whole) >> BITS).wrapping_add(1)
    }
}

const LOW: u64 = (1 << BITS) - 1;
