//! One limit of a rule for requests: the fields of one for packets, and months and years.

use limiter_common::wire::Count;

use super::super::check::Failure;
use super::super::check::limits;
use super::super::check::scalar::{at, number, ranged};
use super::super::error::Problem;
use super::super::placed::{Placed, Scalar};
use super::super::shape as of_packets;
use super::model::{Calendar, RequestLimit};
use super::shape::RateLimit as RawRateLimit;
use crate::compile::of_requests;
use crate::model::{Meter, Period, Quota, RateLimit, RuleLimit, Unit, Upper};
use crate::rate_text::RateTextError;

/// What one limit of a rule says.
pub(super) enum Term {
    /// Every request passes.
    Unlimited,
    /// No request passes.
    Block(Period),
    /// So many pass.
    Limit(RequestLimit),
    /// So many pass unmarked, and others up to the ceiling.
    Soft(RequestLimit, RateLimit),
}

/// Reads one limit of a rule.
pub(super) fn limit(raw: &Placed<RawRateLimit>) -> Result<Term, Failure> {
    let limit = &raw.value;
    if let Some(calendar) = calendar(raw)? {
        return Ok(calendar);
    }
    let zero = limit.requests_per_unit.as_ref().is_some_and(is_zero);
    let is_unlimited = limit.unlimited.as_ref().is_some_and(|unlimited| unlimited.value);
    if let Some(ceiling) = limit.ceiling.as_ref().filter(|_| zero) {
        let problem = Problem::Beside("ceiling", "requests_per_unit: 0");
        return Err(at(ceiling.referenced, problem));
    }
    if zero && !is_unlimited {
        // Whatever else is wrong with it is found with another number.
        let one = RawRateLimit {
            requests_per_unit: Some(Placed::from(Some("1".to_owned()))),
            ..copy(limit)
        };
        let raw = Placed { value: one, referenced: raw.referenced };
        return Ok(match limits::rate_limit(&as_of_packets(&raw), 1)?.1 {
            Some(found) => Term::Block(found.meter.quota().period),
            None => Term::Unlimited,
        });
    }
    let (_, found) = limits::rate_limit(&as_of_packets(raw), 1).map_err(without_packets)?;
    let Some(RuleLimit { meter, upper, .. }) = found else {
        return Ok(Term::Unlimited);
    };
    if meter.quota().count != Count::Packets {
        let place = limit.rate.as_ref().map_or(raw.referenced, |rate| rate.referenced);
        let what = meter.quota().count.name().to_owned();
        let reason = "requests are counted: write a rate like 100/s";
        return Err(at(place, Problem::NotSupported { what, reason }));
    }
    let limit = RequestLimit::hard(meter);
    Ok(match upper {
        Some(Upper::Ceiling(ceiling)) => {
            Term::Soft(RequestLimit { is_soft: true, ..limit }, ceiling)
        }
        _ => Term::Limit(limit),
    })
}

fn is_zero(scalar: &Scalar) -> bool {
    let text = scalar.value.as_deref().unwrap_or_default();
    !text.is_empty() && text.bytes().all(|byte| byte == b'0')
}

/// An error without the words for packets.
fn without_packets((place, problem): Failure) -> Failure {
    match problem {
        Problem::RateText { error, .. } if *error == RateTextError::Zero => {
            let what = "a rate of 0".to_owned();
            let reason = "to refuse every request, write `unit: second, requests_per_unit: 0`";
            (place, Problem::NotSupported { what, reason })
        }
        problem @ (Problem::RateText { .. } | Problem::Number { .. }) => {
            (place, Problem::Limit(of_requests(&problem.to_string())))
        }
        problem => (place, problem),
    }
}

/// A limit in months or years, which are those of the calendar.
fn calendar(raw: &Placed<RawRateLimit>) -> Result<Option<Term>, Failure> {
    let limit = &raw.value;
    let Some(unit) = &limit.unit else {
        return Ok(None);
    };
    let word = unit.value.as_deref().unwrap_or_default();
    let is_year = word.eq_ignore_ascii_case("year");
    if !is_year && !word.eq_ignore_ascii_case("month") {
        return Ok(None);
    }
    let algorithm = limit.algorithm.as_ref().and_then(|algorithm| algorithm.value.as_deref());
    if algorithm != Some("fixed_window") {
        let reason = if is_year {
            "a year has no fixed length: write `algorithm: fixed_window` for those of the calendar \
             in UTC, or `unit: day, unit_multiplier: 365`"
        } else {
            "a month has no fixed length: write `algorithm: fixed_window` for those of the calendar \
             in UTC, or `unit: day, unit_multiplier: 30`"
        };
        return Err(at(unit.referenced, Problem::NotSupported { what: word.to_owned(), reason }));
    }
    let fields = [("burst", &limit.burst), ("backlog", &limit.backlog), ("slots", &limit.slots)];
    for (field, scalar) in fields {
        if let Some(scalar) = scalar {
            return Err(at(scalar.referenced, Problem::Beside(field, "fixed_window")));
        }
    }
    if let Some(ceiling) = &limit.ceiling {
        let reason = "a month and a year have no limit above them: write `rate_limits`";
        let what = "ceiling".to_owned();
        return Err(at(ceiling.referenced, Problem::NotSupported { what, reason }));
    }
    if let Some(rate) = &limit.rate {
        return Err(at(rate.referenced, Problem::Beside("rate", "unit")));
    }
    if let Some(unlimited) = limit.unlimited.as_ref().filter(|unlimited| unlimited.value) {
        return Err(at(unlimited.referenced, Problem::UnlimitedWith("unit")));
    }
    let most = if is_year { 1 } else { 6 };
    let months: u8 = match &limit.unit_multiplier {
        None => 1,
        Some(multiplier) => {
            let months = ranged(multiplier, "unit_multiplier", 1..=most)?;
            if 12 % months != 0 {
                let reason = "1, 2, 3, 4 and 6 months divide a year; write one of those";
                let what = format!("{months} months");
                return Err(at(multiplier.referenced, Problem::NotSupported { what, reason }));
            }
            months
        }
    };
    let (months, days) = if is_year { (12, 366) } else { (months, u32::from(months) * 31) };
    let period = Period { unit: Unit::Day, multiplier: days };
    let Some(requests) = &limit.requests_per_unit else {
        let (field, remedy) = ("requests_per_unit", "write a number, or `unlimited: true`");
        return Err(at(raw.referenced, Problem::Missing { field, remedy }));
    };
    if is_zero(requests) {
        return Ok(Some(Term::Block(period)));
    }
    let requests_per_unit = number(requests, "requests_per_unit")?;
    let quota = Quota::new(Count::Packets, requests_per_unit, period);
    let calendar = Some(Calendar { months });
    let hard = RequestLimit::hard(Meter::FixedWindow(quota));
    Ok(Some(Term::Limit(RequestLimit { calendar, ..hard })))
}

fn copy(limit: &RawRateLimit) -> RawRateLimit {
    RawRateLimit {
        name: limit.name.clone(),
        replaces: None,
        rate: limit.rate.clone(),
        unit: limit.unit.clone(),
        unit_multiplier: limit.unit_multiplier.clone(),
        requests_per_unit: limit.requests_per_unit.clone(),
        burst: limit.burst.clone(),
        algorithm: limit.algorithm.clone(),
        backlog: limit.backlog.clone(),
        slots: limit.slots.clone(),
        strict: limit.strict.clone(),
        ceiling: limit.ceiling.clone(),
        unlimited: limit.unlimited.clone(),
    }
}

/// The fields as those of a rule for packets.
fn as_of_packets(raw: &Placed<RawRateLimit>) -> Placed<of_packets::RateLimit> {
    let limit = copy(&raw.value);
    let value = of_packets::RateLimit {
        name: limit.name,
        rate: limit.rate.map(Box::new),
        unit: limit.unit,
        unit_multiplier: limit.unit_multiplier.map(Box::new),
        requests_per_unit: limit.requests_per_unit,
        burst: limit.burst,
        algorithm: limit.algorithm,
        backlog: limit.backlog,
        slots: limit.slots,
        strict: limit.strict,
        ceiling: limit.ceiling,
        unlimited: limit.unlimited,
        ..of_packets::RateLimit::default()
    };
    Placed { value, referenced: raw.referenced }
}

#[cfg(test)]
mod tests {
    use super::super::model::RequestFile;

    /// No error about a limit of requests speaks of packets, or of a field that rules for requests
    /// do not have.
    #[test]
    fn errors_about_limits_of_requests_have_words_for_requests() {
        for (limit, wanted) in [
            ("rate: 0/s", "to refuse every request, write"),
            ("rate: 5/s, burst: 0", "burst: \"0\" lets no request pass"),
            ("rate: 5/s, burst: 0k", "a burst of 0 lets no request pass"),
            ("rate: 5/s, burst: 3kB", "the rate counts requests: give a number of requests"),
            ("rate: 5/s, ceiling: {rate: 0/s}", "a rate of 0"),
            ("rate: 5/s, ceiling: {unit: second, requests_per_unit: 0}", "requests_per_unit"),
            ("rate: 1000000000000/s", "faster than can be held"),
            ("rate: 5q/s", "use k, M, G (requests)"),
        ] {
            let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n");
            let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
            let error = errors.first().map_or_else(|| panic!("{limit}"), ToString::to_string);
            assert!(error.contains(wanted), "{limit}: {error}");
            let foreign = ["packet", "frame", "action: drop", "limiter deny"];
            assert!(!foreign.iter().any(|word| error.contains(word)), "{limit}: {error}");
        }
    }
}
