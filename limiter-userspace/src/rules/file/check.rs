//! From the fields to rules.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use limiter_common::wire::Count;
use serde_saphyr::{Location, Spanned};

use super::RuleFile;
use super::error::{Place, Problem};
use super::raw::{Descriptor, File, RateLimit as RawRateLimit, Scalar};
use crate::rules::model::{Action, RateLimit, Rule, Selector, Unit};
use crate::rules::rate_text::default_burst;
use crate::rules::source_text;

type Failure = (Option<Place>, Problem);

/// The only key of this version.
const KEY: &str = "remote_address";

/// Keys of later versions (DESIGN, "Words").
const LATER_KEYS: [&str; 8] = [
    "masked_remote_address",
    "destination_address",
    "destination_port",
    "protocol",
    "tcp_flags",
    "interface",
    "vlan",
    "dscp",
];

/// Keys of Envoy's rate limit actions that stand above layer 4.
const HTTP_KEYS: [&str; 7] = [
    "generic_key",
    "header_match",
    "method",
    "path",
    "query_parameter_value_match",
    "source_cluster",
    "destination_cluster",
];

pub(super) fn check(file: File, max_frame: u64) -> Result<RuleFile, Failure> {
    if let Some(domain) = &file.domain {
        text(domain, "domain", "name it, or remove the line")?;
    }
    let mut checked = RuleFile::default();
    let mut places: BTreeMap<Selector, Place> = BTreeMap::new();
    for descriptor in file.descriptors.unwrap_or_default() {
        let place = Place::of(descriptor.referenced);
        let rule = rule(&descriptor.value, place, max_frame)?;
        let place = place.unwrap_or(Place { line: 1, column: 1 });
        match places.entry(rule.selector) {
            Entry::Vacant(entry) => {
                entry.insert(place);
            }
            Entry::Occupied(entry) => {
                let selector = rule.selector.to_string();
                let first = entry.get().line;
                return Err((Some(place), Problem::Duplicate { selector, first }));
            }
        }
        checked.rules.rules.push(rule);
    }
    checked.places = places;
    Ok(checked)
}

fn rule(raw: &Descriptor, place: Option<Place>, max_frame: u64) -> Result<Rule, Failure> {
    let Some(key) = &raw.key else {
        let remedy = "write `key: remote_address`";
        return Err((place, Problem::Missing { field: "key", remedy }));
    };
    known_key(key)?;
    let selector = match &raw.value {
        None => Selector::Every,
        Some(value) => {
            let remedy = "give an address or prefix, or remove the line to limit every source";
            let text = text(value, "value", remedy)?;
            source_text::parse(text).map_err(|e| at(value.referenced, Problem::Value(e)))?
        }
    };
    let Some(limit) = &raw.rate_limit else {
        let remedy = "write `rate_limit: {unit: second, requests_per_unit: 100}`";
        return Err((place, Problem::Missing { field: "rate_limit", remedy }));
    };
    let (name, mut action) = action(limit, max_frame)?;
    if let Some(shadow) = &raw.shadow_mode
        && shadow.value
    {
        if action == Action::Unlimited {
            return Err(at(shadow.referenced, Problem::UnlimitedWith("shadow_mode")));
        }
        action = action.shadowed();
    }
    Ok(Rule { name, selector, action })
}

fn known_key(key: &Scalar) -> Result<(), Failure> {
    let word = text(key, "key", "write `key: remote_address`")?;
    let reason = match word {
        KEY => return Ok(()),
        _ if LATER_KEYS.contains(&word) => "this version has remote_address alone",
        _ if HTTP_KEYS.contains(&word) => {
            "it needs HTTP, and packets are judged before there is any; use remote_address"
        }
        _ => {
            let problem =
                Problem::UnknownWord { field: "key", word: word.to_owned(), expected: vec![KEY] };
            return Err(at(key.referenced, problem));
        }
    };
    Err(at(key.referenced, Problem::NotSupported { what: word.to_owned(), reason }))
}

fn action(
    raw: &Spanned<RawRateLimit>,
    max_frame: u64,
) -> Result<(Option<String>, Action), Failure> {
    let RawRateLimit { name, unit, requests_per_unit, burst, count, unlimited } = &raw.value;
    let name = match name {
        Some(name) => Some(text(name, "name", "name it, or remove the line")?.to_owned()),
        None => None,
    };
    if unlimited.as_ref().is_some_and(|unlimited| unlimited.value) {
        let fields = [
            ("unit", unit),
            ("requests_per_unit", requests_per_unit),
            ("burst", burst),
            ("count", count),
        ];
        for (field, scalar) in fields {
            if let Some(scalar) = scalar {
                return Err(at(scalar.referenced, Problem::UnlimitedWith(field)));
            }
        }
        return Ok((name, Action::Unlimited));
    }
    let missing = |field, remedy| at(raw.referenced, Problem::Missing { field, remedy });
    let requests_per_unit = requests_per_unit
        .as_ref()
        .ok_or_else(|| missing("requests_per_unit", "write a number, or `unlimited: true`"))?;
    let requests_per_unit = number(requests_per_unit, "requests_per_unit")?;
    let unit =
        unit.as_ref().ok_or_else(|| missing("unit", "write second, minute, hour, day or week"))?;
    let unit = one_of(unit, "unit", &Unit::ALL.map(|unit| (unit.name(), unit)))?;
    let count = match count {
        None => Count::Packets,
        Some(count) => {
            one_of(count, "count", &[("packets", Count::Packets), ("bytes", Count::Bytes)])?
        }
    };
    let burst = match burst {
        None => default_burst(count, requests_per_unit, max_frame),
        Some(burst) => number(burst, "burst")?,
    };
    Ok((name, Action::Limit(RateLimit { count, requests_per_unit, unit, burst })))
}

fn text<'a>(
    scalar: &'a Scalar,
    field: &'static str,
    remedy: &'static str,
) -> Result<&'a str, Failure> {
    match scalar.value.as_deref() {
        None | Some("") => Err(at(scalar.referenced, Problem::Empty { field, remedy })),
        Some(text) => Ok(text),
    }
}

fn number(scalar: &Scalar, field: &'static str) -> Result<u64, Failure> {
    let text = text(scalar, field, "give a whole number of at least 1")?;
    let wrong = if text.starts_with('-') {
        "is negative"
    } else if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        "is not a whole number"
    } else {
        match text.parse::<u64>() {
            Ok(0) if field == "burst" => "lets no packet pass",
            Ok(0) => "blocks the source for ever",
            Ok(number) => return Ok(number),
            Err(_) => "is too large",
        }
    };
    Err(at(scalar.referenced, Problem::Number { field, text: text.to_owned(), wrong }))
}

fn one_of<T: Copy>(
    scalar: &Scalar,
    field: &'static str,
    words: &[(&'static str, T)],
) -> Result<T, Failure> {
    let word = text(scalar, field, "give one, or remove the line")?;
    words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
        let expected = words.iter().map(|(name, _)| *name).collect();
        at(scalar.referenced, Problem::UnknownWord { field, word: word.to_owned(), expected })
    })
}

fn at(location: Location, problem: Problem) -> Failure {
    (Place::of(location), problem)
}
