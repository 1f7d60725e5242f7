//! Units of time of Envoy's rate limit service, and the limits that requests bring.

use limiter_common::wire::Count;
use limiter_rules::file::requests::{Calendar, RequestLimit};
use limiter_rules::model::{Meter, Period, Quota, Unit as Base};
use serde::Deserialize;

/// A unit of time of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    /// The unit of a limit; none if it is several units together, for which there is no word.
    pub(crate) fn of(limit: &RequestLimit) -> Option<Self> {
        if let Some(Calendar { months }) = limit.calendar {
            return match months {
                1 => Some(Self::Month),
                12 => Some(Self::Year),
                _ => None,
            };
        }
        let period = limit.meter.quota().period;
        match (period.unit, period.multiplier) {
            (Base::Second, 1) => Some(Self::Second),
            (Base::Minute, 1) => Some(Self::Minute),
            (Base::Hour, 1) => Some(Self::Hour),
            (Base::Day, 1) => Some(Self::Day),
            (Base::Week, 1) => Some(Self::Week),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }
}

/// A limit that a request brings: a plain `rate_limit` of these numbers.
pub(crate) fn limit(requests_per_unit: u64, unit: Unit) -> RequestLimit {
    let (unit, days, months) = match unit {
        Unit::Second => (Base::Second, 1, None),
        Unit::Minute => (Base::Minute, 1, None),
        Unit::Hour => (Base::Hour, 1, None),
        Unit::Day => (Base::Day, 1, None),
        Unit::Week => (Base::Week, 1, None),
        Unit::Month => (Base::Day, 31, Some(1)),
        Unit::Year => (Base::Day, 366, Some(12)),
    };
    let period = Period { unit, multiplier: days };
    let quota = Quota::new(Count::Packets, requests_per_unit, period);
    match months {
        Some(months) => {
            let calendar = Some(Calendar { months });
            RequestLimit { calendar, ..RequestLimit::hard(Meter::FixedWindow(quota)) }
        }
        None => RequestLimit::hard(Meter::TokenBucket(quota.with_burst(requests_per_unit))),
    }
}
