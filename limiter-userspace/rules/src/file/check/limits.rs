//! `rate_limit`, `rate_limits`, and rates on their own.

use std::time::Duration;

use limiter_common::wire::Count;

use super::actions::mark;
use super::checked::Failure;
use super::scalar::{at, number, one_of, ranged, text, time};
use super::words::{ALGORITHMS, COUNTS};
use crate::dialect::{Dialect, Units};
use crate::file::error::Problem;
use crate::file::placed::{At, Placed, Scalar};
use crate::file::shape::{Rate, RateLimit as RawRateLimit};
use crate::file::table::Written as _;
use crate::model::{ByteUnits, LimitList, Meter, Period, Quota, RateLimit, RuleLimit, Unit, Upper};
use crate::rate_text::{self, RateText, RateTextError, default_burst};

/// Slots of a sliding window unless the file says how many.
const DEFAULT_SLOTS: u8 = 4;

/// Units of time of envoyproxy/ratelimit that are longer than ours, and what they are there.
const LONGER_UNITS: [(&str, &str); 2] = [
    ("month", "a month is 30 days there; write `unit: day, unit_multiplier: 30`"),
    ("year", "a year is 365 days there; write `unit: day, unit_multiplier: 365`"),
];

/// Fields of a limit that are of its whole rule.
pub(in crate::file) const OF_RULE: [&str; 2] = ["name", "replaces"];

/// The limits of one place.
#[derive(Debug)]
pub(super) struct Read {
    /// The name in the first one.
    pub(super) name: Option<String>,
    /// None for `unlimited`.
    pub(super) limits: Option<LimitList>,
}

/// `rate_limit` or `rate_limits`, whichever is there.
pub(in crate::file) fn either<'a>(
    one: Option<&'a Placed<RawRateLimit>>,
    several: Option<&'a Placed<Vec<Placed<RawRateLimit>>>>,
) -> Result<Option<&'a [Placed<RawRateLimit>]>, Failure> {
    match (one, several) {
        (Some(_), Some(several)) => {
            Err(at(several.referenced, Problem::Beside("rate_limits", "rate_limit")))
        }
        (None, Some(several)) if several.value.is_empty() => {
            let (field, remedy) = ("rate_limits", "give one to four limits");
            Err(at(several.referenced, Problem::Empty { field, remedy }))
        }
        (one, several) => {
            let several = several.map(|several| several.value.as_slice());
            Ok(one.map(std::slice::from_ref).or(several))
        }
    }
}

/// Refuses what belongs to the whole rule in limits other than its first one.
pub(in crate::file) fn of_rule_once(limits: &[Placed<RawRateLimit>]) -> Result<(), Failure> {
    let later = limits.iter().skip(1).flat_map(|limit| limit.value.written());
    match later.into_iter().find(|(field, _)| OF_RULE.contains(field)) {
        Some((field, place)) => {
            let reason = "a rule has one name: give it to the first of its limits";
            Err(at(place, Problem::NotSupported { what: field.to_owned(), reason }))
        }
        None => Ok(()),
    }
}

/// Reads the limits of a rule for packets.
pub(super) fn limits(
    one: Option<&Placed<RawRateLimit>>,
    several: Option<&Placed<Vec<Placed<RawRateLimit>>>>,
    units: Units,
) -> Result<Option<Read>, Failure> {
    let Some(all) = either(one, several)? else { return Ok(None) };
    let mut read = Read { name: None, limits: None };
    let mut limits = Vec::with_capacity(all.len());
    for (index, raw) in all.iter().enumerate() {
        let (name, limit) = rate_limit(raw, units)?;
        if index == 0 {
            read.name = name;
        }
        match limit {
            Some(limit) => limits.push(limit),
            None if several.is_none() => return Ok(Some(read)),
            None => return Err(at(raw.referenced, Problem::UnlimitedWith("rate_limits"))),
        }
    }
    of_rule_once(all)?;
    read.limits = Some(limits.into());
    Ok(Some(read))
}

/// One limit, and the name in it; none for `unlimited`.
fn rate_limit(
    raw: &Placed<RawRateLimit>,
    units: Units,
) -> Result<(Option<String>, Option<RuleLimit>), Failure> {
    let limit = &raw.value;
    let name = match &limit.name {
        Some(name) => Some(text(name, "name", "name it, or remove the line")?.to_owned()),
        None => None,
    };
    let beside = |says: &[&str]| {
        let beside = limit.written().find(|(field, _)| !says.contains(field));
        beside.map(|(field, place)| at(place, Problem::UnlimitedWith(field)))
    };
    if limit.unlimited.is_some() {
        return beside(&["name", "replaces", "unlimited"]).map_or(Ok((name, None)), Err);
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
        is_limit: true,
    };
    let Some(quota) = quota(raw.referenced, fields, count, units.dialect)? else {
        return beside(&["name", "replaces", "rate"]).map_or(Ok((name, None)), Err);
    };
    let meter = meter(limit, quota, units)?;
    let upper = upper(limit, quota.count, units)?;
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

/// One limit of a rule for requests, and the months of the calendar that it counts in; none for
/// `unlimited`. One of 0 lets no request pass.
pub(in crate::file) fn request_limit(
    raw: &Placed<RawRateLimit>,
) -> Result<Option<(RuleLimit, Option<u8>)>, Failure> {
    let limit = &raw.value;
    let (_, Some(found)) = rate_limit(raw, Units::REQUESTS)? else { return Ok(None) };
    let quota = found.meter.quota();
    let refused = |place, what: &str, reason| {
        Err(at(place, Problem::NotSupported { what: what.to_owned(), reason }))
    };
    if quota.count != Count::Packets {
        let place = limit.rate.as_ref().map_or(raw.referenced, |rate| rate.referenced);
        return refused(place, quota.count.name(), "requests are counted: write a rate like 100/s");
    }
    let months = limit.unit.as_ref().map(|unit| months(unit, limit.unit_multiplier.as_deref()));
    let months = months.transpose()?.flatten();
    if let (Some(months), Some(unit)) = (months, &limit.unit)
        && !matches!(found.meter, Meter::FixedWindow(_))
    {
        let reason = if months == 12 {
            "a year has no fixed length: write `algorithm: fixed_window` for those of the calendar \
             in UTC, or `unit: day, unit_multiplier: 365`"
        } else {
            "a month has no fixed length: write `algorithm: fixed_window` for those of the calendar \
             in UTC, or `unit: day, unit_multiplier: 30`"
        };
        return refused(unit.referenced, unit.value.as_deref().unwrap_or_default(), reason);
    }
    match &limit.ceiling {
        Some(ceiling) if quota.requests_per_unit == 0 => {
            Err(at(ceiling.referenced, Problem::Beside("ceiling", "requests_per_unit: 0")))
        }
        Some(ceiling) if months.is_some() => {
            let reason = "a month and a year have no limit above them: write `rate_limits`";
            refused(ceiling.referenced, "ceiling", reason)
        }
        _ => Ok(Some((found, months))),
    }
}

/// Fields that say a rate, in one form or the other.
#[derive(Clone, Copy)]
struct RateFields<'a> {
    rate: Option<&'a Scalar>,
    requests_per_unit: Option<&'a Scalar>,
    unit: Option<&'a Scalar>,
    unit_multiplier: Option<&'a Scalar>,
    /// True in a limit: one of requests may refuse them all, or count in months and years.
    is_limit: bool,
}

/// The rate that the fields say; none for `unlimited`. `count` is the unit, if another field says
/// it.
fn quota(
    place: At,
    fields: RateFields<'_>,
    count: Option<Count>,
    dialect: Dialect,
) -> Result<Option<Quota>, Failure> {
    let RateFields { rate, requests_per_unit, unit, unit_multiplier, is_limit } = fields;
    let has_more = is_limit && dialect == Dialect::Requests;
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
        return quota.map_err(|error| no_rate(rate, "rate", error, dialect));
    }
    let missing = |field, remedy| at(place, Problem::Missing { field, remedy });
    let requests_per_unit = requests_per_unit.ok_or_else(|| match unit {
        None => missing("rate", "write one like `rate: 100/s`, or `unlimited: true`"),
        Some(_) => missing("requests_per_unit", "write a number, or `unlimited: true`"),
    })?;
    let requests_per_unit = match requests_per_unit {
        none if has_more && is_zero(none) => 0,
        some => number(some, "requests_per_unit", dialect)?,
    };
    let unit = unit.ok_or_else(|| missing("unit", "write second, minute, hour, day or week"))?;
    let months = if has_more { months(unit, unit_multiplier)? } else { None };
    let period = match months {
        // The longest that they can be.
        Some(12) => Period { unit: Unit::Day, multiplier: 366 },
        Some(months) => Period { unit: Unit::Day, multiplier: u32::from(months) * 31 },
        None => period(unit_of_time(unit)?, unit_multiplier)?,
    };
    let quota = Quota::new(count.unwrap_or(Count::Packets), requests_per_unit, period);
    Ok(Some(Quota { byte_units: ByteUnits::Decimal, ..quota }))
}

/// True of a number of requests that refuses them all.
fn is_zero(scalar: &Scalar) -> bool {
    let text = scalar.value.as_deref().unwrap_or_default();
    !text.is_empty() && text.bytes().all(|byte| byte == b'0')
}

/// Months of a limit of requests in months or a year, which are those of the calendar.
fn months(unit: &Scalar, multiplier: Option<&Scalar>) -> Result<Option<u8>, Failure> {
    let word = unit.value.as_deref().unwrap_or_default();
    let is_year = word.eq_ignore_ascii_case("year");
    if !is_year && !word.eq_ignore_ascii_case("month") {
        return Ok(None);
    }
    let most = if is_year { 1 } else { 6 };
    let number = multiplier.map(|raw| Ok((raw, ranged::<u8>(raw, "unit_multiplier", 1..=most)?)));
    match number.transpose()? {
        Some((raw, months)) if 12 % months != 0 => {
            let reason = "1, 2, 3, 4 and 6 months divide a year; write one of those";
            let what = format!("{months} months");
            Err(at(raw.referenced, Problem::NotSupported { what, reason }))
        }
        _ if is_year => Ok(Some(12)),
        number => Ok(Some(number.map_or(1, |(_, months)| months))),
    }
}

fn no_rate(
    scalar: &Scalar,
    field: &'static str,
    error: RateTextError,
    dialect: Dialect,
) -> Failure {
    at(scalar.referenced, Problem::RateText { field, error: Box::new(error.of(dialect)) })
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

fn with_burst(quota: Quota, burst: Option<&Scalar>, units: Units) -> Result<RateLimit, Failure> {
    let dialect = units.dialect;
    let burst = match burst {
        None => default_burst(quota.count, quota.requests_per_unit, units.max_frame),
        Some(raw) => {
            let text = text(raw, "burst", "give one like 200 or 60kB, or remove the line")?;
            if text.starts_with('-') || text.bytes().all(|byte| byte.is_ascii_digit()) {
                number(raw, "burst", dialect)?
            } else {
                let burst = rate_text::burst(text, quota.count);
                burst.map_err(|error| no_rate(raw, "burst", error, dialect))?
            }
        }
    };
    Ok(quota.with_burst(burst))
}

/// A rate and its burst on their own.
pub(super) fn rate(raw: &Placed<Rate>, count: Count, units: Units) -> Result<RateLimit, Failure> {
    let Rate { rate, unit, unit_multiplier, requests_per_unit, burst } = &raw.value;
    let fields = RateFields {
        rate: rate.as_deref(),
        requests_per_unit: requests_per_unit.as_ref(),
        unit: unit.as_ref(),
        unit_multiplier: unit_multiplier.as_ref(),
        is_limit: false,
    };
    let Some(quota) = quota(raw.referenced, fields, Some(count), units.dialect)? else {
        let reason = "it is there to bound: write a rate like 100/s, or remove it";
        let location = rate.as_ref().map_or(raw.referenced, |rate| rate.referenced);
        let what = "unlimited".to_owned();
        return Err(at(location, Problem::NotSupported { what, reason }));
    };
    with_burst(quota, burst.as_ref(), units)
}

fn meter(limit: &RawRateLimit, quota: Quota, units: Units) -> Result<Meter, Failure> {
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
        _ => Meter::TokenBucket(with_burst(quota, limit.burst.as_ref(), units)?),
    })
}

fn upper(limit: &RawRateLimit, count: Count, units: Units) -> Result<Option<Upper>, Failure> {
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
            found = Some((name, make(rate(raw, count, units)?)));
        }
    }
    Ok(found.map(|(_, upper)| upper))
}
