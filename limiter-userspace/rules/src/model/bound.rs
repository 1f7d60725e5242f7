//! The most that passes by a limit, in any time as long as its own.

use std::fmt;

use limiter_common::wire::Count;
use limiter_text::spoken::exact_bytes;

use super::limit::{Meter, Period, Quota, RateLimit, RuleLimit, Upper};

/// So many units at most, in any time of this length: docs/algorithms.md has the formula of each
/// algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    count: Count,
    most: u128,
    /// True if one packet more may be there, whatever its length.
    one_more: bool,
    period: Period,
}

impl RuleLimit {
    /// The most that passes; over a soft limit, marked or not.
    pub fn bound(&self) -> Bound {
        match &self.upper {
            None => self.meter.bound(),
            Some(Upper::Ceiling(rate) | Upper::Peak(rate)) => Bound::of_bucket(rate),
            Some(Upper::Excess(rate)) => {
                // The committed part comes on top.
                let (excess, quota) = (Bound::of_bucket(rate), self.meter.quota());
                let Bound { most, one_more, .. } = self.meter.bound();
                let at_once = most.saturating_sub(quota.requests_per_unit.into());
                let units = u128::from(quota.requests_per_unit);
                let long = units * u128::from(excess.period.seconds());
                let long = long.div_ceil(quota.period.seconds().into());
                Bound { most: excess.most + at_once + long, one_more, ..excess }
            }
        }
    }
}

impl Meter {
    fn bound(&self) -> Bound {
        let Quota { count, requests_per_unit, period, .. } = self.quota();
        let units = u128::from(requests_per_unit);
        let most = |most| Bound { count, most, one_more: false, period };
        match self {
            Self::TokenBucket(rate) => Bound::of_bucket(rate),
            Self::LeakyBucket { backlog, .. } => {
                let ahead = units * backlog.as_nanos() / u128::from(period.nanos());
                let of_bytes = count == Count::Bytes;
                let last = u128::from(!of_bytes);
                Bound { one_more: of_bytes, ..most(units + ahead + last) }
            }
            // The end of one window, and the beginning of the next one.
            Self::FixedWindow(_)
            | Self::SlidingCounter(_)
            | Self::SlidingSlots { strict: false, .. } => most(2 * units),
            Self::SlidingLog(_) | Self::SlidingSlots { strict: true, .. } => most(units),
        }
    }
}

impl Bound {
    fn of_bucket(rate: &RateLimit) -> Self {
        let RateLimit { count, requests_per_unit, period, burst, .. } = *rate;
        let most = u128::from(requests_per_unit) + u128::from(burst);
        Self { count, most, one_more: false, period }
    }
}

/// As in `1200 packets in any second`.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, most, one_more, period } = self;
        match count {
            Count::Packets => write!(f, "{most} packets"),
            Count::Bytes => f.write_str(&exact_bytes(*most)),
            Count::Syns => write!(f, "{most} SYNs"),
            Count::Flows => write!(f, "{most} new flows"),
        }?;
        if *one_more {
            f.write_str(" and one packet")?;
        }
        if *period == Period::one(period.unit) {
            write!(f, " in any {}", period.unit.name())
        } else {
            write!(f, " in any {period}")
        }
    }
}
