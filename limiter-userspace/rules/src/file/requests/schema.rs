//! The JSON schema of rule files for requests, made from their [shape](super::shape).

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::super::schema::fields::unit as unit_of_packets;
use super::super::schema::fields::{
    TEXT, cluster_needs_scope, not_both, number_within, of_rate, one_of_these, strikes,
};
pub(super) use super::super::schema::fields::{
    algorithms, burst, full, rate_or_unlimited, scope, slots, text, unit_multiplier, v4_bits,
    v6_bits,
};
use super::queues::{MOST, MOST_ATTEMPTS, MOST_DEPTH};
use super::shape::{AFTERWARDS, Entry, File, Queue};

/// The schema, of the draft 2020-12.
pub fn schema() -> Value {
    schemars::schema_for!(File).to_value()
}

/// Conditions of the fields of an entry on each other.
pub(super) fn of_entry() -> Value {
    json!([{"required": ["value"]}, {"required": ["header"]}])
}

/// Conditions of the fields of a descriptor on each other.
pub(super) fn of_descriptor() -> Value {
    json!([
        not_both("rate_limit", "rate_limits"),
        not_both("rate_limit", "budget"),
        not_both("rate_limits", "budget"),
        one_of_these(&["rate_limit", "rate_limits", "budget", "descriptors", "value"]),
        cluster_needs_scope(),
    ])
}

/// Conditions of the limits of a budget and of an aggregate on each other.
pub(super) fn of_limits() -> Value {
    json!([not_both("rate_limit", "rate_limits"), one_of_these(&["rate_limit", "rate_limits"]),])
}

/// Conditions of the fields of a limit on each other.
pub(super) fn of_rate_limit() -> Value {
    let unlimited = json!({
        "properties": {"unlimited": {"const": true}},
        "required": ["unlimited"],
    });
    let alone = json!({
        "properties": {"unlimited": true, "name": true, "replaces": true},
        "additionalProperties": false,
    });
    json!([{"if": unlimited, "then": alone, "else": {"anyOf": of_rate()}}])
}

/// Descriptors that a check is made into.
pub(super) fn check(generator: &mut SchemaGenerator) -> Schema {
    let entry = generator.subschema_for::<Entry>();
    let entries = json!({"type": "array", "items": entry, "minItems": 1, "maxItems": 16});
    json_schema!({"type": "array", "items": entries, "minItems": 1, "maxItems": 16})
}

/// `queues`.
pub(super) fn queues(generator: &mut SchemaGenerator) -> Schema {
    let queue = generator.subschema_for::<Queue>();
    json_schema!({"type": "array", "items": queue, "minItems": 1, "maxItems": MOST})
}

/// `depth`.
pub(super) fn depth(_: &mut SchemaGenerator) -> Schema {
    number_within(1, Some(MOST_DEPTH))
}

/// `attempts`.
pub(super) fn attempts(_: &mut SchemaGenerator) -> Schema {
    number_within(1, Some(MOST_ATTEMPTS))
}

/// `value`.
pub(super) fn value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Only requests with this value, or one of these; `*` stands for any \
                        characters. Without it each value has a bucket.",
        "anyOf": [
            {"type": TEXT},
            {"type": "array", "items": {"type": TEXT}, "minItems": 1},
        ],
    })
}

/// `action`.
pub(super) fn action(generator: &mut SchemaGenerator) -> Schema {
    let (text, strikes) = (text(generator), strikes(generator));
    let text_of_queue = text.clone();
    let ban = json!({
        "type": "object",
        "properties": {"first": text, "longest": text, "memory": text, "strikes": strikes},
        "additionalProperties": false,
    });
    json_schema!({
        "type": "object",
        "properties": {"ban": ban, "queue": text_of_queue},
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": false,
    })
}

/// `unit`: also those of the calendar.
pub(super) fn unit(generator: &mut SchemaGenerator) -> Schema {
    let calendar = "^([mM][oO][nN][tT][hH]|[yY][eE][aA][rR])$";
    json_schema!({
        "anyOf": [
            unit_of_packets(generator),
            {"enum": ["month", "year"]},
            {"type": "string", "pattern": calendar},
        ],
    })
}

/// `charge`.
pub(super) fn charge(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": [AFTERWARDS]})
}

/// `requests_per_unit`.
pub(super) fn requests(_: &mut SchemaGenerator) -> Schema {
    number_within(0, None)
}

pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}
