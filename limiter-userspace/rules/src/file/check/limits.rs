//! `rate_limit`, `rate_limits`, and rates on their own.

use std::time::Duration;

use limiter_common::wire::Count;

use super::actions::mark;
use super::checked::Failure;
use super::scalar::{at, number, one_of, ranged, text, time};
use super::words::{ALGORITHMS, COUNTS};
use crate::file::error::Problem;
use crate::file::placed::{At, Placed, Scalar};
use crate::file::shape::{Rate, RateLimit as RawRateLimit};
use crate::model::{ByteUnits, LimitList, Meter, Period, Quota, RateLimit, RuleLimit, Unit, Upper};
use crate::rate_text::{self, RateText, RateTextError, default_burst};

/// Slots of a sliding window unless the file says how many.
const DEFAULT_SLOTS: u8 = 4;

/// Units of time of envoyproxy/ratelimit that are longer than ours, and what they are there.
const LONGER_UNITS: [(&str, &str); 2] = [
    ("month", "a month is 30 days there; write `unit: day, unit_multiplier: 30`"),
    ("year", "a year is 365 days there; write `unit: day, unit_multiplier: 365`"),
];

/// The limits of one place.
#[derive(Debug)]
pub(super) struct Read {
    /// The name in the first one.
    pub(super) name: Option<String>,
    /// None for `unlimited`.
    pub(super) limits: Option<LimitList>,
}

/// `rate_limit` or `rate_limits`, whichever is there.
pub(super) fn either(
    one: Option<&Placed<RawRateLimit>>,
    several: Option<&Placed<Vec<Placed<RawRateLimit>>>>,
    max_frame: u64,
) -> Result<Option<Read>, Failure> {
    match (one, several) {
        (None, None) => Ok(None),
        (Some(_), Some(several)) => {
            Err(at(several.referenced, Problem::Beside("rate_limits", "rate_limit")))
        }
        (Some(one), None) => {
            let (name, limit) = rate_limit(one, max_frame)?;
            Ok(Some(Read { name, limits: limit.map(LimitList::from) }))
        }
        (None, Some(several)) => {
            let mut read = Read { name: None, limits: None };
            let mut limits = Vec::with_capacity(several.value.len());
            for (index, raw) in several.value.iter().enumerate() {
                let (name, limit) = rate_limit(raw, max_frame)?;
                let Some(limit) = limit else {
                    return Err(at(raw.referenced, Problem::UnlimitedWith("rate_limits")));
                };
                if index == 0 {
                    read.name = name;
                } else if let Some(name) = &raw.value.name {
                    let reason = "a rule has one name: give it to the first of its limits";
                    let what = "name".to_owned();
                    return Err(at(name.referenced, Problem::NotSupported { what, reason }));
                }
                limits.push(limit);
            }
            if limits.is_empty() {
                let remedy = "give one to four limits";
                let field = "rate_limits";
                return Err(at(several.referenced, Problem::Empty { field, remedy }));
            }
            read.limits = Some(limits.into());
            Ok(Some(read))
        }
    }
}

/// One limit, and the name in it; none for `unlimited`.
pub(in crate::file) fn rate_limit(
    raw: &Placed<RawRateLimit>,
    max_frame: u64,
) -> Result<(Option<String>, Option<RuleLimit>), Failure> {
    let limit = &raw.value;
    let name = match &limit.name {
        Some(name) => Some(text(name, "name", "name it, or remove the line")?.to_owned()),
        None => None,
    };
    if limit.unlimited.as_ref().is_some_and(|unlimited| unlimited.value) {
        let rate = limit.rate.as_ref().map(|rate| ("rate", rate.referenced));
        return match rate.or_else(|| beside_unlimited(limit)) {
            Some((field, location)) => Err(at(location, Problem::UnlimitedWith(field))),
            None => Ok((name, None)),
        };
    }
    let count = match &limit.count {
        None => None,
        Some(count) => Some(one_of(count, "count", &COUNTS)?),
    };
    let fields = RateFields {
        rate: limit.rate.as_deref(),
        requests_per_unit: limit.requests_per_unit.as_ref(),
        unit: limit.unit.as_ref(),
        unit_multiplier: limit.unit_multiplier.as_deref(),
    };
    let Some(quota) = quota(raw.referenced, fields, count)? else {
        return match beside_unlimited(limit) {
            Some((field, location)) => Err(at(location, Problem::UnlimitedWith(field))),
            None => Ok((name, None)),
        };
    };
    let meter = meter(limit, quota, max_frame)?;
    let upper = upper(limit, quota.count, max_frame)?;
    let mark = match &limit.mark {
        None => None,
        Some(raw) if upper.is_none() => {
            let (field, needs) = ("mark", "ceiling, peak or excess");
            let remedy = "only what is between two limits is marked; add one of them, or write \
                          `action: {mark: ...}` beside the limit";
            return Err(at(raw.referenced, Problem::Without { field, needs, remedy }));
        }
        Some(raw) => Some(mark(raw)?),
    };
    Ok((name, Some(RuleLimit { meter, upper, mark })))
}

fn beside_unlimited(limit: &RawRateLimit) -> Option<(&'static str, At)> {
    let scalars = [
        ("unit", &limit.unit),
        ("requests_per_unit", &limit.requests_per_unit),
        ("burst", &limit.burst),
        ("count", &limit.count),
        ("algorithm", &limit.algorithm),
        ("backlog", &limit.backlog),
        ("slots", &limit.slots),
    ];
    let rates = [("ceiling", &limit.ceiling), ("peak", &limit.peak), ("excess", &limit.excess)];
    let scalar = scalars.into_iter().find_map(|(f, s)| s.as_ref().map(|s| (f, s.referenced)));
    let rate = rates.into_iter().find_map(|(f, r)| r.as_ref().map(|r| (f, r.referenced)));
    let multiplier = limit.unit_multiplier.as_ref().map(|s| ("unit_multiplier", s.referenced));
    let strict = limit.strict.as_ref().map(|strict| ("strict", strict.referenced));
    let mark = limit.mark.as_ref().map(|mark| ("mark", mark.referenced));
    scalar.or(multiplier).or(rate).or(strict).or(mark)
}

/// Fields that say a rate, in one form or the other.
#[derive(Clone, Copy)]
struct RateFields<'a> {
    rate: Option<&'a Scalar>,
    requests_per_unit: Option<&'a Scalar>,
    unit: Option<&'a Scalar>,
    unit_multiplier: Option<&'a Scalar>,
}

/// The rate that the fields say; none for `unlimited`. `count` is the unit, if another field says
/// it.
fn quota(
    place: At,
    fields: RateFields<'_>,
    count: Option<Count>,
) -> Result<Option<Quota>, Failure> {
    let RateFields { rate, requests_per_unit, unit, unit_multiplier } = fields;
    if let Some(rate) = rate {
        let others = [
            ("unit", unit),
            ("requests_per_unit", requests_per_unit),
            ("unit_multiplier", unit_multiplier),
        ];
        if let Some((field, other)) = others.into_iter().find_map(|(f, o)| o.map(|o| (f, o))) {
            return Err(at(other.referenced, Problem::Beside(field, "rate")));
        }
        let text = text(rate, "rate", "write one like 100/s, 5/day or 10mbit/s")?;
        let quota = RateText::parse(text).and_then(|rate| rate.quota(count, text));
        return quota.map_err(|error| no_rate(rate, "rate", error));
    }
    let missing = |field, remedy| at(place, Problem::Missing { field, remedy });
    let requests_per_unit = requests_per_unit.ok_or_else(|| match unit {
        None => missing("rate", "write one like `rate: 100/s`, or `unlimited: true`"),
        Some(_) => missing("requests_per_unit", "write a number, or `unlimited: true`"),
    })?;
    let requests_per_unit = number(requests_per_unit, "requests_per_unit")?;
    let unit = unit.ok_or_else(|| missing("unit", "write second, minute, hour, day or week"))?;
    let period = period(unit_of_time(unit)?, unit_multiplier)?;
    let quota = Quota::new(count.unwrap_or(Count::Packets), requests_per_unit, period);
    Ok(Some(Quota { byte_units: ByteUnits::Decimal, ..quota }))
}

fn no_rate(scalar: &Scalar, field: &'static str, error: RateTextError) -> Failure {
    at(scalar.referenced, Problem::RateText { field, error: Box::new(error) })
}

fn period(unit: Unit, multiplier: Option<&Scalar>) -> Result<Period, Failure> {
    let Some(multiplier) = multiplier else {
        return Ok(Period::one(unit));
    };
    let multiplier = ranged(multiplier, "unit_multiplier", 1..=Period::most(unit))?;
    Ok(Period { unit, multiplier })
}

/// A unit of time, in letters of either case, as envoyproxy/ratelimit takes it.
fn unit_of_time(scalar: &Scalar) -> Result<Unit, Failure> {
    let word = text(scalar, "unit", "write second, minute, hour, day or week")?;
    if let Some(unit) = Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(word)) {
        return Ok(unit);
    }
    let longer = LONGER_UNITS.into_iter().find(|(longer, _)| longer.eq_ignore_ascii_case(word));
    let problem = if let Some((_, reason)) = longer {
        Problem::NotSupported { what: word.to_owned(), reason }
    } else {
        let expected = Unit::ALL.map(Unit::name).to_vec();
        Problem::UnknownWord { field: "unit", word: word.to_owned(), expected }
    };
    Err(at(scalar.referenced, problem))
}

fn with_burst(quota: Quota, burst: Option<&Scalar>, max_frame: u64) -> Result<RateLimit, Failure> {
    let burst = match burst {
        None => default_burst(quota.count, quota.requests_per_unit, max_frame),
        Some(raw) => {
            let text = text(raw, "burst", "give one like 200 or 60kB, or remove the line")?;
            if text.starts_with('-') || text.bytes().all(|byte| byte.is_ascii_digit()) {
                number(raw, "burst")?
            } else {
                rate_text::burst(text, quota.count).map_err(|error| no_rate(raw, "burst", error))?
            }
        }
    };
    Ok(quota.with_burst(burst))
}

/// A rate and its burst on their own.
pub(super) fn rate(raw: &Placed<Rate>, count: Count, max_frame: u64) -> Result<RateLimit, Failure> {
    let Rate { rate, unit, unit_multiplier, requests_per_unit, burst } = &raw.value;
    let fields = RateFields {
        rate: rate.as_deref(),
        requests_per_unit: requests_per_unit.as_ref(),
        unit: unit.as_ref(),
        unit_multiplier: unit_multiplier.as_ref(),
    };
    let Some(quota) = quota(raw.referenced, fields, Some(count))? else {
        let reason = "it is there to bound: write a rate like 100/s, or remove it";
        let location = rate.as_ref().map_or(raw.referenced, |rate| rate.referenced);
        let what = "unlimited".to_owned();
        return Err(at(location, Problem::NotSupported { what, reason }));
    };
    with_burst(quota, burst.as_ref(), max_frame)
}

fn meter(limit: &RawRateLimit, quota: Quota, max_frame: u64) -> Result<Meter, Failure> {
    let algorithm = match &limit.algorithm {
        None => "token_bucket",
        Some(algorithm) => one_of(algorithm, "algorithm", &ALGORITHMS)?,
    };
    let fields = [
        ("burst", limit.burst.as_ref().map(|s| s.referenced), "token_bucket"),
        ("backlog", limit.backlog.as_ref().map(|s| s.referenced), "leaky_bucket"),
        ("slots", limit.slots.as_ref().map(|s| s.referenced), "sliding_slots"),
        ("strict", limit.strict.as_ref().map(|s| s.referenced), "sliding_slots"),
    ];
    for (field, location, needs) in fields {
        if let Some(location) = location
            && algorithm != needs
        {
            let remedy = "write that algorithm, or remove the field";
            return Err(at(location, Problem::Without { field, needs, remedy }));
        }
    }
    Ok(match algorithm {
        "leaky_bucket" => Meter::LeakyBucket {
            quota,
            backlog: match &limit.backlog {
                None => Duration::ZERO,
                Some(backlog) => time(backlog, "backlog", Duration::ZERO)?,
            },
        },
        "fixed_window" => Meter::FixedWindow(quota),
        "sliding_log" => Meter::SlidingLog(quota),
        "sliding_counter" => Meter::SlidingCounter(quota),
        "sliding_slots" => Meter::SlidingSlots {
            quota,
            slots: match &limit.slots {
                None => DEFAULT_SLOTS,
                Some(slots) => one_of(slots, "slots", &[("2", 2), ("4", 4), ("8", 8)])?,
            },
            strict: limit.strict.as_ref().is_some_and(|strict| strict.value),
        },
        _ => Meter::TokenBucket(with_burst(quota, limit.burst.as_ref(), max_frame)?),
    })
}

fn upper(limit: &RawRateLimit, count: Count, max_frame: u64) -> Result<Option<Upper>, Failure> {
    type Make = fn(RateLimit) -> Upper;
    let kinds = [
        ("ceiling", &limit.ceiling, Upper::Ceiling as Make),
        ("peak", &limit.peak, Upper::Peak),
        ("excess", &limit.excess, Upper::Excess),
    ];
    let mut found: Option<(&'static str, Upper)> = None;
    for (name, raw, make) in kinds {
        if let Some(raw) = raw {
            if let Some((first, _)) = found {
                return Err(at(raw.referenced, Problem::Beside(name, first)));
            }
            found = Some((name, make(rate(raw, count, max_frame)?)));
        }
    }
    Ok(found.map(|(_, upper)| upper))
}
