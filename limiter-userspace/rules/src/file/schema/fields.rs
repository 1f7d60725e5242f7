//! Schemas of single fields, and conditions of fields on each other: what their types do not say.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::file::check::words;
use crate::file::shape::Listing;
use crate::model::key::{DSCPS, KEYS};
use crate::model::{Fact, Period, Unit};

/// A file with nothing in it was emptied by mistake.
pub(in crate::file) fn says_something() -> Value {
    one_of_these(&[
        "descriptors", "budgets", "replies", "bans", "martians", "allow", "deny",
    ])["anyOf"].take()
}

/// Rules for requests: other code reads them.
pub(in crate::file) fn of_requests(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// Conditions of the fields of a descriptor on each other.
pub(in crate::file) fn of_descriptor() -> Value {
    let masked = json!({"properties": {"key": {"const": "masked_remote_address"}}});
    json!([
        not_both("rate_limit", "rate_limits"),
        not_both("budget", "rate_limit"),
        not_both("budget", "rate_limits"),
        // With a value and without a limit it lets pass; with an action alone it blocks.
        one_of_these(&[
            "rate_limit", "rate_limits", "budget", "aggregates", "descriptors", "value", "action",
        ]),
        {"if": masked, "then": one_of_these(&["v4_prefix_mask_len", "v6_prefix_mask_len"])},
        cluster_needs_scope(),
    ])
}

/// Conditions of the fields of an aggregate on each other.
pub(in crate::file) fn of_aggregate() -> Value {
    json!([
        not_both("rate_limit", "rate_limits"),
        one_of_these(&["rate_limit", "rate_limits"]),
        one_of_these(&["v4_prefix_mask_len", "v6_prefix_mask_len"]),
    ])
}

/// Conditions of the fields of a budget on each other.
pub(in crate::file) fn of_budget() -> Value {
    json!([
        not_both("rate_limit", "rate_limits"),
        one_of_these(&["rate_limit", "rate_limits"]),
        cluster_needs_scope(),
    ])
}

/// The condition of `cluster` on `scope`.
pub(in crate::file) fn cluster_needs_scope() -> Value {
    let shared = json!({"properties": {"scope": {"const": "cluster"}}, "required": ["scope"]});
    json!({"if": {"required": ["cluster"]}, "then": shared})
}

/// Conditions of the fields of a limit on each other.
pub(in crate::file) fn of_rate_limit() -> Value {
    let unlimited = json!({
        "properties": {"unlimited": {"const": true}},
        "required": ["unlimited"],
    });
    let alone = json!({
        "properties": {"unlimited": true, "name": true},
        "additionalProperties": false,
    });
    json!([{"if": unlimited, "then": alone, "else": {"anyOf": of_rate()}}])
}

/// The two forms of a rate.
pub(in crate::file) fn of_rate() -> Value {
    let fields = ["unit", "unit_multiplier", "requests_per_unit"];
    let none: Vec<_> = fields.iter().map(|field| json!({"required": [field]})).collect();
    json!([
        {"required": ["unit", "requests_per_unit"], "not": {"required": ["rate"]}},
        {"required": ["rate"], "not": {"anyOf": none}},
    ])
}

/// `allow` and `deny`.
pub(in crate::file) fn listings(generator: &mut SchemaGenerator) -> Schema {
    let listing = generator.subschema_for::<Listing>();
    json_schema!({
        "type": ["array", "null"],
        "items": {"anyOf": [{"type": "string"}, listing]},
    })
}

/// An address or a prefix.
pub(in crate::file) fn word(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

pub(in crate::file) fn until(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}Z?)?$",
    })
}

/// Types of text: without quotes, YAML takes `22.0` for a number, and `TRUE` for a boolean. The
/// reader takes both as they are written.
pub(in crate::file) const TEXT: [&str; 3] = ["string", "number", "boolean"];

pub(in crate::file) fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": TEXT})
}

pub(in crate::file) fn keys(_: &mut SchemaGenerator) -> Schema {
    words_of(KEYS.into_iter())
}

/// `value`, with the words that there are.
pub(in crate::file) fn value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": format!(
            "Only packets with this value, or one of these. Without it each value has a bucket.{}",
            names_of_values(),
        ),
        "anyOf": [
            {"type": TEXT},
            {"type": "array", "items": {"type": TEXT}, "minItems": 1},
        ],
    })
}

/// `direction`.
pub(in crate::file) fn direction(_: &mut SchemaGenerator) -> Schema {
    words_of(words::directions())
}

/// `v4_prefix_mask_len`.
pub(in crate::file) fn v4_bits(_: &mut SchemaGenerator) -> Schema {
    number_within(1, Some(32))
}

/// `v6_prefix_mask_len`.
pub(in crate::file) fn v6_bits(_: &mut SchemaGenerator) -> Schema {
    number_within(1, Some(128))
}

/// A whole number from 1.
pub(in crate::file) fn number(_: &mut SchemaGenerator) -> Schema {
    number_within(1, None)
}

pub(in crate::file) fn rate(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": format!("^{RATE}$")})
}

/// `rate` of a limit.
pub(in crate::file) fn rate_or_unlimited(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": format!("^({RATE}|unlimited)$")})
}

pub(in crate::file) fn burst(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? *[A-Za-z]*$"},
        ],
    })
}

/// The pattern of a rate.
const RATE: &str = "[0-9]+(\\.[0-9]+)? *[A-Za-z]* */[0-9]*[a-z]+";

pub(in crate::file) fn cpu(_: &mut SchemaGenerator) -> Schema {
    number_within(0, Some(u64::from(u32::MAX)))
}

pub(in crate::file) fn strikes(_: &mut SchemaGenerator) -> Schema {
    number_within(1, Some(65_535))
}

pub(in crate::file) fn slots(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": [2, 4, 8, "2", "4", "8"]})
}

/// `dscp` of a mark.
pub(in crate::file) fn dscp(_: &mut SchemaGenerator) -> Schema {
    let names = words_of(DSCPS.iter().map(|(name, _)| *name));
    json_schema!({"anyOf": [number_within(0, Some(63)), names]})
}

/// `unit`, in letters of either case.
pub(in crate::file) fn unit(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            {"enum": Unit::ALL.map(Unit::name)},
            {"type": "string", "pattern": in_any_case(Unit::ALL.map(Unit::name))},
        ],
    })
}

/// `unit_multiplier`: what fits the shortest unit.
pub(in crate::file) fn unit_multiplier(_: &mut SchemaGenerator) -> Schema {
    number_within(1, Some(Period::most(Unit::Second)))
}

pub(in crate::file) fn counts(_: &mut SchemaGenerator) -> Schema {
    words_of(words::counts())
}

pub(in crate::file) fn algorithms(_: &mut SchemaGenerator) -> Schema {
    words_of(words::algorithms())
}

/// `on_full`.
pub(in crate::file) fn full(_: &mut SchemaGenerator) -> Schema {
    words_of(words::full())
}

/// `on_daemon_loss`.
pub(in crate::file) fn on_loss(_: &mut SchemaGenerator) -> Schema {
    words_of(words::on_loss())
}

pub(in crate::file) fn evidence(_: &mut SchemaGenerator) -> Schema {
    words_of(words::evidence())
}

pub(in crate::file) fn martians(_: &mut SchemaGenerator) -> Schema {
    words_of(words::martians())
}

pub(in crate::file) fn scope(_: &mut SchemaGenerator) -> Schema {
    words_of(words::scope())
}

/// `on_partition`.
pub(in crate::file) fn on_partition(_: &mut SchemaGenerator) -> Schema {
    words_of(words::on_partition())
}

/// A part of a whole, in per cent.
pub(in crate::file) fn share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": "^(100(\\.0)?|[0-9]{1,2}(\\.[0-9])?)%$"})
}

/// A number, which may stand in quotes.
pub(in crate::file) fn number_within(least: u64, most: Option<u64>) -> Schema {
    let mut integer = json!({"type": "integer", "minimum": least});
    if let Some(most) = most {
        integer["maximum"] = json!(most);
    }
    json_schema!({"anyOf": [integer, {"type": "string", "pattern": "^[0-9]+$"}]})
}

/// The pattern of words in letters of either case.
fn in_any_case(words: impl IntoIterator<Item = &'static str>) -> String {
    let letter = |letter: char| format!("[{letter}{}]", letter.to_ascii_uppercase());
    let word = |word: &str| word.chars().map(letter).collect::<String>();
    let words: Vec<_> = words.into_iter().map(word).collect();
    format!("^({})$", words.join("|"))
}

fn words_of(words: impl Iterator<Item = &'static str>) -> Schema {
    json_schema!({"enum": words.collect::<Vec<_>>()})
}

pub(in crate::file) fn not_both(one: &str, other: &str) -> Value {
    json!({"not": {"required": [one, other]}})
}

/// At least one of these fields.
pub(in crate::file) fn one_of_these(fields: &[&str]) -> Value {
    json!({"anyOf": fields.iter().map(|field| json!({"required": [field]})).collect::<Vec<_>>()})
}

/// A sentence for each key whose names of values are worth to be listed.
fn names_of_values() -> String {
    let sentence = |fact: Fact| {
        let names: Vec<_> = fact.names().iter().map(|(name, _)| *name).collect();
        Some(format!(" {}: {}.", fact.names_in_schema()?, names.join(", ")))
    };
    Fact::ALL.into_iter().filter_map(sentence).collect()
}
