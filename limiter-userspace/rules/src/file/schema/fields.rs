//! Schemas of single fields, and conditions of fields on each other: what their types do not say.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::file::check::words::MOST_QUEUES;
use crate::file::one_or_many::WordOr;
use crate::file::shape::{Action, Entry, Listing, Queue};
use crate::model::key::{DSCPS, KEYS};
use crate::model::{Fact, Unit};

/// The schema of a type.
pub(in crate::file) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A schema that has another description in each dialect.
fn about(of_packets: &str, of_requests: &str, mut schema: Schema) -> Schema {
    let text = if of_requests_alone() { of_requests } else { of_packets };
    schema.insert("description".to_owned(), text.into());
    schema
}

/// True in the schema of files for requests.
fn of_requests_alone() -> bool {
    Dialect::current() == Dialect::Requests
}

/// Title and conditions of a file. One with nothing in it was emptied by mistake.
pub(in crate::file) fn of_file() -> Value {
    if of_requests_alone() {
        return json!({
            "title": "A rule file of limiter for requests",
            "required": ["domain", "descriptors"],
        });
    }
    let mut file =
        one_of_these(&["descriptors", "budgets", "replies", "bans", "martians", "allow", "deny"]);
    file["title"] = json!("A rule file of limiter");
    file
}

/// Conditions of the fields of a descriptor on each other.
pub(in crate::file) fn of_descriptor() -> Value {
    let masked = json!({"properties": {"key": {"const": "masked_remote_address"}}});
    let masks = one_of_these(&["v4_prefix_mask_len", "v6_prefix_mask_len"]);
    // With a value and without a limit it lets pass; of packets, with an action alone it blocks.
    let own = ["rate_limit", "rate_limits", "budget", "descriptors", "value"];
    let mut all = vec![
        not_both("rate_limit", "rate_limits"),
        not_both("budget", "rate_limit"),
        not_both("budget", "rate_limits"),
        cluster_needs_scope(),
    ];
    if of_requests_alone() {
        all.push(one_of_these(&own));
    } else {
        all.push(one_of_these(&[&own[..], &["aggregates", "action"]].concat()));
        all.push(json!({"if": masked, "then": masks}));
    }
    json!({"required": ["key"], "allOf": all})
}

/// Conditions of the fields of an aggregate on each other.
pub(in crate::file) fn of_aggregate() -> Value {
    json!({"allOf": [
        not_both("rate_limit", "rate_limits"),
        one_of_these(&["rate_limit", "rate_limits"]),
        one_of_these(&["v4_prefix_mask_len", "v6_prefix_mask_len"]),
    ]})
}

/// Conditions of the fields of a budget on each other.
pub(in crate::file) fn of_budget() -> Value {
    json!({"required": ["name"], "allOf": [
        not_both("rate_limit", "rate_limits"),
        one_of_these(&["rate_limit", "rate_limits"]),
        cluster_needs_scope(),
    ]})
}

/// Where the value of an entry comes from.
pub(in crate::file) fn of_entry() -> Value {
    json!([{"required": ["value"]}, {"required": ["header"]}])
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
        "properties": {"unlimited": true, "name": true, "replaces": true},
        "additionalProperties": false,
    });
    json!({"allOf": [{"if": unlimited, "then": alone, "else": {"anyOf": of_rate()}}]})
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

pub(in crate::file) fn domain(generator: &mut SchemaGenerator) -> Schema {
    about(
        "A name for this rule set. It changes nothing.",
        "The name that a request gives, too.",
        text(generator),
    )
}

pub(in crate::file) fn key(generator: &mut SchemaGenerator) -> Schema {
    about(
        "Key: the part of packets that distinguishes them.",
        "A part of the request: any name.",
        if of_requests_alone() { text(generator) } else { one_of(KEYS.into_iter()) },
    )
}

/// `value`, with the words that there are.
pub(in crate::file) fn value(_: &mut SchemaGenerator) -> Schema {
    let list = json!({"type": "array", "items": {"type": TEXT}, "minItems": 1});
    about(
        &format!(
            "Only packets with this value, or one of these. Without it each value has a bucket.{}",
            names_of_values(),
        ),
        "Only requests with this value, or one of these; `*` stands for any characters. Without it \
         each value has a bucket.",
        json_schema!({"anyOf": [{"type": TEXT}, list]}),
    )
}

pub(in crate::file) fn action(generator: &mut SchemaGenerator) -> Schema {
    about(
        "Action over the limits: `drop` if nothing is said.",
        "Beside the refusal: ban the source, or keep the payload for later.",
        if of_requests_alone() { of::<Action>(generator) } else { of::<WordOr<Action>>(generator) },
    )
}

/// Descriptors that a check is made into.
pub(in crate::file) fn check(generator: &mut SchemaGenerator) -> Schema {
    let entry = generator.subschema_for::<Entry>();
    let entries = json!({"type": "array", "items": entry, "minItems": 1, "maxItems": 16});
    json_schema!({"type": "array", "items": entries, "minItems": 1, "maxItems": 16})
}

pub(in crate::file) fn queues(generator: &mut SchemaGenerator) -> Schema {
    let queue = generator.subschema_for::<Queue>();
    json_schema!({"type": "array", "items": queue, "minItems": 1, "maxItems": MOST_QUEUES})
}

/// `requests_per_unit` of a limit.
pub(in crate::file) fn requests_per_unit(_: &mut SchemaGenerator) -> Schema {
    about(
        "That many in that time.",
        "That many in that time; 0 lets nothing pass.",
        number(u64::from(!of_requests_alone()), None),
    )
}

pub(in crate::file) fn rate(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": format!("^{RATE}$")})
}

/// `rate` of a limit.
pub(in crate::file) fn rate_or_unlimited(_: &mut SchemaGenerator) -> Schema {
    about(
        "The rate as people write it, as in `100/s` or `10mbit/s`: instead of `unit` and \
         `requests_per_unit`.",
        "The rate as people write it, as in `5/min`: instead of `unit` and `requests_per_unit`.",
        json_schema!({"type": "string", "pattern": format!("^({RATE}|unlimited)$")}),
    )
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

pub(in crate::file) fn slots(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": [2, 4, 8, "2", "4", "8"]})
}

/// `dscp` of a mark.
pub(in crate::file) fn dscp(_: &mut SchemaGenerator) -> Schema {
    let names = words(&DSCPS);
    json_schema!({"anyOf": [number(0, Some(63)), names]})
}

/// `unit`, in letters of either case.
pub(in crate::file) fn unit(_: &mut SchemaGenerator) -> Schema {
    units(&Unit::ALL.map(Unit::name))
}

/// `unit` of a limit: of requests also those of the calendar.
pub(in crate::file) fn unit_of_limit(_: &mut SchemaGenerator) -> Schema {
    let calendar = if of_requests_alone() { &["month", "year"][..] } else { &[] };
    units(&[&Unit::ALL.map(Unit::name), calendar].concat())
}

fn units(units: &[&'static str]) -> Schema {
    let pattern = in_any_case(units.iter().copied());
    json_schema!({"anyOf": [{"enum": units}, {"type": "string", "pattern": pattern}]})
}

/// A part of a whole, in per cent.
pub(in crate::file) fn share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": "^(100(\\.0)?|[0-9]{1,2}(\\.[0-9])?)%$"})
}

/// A number, which may stand in quotes.
pub(in crate::file) fn number(least: u64, most: Option<u64>) -> Schema {
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

/// One of these words.
pub(in crate::file) fn words<T>(words: &[(&'static str, T)]) -> Schema {
    one_of(words.iter().map(|(word, _)| *word))
}

fn one_of(words: impl Iterator<Item = &'static str>) -> Schema {
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
