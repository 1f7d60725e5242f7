//! A check that a proxy asks for by a request of its own: descriptors from headers, and an answer
//! in headers.

use std::borrow::Cow;

use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use limiter_rules::file::requests::{Entry, EntryValue, RequestLimit};
use limiter_rules::model::Meter;

use crate::buckets::arithmetic::Left;
use crate::decide::question::{Answer, Status};

/// A key and a value out of headers.
type Made<'a> = (&'a str, Cow<'a, str>);

/// Descriptors of a request, as the rule file makes them of headers. One of which a header is
/// missing or empty is left out: some proxies send an empty one for a missing one. Of several
/// headers of one name the last one counts: that is the one that a proxy adds.
pub(crate) fn descriptors<'a>(
    mapping: &'a [Vec<Entry>],
    headers: &'a HeaderMap,
) -> Vec<Vec<Made<'a>>> {
    let entry = |entry: &'a Entry| {
        let value = match &entry.value {
            EntryValue::Fixed(value) => Cow::Borrowed(&**value),
            EntryValue::Header(name) => {
                let value = headers.get_all(&**name).iter().next_back()?;
                let value = value.as_bytes().trim_ascii();
                (!value.is_empty()).then(|| String::from_utf8_lossy(value))?
            }
        };
        Some((&*entry.key, value))
    };
    mapping.iter().filter_map(|entries| entries.iter().map(entry).collect()).collect()
}

/// Limits that the headers of an answer name.
const MOST_NAMED: usize = 8;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const SOFT: HeaderName = HeaderName::from_static("x-ratelimit-soft-limit");
const POLICIES: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATES: HeaderName = HeaderName::from_static("ratelimit");

/// Adds what is left to the headers of an answer.
pub(crate) fn add_headers(answer: &Answer, headers: &mut HeaderMap) {
    let counting = counting(answer);
    let over = counting.iter().filter(|status| status.over || !answer.over);
    let nearest = over.filter_map(|status| Some((*status, status.nearest.as_ref()?)));
    // Report the refusing limit with the longest wait; if none refuses, the one with the least
    // left. What is left of one that other nodes use as well is not known, and counts as less than
    // that.
    let nearest = nearest.min_by_key(|(status, (limit, left))| {
        if status.over {
            (0, u64::MAX - left.wait.unwrap_or(u64::MAX))
        } else if status.leased {
            (1, limit.amount())
        } else {
            (2, left.remaining)
        }
    });
    if let Some((status, (limit, left))) = nearest {
        headers.insert(LIMIT, limit.amount().into());
        if let Some(remaining) = remaining(status, left) {
            headers.insert(REMAINING, remaining.into());
            if !is_never(status, left) {
                headers.insert(RESET, seconds(left.reset).into());
            }
        }
        // Without it where waiting does not help.
        if let (true, Some(wait)) = (answer.over, left.wait) {
            headers.insert(RETRY_AFTER, seconds(wait).max(1).into());
        }
    }
    if !answer.over && answer.statuses.iter().any(|status| status.over_soft) {
        headers.insert(SOFT, HeaderValue::from_static("over"));
    }
    let (mut policies, mut states) = (Vec::new(), Vec::new());
    for status in counting {
        for (number, (limit, left)) in (1..).zip(&status.limits) {
            let name = name(status, number);
            policies.push(format!("{name};q={};w={}", limit.amount(), window(limit)));
            let left_of_it =
                if left.wait == Some(0) { known(status, left) } else { remaining(status, left) };
            if let Some(left_of_it) = left_of_it {
                states.push(if is_never(status, left) {
                    format!("{name};r={left_of_it}")
                } else {
                    format!("{name};r={left_of_it};t={}", seconds(left.reset))
                });
            }
        }
    }
    for (header, mut list) in [(POLICIES, policies), (STATES, states)] {
        list.truncate(MOST_NAMED);
        // Names have no other bytes.
        if let (false, Ok(value)) = (list.is_empty(), HeaderValue::from_str(&list.join(", "))) {
            headers.insert(header, value);
        }
    }
}

/// True if a request has more hits than a limit ever takes: no time to come back helps.
const fn is_never(status: &Status, left: &Left) -> bool {
    status.over && left.wait.is_none()
}

/// The statuses of limits that count: none of a rule in shadow mode; and of rules in quota mode,
/// which refuse only together, the one that has the most left.
pub(crate) fn counting(answer: &Answer) -> Vec<&Status> {
    let of_quota = |status: &&Status| status.rule.as_ref().is_some_and(|rule| rule.written.quota);
    let room = |status: &&Status| match &status.nearest {
        Some((_, left)) if status.over => (true, left.wait.unwrap_or(u64::MAX), 0),
        Some((_, left)) => (false, 0, u64::MAX - left.remaining),
        None => (status.over, u64::MAX, 0),
    };
    let mut counting: Vec<&Status> = answer.statuses.iter().collect();
    counting.retain(|status| status.rule.as_ref().is_none_or(|rule| !rule.written.shadow));
    if let Some(most) = counting.iter().copied().filter(of_quota).min_by_key(room) {
        counting.retain(|status| !of_quota(status) || std::ptr::eq(*status, most));
    }
    counting
}

/// What is left of a limit, if this node knows: of one that nodes share it has a lease.
fn known(status: &Status, left: &Left) -> Option<u64> {
    (!status.leased).then_some(left.remaining)
}

/// What is left of the nearest limit of a status.
pub(crate) fn remaining(status: &Status, left: &Left) -> Option<u64> {
    if status.over && !is_never(status, left) { Some(0) } else { known(status, left) }
}

/// Seconds in which a limit gives what it lets pass at once: a bucket fills, a window goes by.
fn window(limit: &RequestLimit) -> u64 {
    let quota = limit.meter.quota();
    let period = quota.period.seconds();
    let Meter::TokenBucket(rate) = limit.meter else { return period };
    let fills = u128::from(rate.burst) * u128::from(period);
    let seconds = fills.div_ceil(u128::from(quota.requests_per_unit.max(1))).max(1);
    u64::try_from(seconds).unwrap_or(u64::MAX)
}

const fn seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000)
}

/// The name of a limit, as a text of a structured header.
fn name(status: &Status, number: usize) -> String {
    let shown = status.rule.as_ref().map_or("", |rule| rule.shown());
    let plain = |c: char| match c {
        '"' | '\\' => '\'',
        ' '..='~' => c,
        _ => '?',
    };
    let name: String = shown.chars().take(100).map(plain).collect();
    if number == 1 { format!("\"{name}\"") } else { format!("\"{name} {number}\"") }
}

#[cfg(test)]
mod tests {
    use limiter_rules::file::requests::{RequestFile, RequestTerms};

    use super::*;

    #[test]
    fn descriptors_come_from_headers() {
        let fixed = |key: &str, value: &str| Entry {
            key: key.into(),
            value: EntryValue::Fixed(value.into()),
        };
        let header = |key: &str, name: &str| Entry {
            key: key.into(),
            value: EntryValue::Header(name.into()),
        };
        let mapping = [
            vec![fixed("form", "login"), header("remote_address", "x-real-ip")],
            vec![header("api_key", "x-api-key")],
        ];
        let mut headers = HeaderMap::new();
        assert!(descriptors(&mapping, &headers).is_empty());
        headers.append("x-real-ip", HeaderValue::from_static("198.51.100.1"));
        headers.append("x-real-ip", HeaderValue::from_bytes(b"192.0.2.\xff").unwrap());
        let made = descriptors(&mapping, &headers);
        let [one] = &made[..] else { panic!("{made:?}") };
        assert_eq!(one[0], ("form", Cow::Borrowed("login")));
        assert_eq!(one[1], ("remote_address", Cow::Borrowed("192.0.2.\u{fffd}")));
        headers.insert("x-api-key", HeaderValue::from_static("k1"));
        assert_eq!(descriptors(&mapping, &headers).len(), 2);
        // Some proxies send an empty header for a missing one, which is no key of anybody.
        for empty in ["", " ", "\t"] {
            headers.append("x-api-key", HeaderValue::from_static(empty));
            assert_eq!(descriptors(&mapping, &headers).len(), 1, "{empty:?}");
        }
    }

    #[test]
    fn names_are_texts_of_headers() {
        assert_eq!(name(&Status::default(), 1), "\"\"");
        assert_eq!(name(&Status::default(), 2), "\" 2\"");
        assert_eq!(seconds(1), 1);
    }

    /// Not the unit of the rate: who paces itself by `q` in `w` gets the rate.
    #[test]
    fn a_policy_is_the_burst_and_the_time_that_gives_it() {
        for (limit, wanted) in [
            ("rate: 3/min", (3, 60)),
            ("rate: 3/min, burst: 1", (1, 20)),
            ("rate: 300/min, burst: 10", (10, 2)),
            ("rate: 10/s, burst: 1", (1, 1)),
            ("rate: 10/s, burst: 100", (100, 10)),
            ("rate: 2/hour, algorithm: fixed_window", (2, 3600)),
        ] {
            let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n");
            let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
            let [(_, rule)] = &file.rules()[..] else { panic!("{errors:?}") };
            let RequestTerms::Limits(limits) = &rule.terms else { panic!("{rule:?}") };
            let [limit] = &limits[..] else { panic!("{limits:?}") };
            assert_eq!((limit.written.amount(), window(&limit.written)), wanted, "{text}");
        }
    }
}
