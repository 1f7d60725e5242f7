//! An exact limiter to compare with: the `governor` crate with a clock set by hand.
//!
//! The crate shares no code with limiter, so an error in limiter's arithmetic does not enter the
//! expectation.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

/// The oracle counts in picoseconds, so that a rate whose interval is no whole number of
/// nanoseconds keeps three more digits. 2^64 ps are 213 days.
const SCALE: u64 = 1000;

/// A limit, in the units of the rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Units (packets or bytes) for each period.
    pub units: u64,
    /// The period.
    pub per: Duration,
    /// Units at once, at least one.
    pub burst: u32,
}

impl Limit {
    /// `units` a second with a burst.
    pub fn per_second(units: u64, burst: u32) -> Self {
        Self { units, per: Duration::from_secs(1), burst }
    }

    fn quota(&self) -> Result<Quota> {
        let picos = u64::try_from(self.per.as_nanos())?
            .checked_mul(SCALE)
            .and_then(|per| per.checked_div(self.units))
            .ok_or_else(|| {
                anyhow!("the oracle cannot count {self:?}: rate or period out of range")
            })?;
        let burst = NonZeroU32::new(self.burst).context("a burst of zero passes nothing")?;
        Ok(Quota::with_period(Duration::from_nanos(picos))
            .context("a rate above one unit per picosecond")?
            .allow_burst(burst))
    }

    /// How many of the packets sent at `times` (nanoseconds, ascending), each of `cost` units, an
    /// exact limiter passes, starting with a full bucket.
    ///
    /// # Errors
    ///
    /// When the limit is out of the oracle's range or a packet costs more than the burst.
    pub fn delivered(&self, cost: u32, times: impl IntoIterator<Item = u64>) -> Result<u64> {
        let mut oracle = Oracle::new(self, cost)?;
        for time in times {
            oracle.offer(time)?;
        }
        Ok(oracle.delivered())
    }
}

/// An exact limiter for one source.
#[derive(Debug)]
pub struct Oracle {
    clock: FakeRelativeClock,
    limiter: RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, NoOpMiddleware<Nanos>>,
    cost: NonZeroU32,
    last: Option<u64>,
    delivered: u64,
}

impl Oracle {
    /// Starts with a full bucket; every packet costs `cost` units.
    ///
    /// # Errors
    ///
    /// When the limit is out of the oracle's range.
    pub fn new(limit: &Limit, cost: u32) -> Result<Self> {
        let clock = FakeRelativeClock::default();
        Ok(Self {
            limiter: RateLimiter::direct_with_clock(limit.quota()?, clock.clone()),
            clock,
            cost: NonZeroU32::new(cost).context("a packet costs at least one unit")?,
            last: None,
            delivered: 0,
        })
    }

    /// Offers a packet at `time`, in nanoseconds and not before the last one; says whether it
    /// passes.
    ///
    /// # Errors
    ///
    /// When the packet costs more than the burst.
    pub fn offer(&mut self, time: u64) -> Result<bool> {
        let passed = time.saturating_sub(self.last.unwrap_or(time));
        self.clock.advance(Duration::from_nanos(passed.saturating_mul(SCALE)));
        self.last = Some(time);
        let cost = self.cost;
        let verdict = self
            .limiter
            .check_n(cost)
            .map_err(|error| anyhow!("a packet of {cost} units exceeds the burst: {error}"))?;
        self.delivered += u64::from(verdict.is_ok());
        Ok(verdict.is_ok())
    }

    /// Packets that passed so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(nanos: u64, count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |n| 1_000_000_000 + n * nanos)
    }

    #[test]
    fn a_conforming_source_loses_nothing() {
        let limit = Limit::per_second(1000, 1);
        assert_eq!(limit.delivered(1, every(1_000_000, 5000)).expect("valid"), 5000);
    }

    #[test]
    fn a_burst_passes_up_to_the_burst() {
        let limit = Limit::per_second(1, 7);
        assert_eq!(limit.delivered(1, every(0, 100)).expect("valid"), 7);
    }

    #[test]
    fn three_times_the_rate_gives_burst_and_rate() {
        // 10 s at 3000 a second, under a limit of 1000 a second and a burst of 50.
        let limit = Limit::per_second(1000, 50);
        let delivered = limit.delivered(1, every(333_333, 30_000)).expect("valid");
        assert!((10_048..=10_050).contains(&delivered), "{delivered}");
    }

    #[test]
    fn intervals_that_are_no_whole_nanoseconds_stay_exact() {
        // 333 ns instead of 333.333 would pass 0.1 % too many, 900 packets.
        let limit = Limit::per_second(3_000_000, 10);
        let delivered = limit.delivered(1, every(100, 3_000_000)).expect("valid");
        assert!((899_990..=900_020).contains(&delivered), "{delivered}");
    }

    #[test]
    fn bytes_are_charged_by_cost() {
        let limit = Limit::per_second(125_000, 3000);
        assert_eq!(limit.delivered(1000, every(0, 10)).expect("valid"), 3);
        assert!(limit.delivered(3001, every(0, 1)).is_err());
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        assert!(Limit::per_second(0, 1).delivered(1, every(0, 1)).is_err());
        assert!(Limit::per_second(1, 0).delivered(1, every(0, 1)).is_err());
    }
}
