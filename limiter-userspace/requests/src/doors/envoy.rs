//! What Envoy's rate limit service says, whether in JSON or over gRPC: units of time, limits that
//! requests bring, and the state of a descriptor.

use limiter_common::wire::Count;
use limiter_rules::file::requests::{Calendar, RequestLimit};
use limiter_rules::model::{Meter, Period, Quota, Unit as Base};
use serde::Deserialize;

use crate::decide::question::Status;
use crate::doors::check::remaining;
use crate::rules::Terms;

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

/// The state of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State<'a> {
    /// True if it is over its limit.
    pub(crate) over: bool,
    /// The limit that is nearest.
    pub(crate) limit: Option<Limit<'a>>,
    /// Requests that would pass now, if that is known.
    pub(crate) remaining: Option<u32>,
    /// Nanoseconds until nothing of the limit is used; none where no time helps.
    pub(crate) reset: Option<u64>,
}

/// The limit of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit<'a> {
    /// The name that its author gave its rule.
    pub(crate) name: Option<&'a str>,
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: Option<Unit>,
}

impl<'a> From<&'a Status> for State<'a> {
    fn from(status: &'a Status) -> Self {
        let over = status.over;
        if let Some((limit, left)) = &status.nearest {
            // More hits than the limit ever takes at once: no time to come back helps.
            let never = over && left.wait.is_none();
            return Self {
                over,
                limit: Some(Limit {
                    name: status.rule.as_ref().and_then(|rule| rule.name.as_deref()),
                    requests_per_unit: narrow(limit.meter.quota().requests_per_unit),
                    unit: Unit::of(limit),
                }),
                remaining: remaining(status, left).map(narrow),
                reset: (!never).then_some(left.reset),
            };
        }
        let blocks = status.rule.as_ref().is_some_and(|rule| matches!(rule.terms, Terms::Block(_)));
        // Over without a limit: nothing passes.
        let remaining = match (status.unlimited, blocks || over) {
            (true, _) => Some(u32::MAX),
            (false, true) => Some(0),
            (false, false) => None,
        };
        Self { over, limit: None, remaining, reset: None }
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
