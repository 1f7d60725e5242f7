//! The times at which rule sets came into force: the values of the `CHANGES` array.

use crate::time::{TICK_BITS, Ticks};

/// Number of rule sets whose times are remembered, a power of two: the place of a generation is its
/// remainder.
pub const CHANGES: u32 = 1 << 10;

/// Bits of a [`Moment`] that hold the time.
const TIME_BITS: u32 = 48;

/// Binary digits of nanoseconds that a [`Moment`] drops: it counts in 1,024 ns, so that 48 bits
/// cover the whole range of [`Ticks`], 2^58 ns.
const GRAIN_BITS: u32 = 10;

/// The time at which a rule set came into force, and the number of that rule set:
/// `generation:16 | time:48`.
///
/// The number tells whether the time belongs to the requested rule set, or to one 1,024 generations
/// apart, which has the same place. Zero means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment(u64);

crate::raw_word!(Moment);

impl Moment {
    /// The value for an unknown time.
    pub const UNKNOWN: Self = Self(0);

    /// The rule set `generation`, in force since `at` at the latest. Rounded up to 1,024 ns, so
    /// that the time after a change is never overestimated.
    pub const fn new(generation: u64, at: Ticks) -> Self {
        let grain = (1u64 << (GRAIN_BITS + TICK_BITS)) - 1;
        let time = at.get().wrapping_add(grain) >> (GRAIN_BITS + TICK_BITS);
        Self((generation & 0xffff) << TIME_BITS | time)
    }

    /// The place of a generation, by the low bits of its number.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn index(generation: u32) -> u32 {
        generation & (CHANGES - 1)
    }

    /// The time, if it belongs to this generation by at least the low 16 bits of its number.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of(self, generation: u32) -> Option<Ticks> {
        let time = self.0 & ((1 << TIME_BITS) - 1);
        if time == 0 || self.0 >> TIME_BITS != (generation & 0xffff) as u64 {
            return None;
        }
        Some(Ticks::new(time << (GRAIN_BITS + TICK_BITS)))
    }
}

const _: () = assert!(CHANGES.is_power_of_two() && CHANGES <= 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MAX_TICKS;

    #[test]
    fn a_moment_is_of_one_generation_and_never_early() {
        for generation in [0, 1, 1023, 1024, 65_535, 65_536, 1 << 25] {
            for ticks in [1, 31, 32, 1 << 15, (1 << 15) + 1, 1 << 40, MAX_TICKS >> 1] {
                let moment = Moment::from_raw(Moment::new(generation, Ticks::new(ticks)).raw());
                let low = u32::try_from(generation & 0xffff).unwrap();
                let at = moment.of(low).unwrap().get();
                assert!(at >= ticks && at - ticks < 1 << 15, "{generation} at {ticks}: {at}");
                assert_eq!(moment.of(low ^ 1024), None);
                assert_eq!(moment.of(low.wrapping_add(1)), None);
            }
        }
        assert_eq!(Moment::UNKNOWN.of(0), None);
    }
}
