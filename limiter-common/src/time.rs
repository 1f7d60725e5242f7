//! Time in limiter's units.

/// Binary fraction digits of a nanosecond in [`Ticks`]: one tick is 1/32 ns.
///
/// 100 Mpps is 320 ticks per packet, and 100 Gbit/s of 60-byte frames 153 ticks per frame, so
/// rounding a charge up to a whole tick costs at most 0.65 %. With 63 bits the range is 2^58 ns,
/// 9.1 years of uptime; past it every packet passes ([`Ticks::is_past_range`]).
pub const TICK_BITS: u32 = 5;

/// The largest instant: 63 bits, because a bucket word has one other bit.
pub const MAX_TICKS: u64 = u64::MAX >> 1;

/// Ticks of a second.
pub const SECOND: u64 = 1_000_000_000 << TICK_BITS;

/// A point in time since boot, or a duration, in units of 2^-[`TICK_BITS`] ns.
///
/// Values never exceed [`MAX_TICKS`]: sums saturate there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(u64);

impl Ticks {
    /// The time of boot, or a zero duration.
    pub const ZERO: Self = Self(0);

    /// Makes it from a raw tick count; larger values become [`MAX_TICKS`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(ticks: u64) -> Self {
        if ticks > MAX_TICKS { Self(MAX_TICKS) } else { Self(ticks) }
    }

    /// Makes it from a raw tick count that cannot exceed [`MAX_TICKS`], without a branch for the
    /// verifier.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new_within(ticks: u64) -> Self {
        Self(ticks & MAX_TICKS)
    }

    /// Converts nanoseconds of the monotonic clock (`bpf_ktime_get_ns`), saturating.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_nanos(nanos: u64) -> Self {
        if nanos > MAX_TICKS >> TICK_BITS { Self(MAX_TICKS) } else { Self(nanos << TICK_BITS) }
    }

    /// The raw count.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds, rounded down.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn as_nanos(self) -> u64 {
        self.0 >> TICK_BITS
    }

    /// Whole nanoseconds, rounded up.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn as_nanos_rounded_up(self) -> u64 {
        self.0.wrapping_add((1 << TICK_BITS) - 1) >> TICK_BITS
    }

    /// `self + other`, at most [`MAX_TICKS`].
    ///
    /// Both are at most 2^63 - 1, so the sum itself cannot wrap.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::new(self.0.wrapping_add(other.0))
    }

    /// `self + other`, only for comparison with another instant: not limited to [`MAX_TICKS`], and
    /// below 2^64 because both are below 2^63.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn plus_within(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// True if the clock is past its range (9.1 years of uptime).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_past_range(self) -> bool {
        self.0 == MAX_TICKS
    }

    /// `self - other`, or zero if `other` is later: a clock that ran backwards counts as no time.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn since(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
