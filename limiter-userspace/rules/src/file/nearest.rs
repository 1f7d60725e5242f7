//! What was probably meant by a word that is not known.

use super::shape::{Action, Ban, RateLimit};
use crate::model::key::{KEYS, key_elsewhere};

/// What a word is not, by the field that it stands in.
pub(super) fn is_none_of(field: &str) -> &'static str {
    if field == "key" { "is no key of packets" } else { "is not known" }
}

/// `did you mean`, or the whole list.
pub(super) fn nearest(word: &str, expected: &[&'static str]) -> String {
    if expected.contains(&"descriptors") && KEYS.contains(&word) {
        return format!(
            "it is a key: write `key: {word}` in a descriptor, and nest it under `descriptors` of \
             another one to join two"
        );
    }
    // Something that is often written beside the field that it belongs into.
    if expected.contains(&"action") && Action::table().has(word) {
        return format!("write it inside `action`, as in `action: {{{word}: ...}}`");
    }
    if expected.contains(&"action") && Ban::table().has(word) {
        return "write it inside `ban`, as in `action: {ban: {first: 10min}}`".to_owned();
    }
    if expected.contains(&"rate_limit") && RateLimit::table().has(word) {
        let example = match word {
            "unlimited" => "unlimited: true",
            "name" => "name: ssh, rate: 100/s",
            "algorithm" => "rate: 100/s, algorithm: sliding_counter",
            "count" => "rate: 10/min, count: syns",
            "unit" | "requests_per_unit" => "unit: second, requests_per_unit: 100",
            "rate" | "burst" => "rate: 100/s, burst: 20",
            other => {
                return format!("write it inside `rate_limit`, beside its rate: `{other}: ...`");
            }
        };
        return format!("write it inside `rate_limit`, as in `rate_limit: {{{example}}}`");
    }
    if expected.contains(&"remote_address")
        && let Some(key) = key_elsewhere(word)
    {
        return format!("did you mean {key:?}?");
    }
    // Another case, or the beginning of a word.
    let lower = word.to_lowercase();
    let near = |candidate: &&&str| {
        **candidate == lower || lower.len() > 2 && candidate.starts_with(&lower)
    };
    let mut found = expected.iter().filter(near);
    if let (Some(candidate), None) = (found.next(), found.next()) {
        return format!("did you mean {candidate:?}?");
    }
    let best = expected
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), *candidate))
        .min();
    match best {
        // A third of the word wrong is a typing error, more is another word.
        // Of a single character nothing is left to recognise.
        Some((distance, candidate))
            if candidate.len() > 1 && distance * 3 <= candidate.len().max(3) =>
        {
            format!("did you mean {candidate:?}?")
        }
        _ => {
            let requests = if expected.contains(&"remote_address") {
                "; for requests, which have keys of any name, add `domain:`"
            } else {
                ""
            };
            format!("use {}{requests}", expected.join(", "))
        }
    }
}
