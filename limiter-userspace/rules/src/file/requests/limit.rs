//! One limit of a rule for requests: one for packets, that may also refuse every request, or count
//! in months and years.

use limiter_common::wire::Count;

use super::super::check::Failure;
use super::super::check::limits::{months, rate_limit};
use super::super::check::scalar::at;
use super::super::error::Problem;
use super::super::placed::Placed;
use super::super::shape::RateLimit as RawRateLimit;
use super::model::Calendar;
use crate::dialect::Units;
use crate::model::{Meter, RuleLimit};

/// Reads one limit of a rule, and the window of the calendar that it counts in; none for
/// `unlimited`. One of 0 lets no request pass.
pub(super) fn limit(
    raw: &Placed<RawRateLimit>,
) -> Result<Option<(RuleLimit, Option<Calendar>)>, Failure> {
    let limit = &raw.value;
    let (_, found) = rate_limit(raw, Units::REQUESTS)?;
    let Some(found) = found else {
        return Ok(None);
    };
    let quota = found.meter.quota();
    let refused = |place, what: &str, reason| {
        Err(at(place, Problem::NotSupported { what: what.to_owned(), reason }))
    };
    if quota.count != Count::Packets {
        let place = limit.rate.as_ref().map_or(raw.referenced, |rate| rate.referenced);
        return refused(place, quota.count.name(), "requests are counted: write a rate like 100/s");
    }
    let calendar = match &limit.unit {
        Some(unit) => months(unit, limit.unit_multiplier.as_deref())?.map(|months| (unit, months)),
        None => None,
    };
    if let Some((unit, months)) = calendar
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
    if let Some(ceiling) = &limit.ceiling {
        if quota.requests_per_unit == 0 {
            let problem = Problem::Beside("ceiling", "requests_per_unit: 0");
            return Err(at(ceiling.referenced, problem));
        }
        if calendar.is_some() {
            let reason = "a month and a year have no limit above them: write `rate_limits`";
            return refused(ceiling.referenced, "ceiling", reason);
        }
    }
    Ok(Some((found, calendar.map(|(_, months)| Calendar { months }))))
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
