//! The rates to try: 1, 2, 3 and 5 of each power of ten, each a whole number in a rule.

use limiter_common::time::Ticks;
use limiter_common::wire::{Count, Limit};
use limiter_decision::gcra;
use limiter_rules::model::{Period, Quota, Terms};
use limiter_rules::{LimitError, RateLimit, Unit, compile, warnings};

/// Number of rates.
pub const RATES: usize = 32;

/// Steps of a power of ten.
const STEPS: [u64; 4] = [1, 2, 3, 5];

#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) quota: Quota,
    limit: Limit,
    max_frame: u64,
}

/// Rates of packets from 36 an hour to 500,000 a second, or of bytes from 100 a second to 5 GB a
/// second.
pub(super) fn all(count: Count, max_frame: u64) -> Result<Vec<Rate>, LimitError> {
    (0..8)
        .flat_map(|power| STEPS.map(|step| (power, step)))
        .map(|(power, step)| {
            let hundredths = step * 10u64.pow(power);
            let (requests_per_unit, unit) = match count {
                Count::Bytes => (hundredths * 100, Unit::Second),
                _ if hundredths.is_multiple_of(100) => (hundredths / 100, Unit::Second),
                _ if (hundredths * 60).is_multiple_of(100) => (hundredths * 60 / 100, Unit::Minute),
                _ => (hundredths * 36, Unit::Hour),
            };
            let quota = Quota::new(count, requests_per_unit, Period::one(unit));
            let least = if count == Count::Bytes { max_frame } else { 1 };
            let limit = compile::limit(&Terms::from(quota.with_burst(least)), max_frame)?;
            Ok(Rate { quota, limit, max_frame })
        })
        .collect()
}

impl Rate {
    /// The time that units cost. If they are several packets, each is charged.
    pub(super) fn cost(&self, units: u64) -> Ticks {
        let most = self.limit.max_units().max(1);
        let whole = gcra::cost(&self.limit, most).get().saturating_mul(units / most);
        let rest = match units % most {
            0 => 0,
            rest => gcra::cost(&self.limit, rest).get(),
        };
        Ticks::new(whole.saturating_add(rest))
    }

    /// Units per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate in a rule is a small number")]
    pub(super) fn per_second(&self) -> f64 {
        self.quota.requests_per_unit as f64 / self.quota.period.seconds() as f64
    }

    /// The debt that a burst allows, in ticks; `None` if no rule may have this burst.
    pub(super) fn allows(&self, burst: u64) -> Option<u64> {
        let terms = Terms::from(self.quota.with_burst(burst));
        compile::limit(&terms, self.max_frame).ok().map(|limit| limit.tolerance)
    }

    /// The smallest burst that allows a debt in ticks; `None` if no rule may have it.
    pub(super) fn burst(&self, debt: u64) -> Option<u64> {
        let least = if self.quota.count == Count::Bytes { self.max_frame } else { 1 };
        let units = (u128::from(debt) << self.limit.shift).div_ceil(self.limit.increment.into());
        // Byte limits have a slack of less than one byte.
        let first = u64::try_from(units).ok()?.saturating_sub(1).max(least);
        for burst in first..=first.saturating_add(2) {
            if self.allows(burst)? >= debt {
                return Some(burst);
            }
        }
        None
    }

    /// The burst below which a TCP stream does not reach the rate. Only for bytes, because limits
    /// in packets also serve against floods.
    pub(super) fn burst_for_tcp(&self) -> u64 {
        match self.quota.count {
            Count::Bytes => warnings::burst_for_tcp(&self.quota),
            Count::Packets | Count::Syns | Count::Flows => 0,
        }
    }

    pub(super) const fn with_burst(&self, burst: u64) -> RateLimit {
        self.quota.with_burst(burst)
    }
}
