//! The JSON schema of rule files, for editors: the fields, and the words that the checks know.
//!
//! What it refuses the checks refuse, too; they refuse more. A test holds its fields to those that the
//! reader knows, and the words are the checks' own.

use serde_json::{Map, Value, json};

use super::check::words;
use crate::rules::model::key::{DSCPS, KEYS};
use crate::rules::model::{Fact, Unit};

/// The schema, of the draft 2020-12.
pub fn schema() -> Value {
    let mut schema = object(&[
        ("domain", text("A name for this rule set. It changes nothing.")),
        (
            "replies",
            reference("rate", "How many replies `action: reject` may send. Without it, none."),
        ),
        (
            "bans",
            reference("rate", "How many new bans there may be: 10 a second if nothing is said."),
        ),
        (
            "martians",
            words_of(words::martians(), "What becomes of packets whose source no host can have."),
        ),
        ("budgets", list("budget", "Limits that several rules share.")),
        (
            "descriptors",
            json!({
                "description": "The rules: `[]` if none are meant, so that nobody is limited.",
                "type": "array",
                "items": {"$ref": "#/$defs/descriptor"},
            }),
        ),
    ]);
    for (name, value) in [
        ("$schema", json!("https://json-schema.org/draft/2020-12/schema")),
        ("title", json!("A rule file of limiter")),
        (
            "description",
            json!("docs/rules.md says what the fields mean; `limiter check` checks more."),
        ),
        ("$defs", definitions()),
    ] {
        schema[name] = value;
    }
    // A file with nothing in it was emptied by mistake.
    schema["anyOf"] =
        any_of(&["descriptors", "budgets", "replies", "bans", "martians"])["anyOf"].take();
    schema
}

fn definitions() -> Value {
    json!({
        "descriptor": descriptor(),
        "aggregate": aggregate(),
        "budget": budget(),
        "rate_limit": rate_limit(),
        "rate": required(rate("burst"), &["unit", "requests_per_unit"]),
        "action": action(),
        "mark": mark(),
        "ban": ban(),
        "number": number(1, None, "A whole number from 1."),
    })
}

fn descriptor() -> Value {
    let scalar = json!({"type": ["string", "integer"]});
    let mut descriptor = object(&[
        ("key", words_of(KEYS.into_iter(), "What packets are told apart by.")),
        (
            "value",
            json!({
                "description": format!(
                    "Only packets with this value, or one of these. Without it each value has a \
                     bucket.{}",
                    names_of_values(),
                ),
                "anyOf": [
                    scalar,
                    {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
                ],
            }),
        ),
        ("v4_prefix_mask_len", number(1, Some(32), "Bits of an IPv4 source that count.")),
        ("v6_prefix_mask_len", number(1, Some(128), "Bits of an IPv6 source that count.")),
        ("budget", text("The name of a budget, instead of limits.")),
        ("on_full", words_of(words::full(), "What becomes of packets that get no bucket.")),
        ("aggregates", list("aggregate", "The same rule for wider prefixes of the source.")),
        ("descriptors", list("descriptor", "Further keys.")),
    ]);
    add_limits(&mut descriptor);
    let masked = json!({"properties": {"key": {"const": "masked_remote_address"}}});
    descriptor["allOf"] = json!([
        not_both("rate_limit", "rate_limits"),
        not_both("budget", "rate_limit"),
        not_both("budget", "rate_limits"),
        // With a value and without a limit it lets pass.
        any_of(&["rate_limit", "rate_limits", "budget", "aggregates", "descriptors", "value"]),
        {"if": masked, "then": any_of(&["v4_prefix_mask_len", "v6_prefix_mask_len"])},
    ]);
    required(descriptor, &["key"])
}

fn aggregate() -> Value {
    let mut aggregate = object(&[
        ("v4_prefix_mask_len", number(1, Some(32), "Bits of an IPv4 source that count.")),
        ("v6_prefix_mask_len", number(1, Some(128), "Bits of an IPv6 source that count.")),
        ("rate_limit", reference("rate_limit", "The limit.")),
        ("rate_limits", list("rate_limit", "Several limits: any of them trips.")),
    ]);
    aggregate["allOf"] = json!([
        not_both("rate_limit", "rate_limits"),
        any_of(&["rate_limit", "rate_limits"]),
        any_of(&["v4_prefix_mask_len", "v6_prefix_mask_len"]),
    ]);
    aggregate
}

fn budget() -> Value {
    let mut budget = object(&[("name", text("What rules call it."))]);
    add_limits(&mut budget);
    budget["allOf"] =
        json!([not_both("rate_limit", "rate_limits"), any_of(&["rate_limit", "rate_limits"]),]);
    required(budget, &["name"])
}

/// What a descriptor and a budget have.
fn add_limits(to: &mut Value) {
    let fields = [
        ("rate_limit", reference("rate_limit", "The limit.")),
        ("rate_limits", list("rate_limit", "Several limits: any of them trips.")),
        ("action", reference("action", "What happens over the limits: `drop` if nothing is said.")),
        ("shadow_mode", boolean("Only count what is over the limits.")),
        (
            "on_daemon_loss",
            words_of(words::on_loss(), "What becomes of the limits without a daemon."),
        ),
    ];
    for (name, value) in fields {
        to["properties"][name] = value;
    }
}

fn rate_limit() -> Value {
    let mut limit = rate("burst");
    let fields = [
        ("name", text("The name of the rule.")),
        ("count", words_of(words::counts(), "What is counted: packets if nothing is said.")),
        ("algorithm", words_of(words::algorithms(), "How: docs/algorithms.md.")),
        ("backlog", text("For leaky_bucket: how far packets may be ahead, as in 10ms.")),
        (
            "slots",
            json!({
                "description": "For sliding_slots.",
                "enum": [2, 4, 8, "2", "4", "8"],
            }),
        ),
        ("strict", boolean("For sliding_slots: never over in any window.")),
        ("ceiling", reference("rate", "Makes the limit soft: bounds all that passes.")),
        ("peak", reference("rate", "Makes the limit soft: the peak rate of RFC 2698.")),
        ("excess", reference("rate", "Makes the limit soft: RFC 4115.")),
        ("mark", reference("mark", "How packets over a soft limit are marked.")),
        ("unlimited", boolean("Every packet passes.")),
    ];
    for (name, value) in fields {
        limit["properties"][name] = value;
    }
    let unlimited = json!({
        "properties": {"unlimited": {"const": true}},
        "required": ["unlimited"],
    });
    let alone = json!({
        "properties": {"unlimited": true, "name": true},
        "additionalProperties": false,
    });
    let rated = json!({"required": ["unit", "requests_per_unit"]});
    limit["allOf"] = json!([{"if": unlimited, "then": alone, "else": rated}]);
    limit
}

fn rate(burst: &str) -> Value {
    object(&[
        (
            "unit",
            json!({
                "description": "The unit of time.",
                "anyOf": [
                    {"enum": Unit::ALL.map(Unit::name)},
                    {"type": "string", "pattern": in_any_case(Unit::ALL.map(Unit::name))},
                ],
            }),
        ),
        ("requests_per_unit", reference("number", "That many in a unit of time.")),
        (burst, reference("number", "That many at once: one unit's worth if nothing is said.")),
    ])
}

fn action() -> Value {
    let mut map = object(&[
        ("mark", reference("mark", "Let it pass, marked.")),
        ("class", text("Charge it to this budget.")),
        ("interface", text("Let it leave by this interface.")),
        ("cpu", number(0, Some(u64::from(u32::MAX)), "Let this CPU go on with it.")),
        ("ban", reference("ban", "Drop it, and maybe ban its source.")),
    ]);
    (map["minProperties"], map["maxProperties"]) = (json!(1), json!(1));
    json!({"anyOf": [{"enum": ["drop", "reject"]}, map]})
}

fn mark() -> Value {
    let numbers = number(0, Some(63), "");
    let mut mark = object(&[
        (
            "dscp",
            json!({
                "description": "This DSCP.",
                "anyOf": [numbers, {"enum": DSCPS.iter().map(|(name, _)| *name).collect::<Vec<_>>()}],
            }),
        ),
        ("ecn", boolean("ECN's congestion mark.")),
    ]);
    (mark["minProperties"], mark["maxProperties"]) = (json!(1), json!(2));
    mark
}

fn ban() -> Value {
    object(&[
        ("first", text("The length of the first ban, as in 1min.")),
        ("longest", text("The length of the longest, as in 1day.")),
        ("memory", text("After how long strikes and bans are forgotten, as in 1h.")),
        ("strikes", number(1, Some(65_535), "Packets over the limits that it takes.")),
        ("evidence", words_of(words::evidence(), "What shows that the source is not forged.")),
    ])
}

fn object(fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn required(mut object: Value, fields: &[&str]) -> Value {
    object["required"] = json!(fields);
    object
}

fn text(description: &str) -> Value {
    json!({"description": description, "type": ["string", "integer"]})
}

fn boolean(description: &str) -> Value {
    json!({"description": description, "type": "boolean"})
}

/// A number, which may stand in quotes.
fn number(least: u64, most: Option<u64>, description: &str) -> Value {
    let mut integer = json!({"type": "integer", "minimum": least});
    if let Some(most) = most {
        integer["maximum"] = json!(most);
    }
    json!({"description": description, "anyOf": [integer, {"type": "string", "pattern": "^[0-9]+$"}]})
}

/// The pattern of words in letters of either case.
fn in_any_case(words: impl IntoIterator<Item = &'static str>) -> String {
    let letter = |letter: char| format!("[{letter}{}]", letter.to_ascii_uppercase());
    let word = |word: &str| word.chars().map(letter).collect::<String>();
    let words: Vec<_> = words.into_iter().map(word).collect();
    format!("^({})$", words.join("|"))
}

fn words_of(words: impl Iterator<Item = &'static str>, description: &str) -> Value {
    json!({"description": description, "enum": words.collect::<Vec<_>>()})
}

fn reference(to: &str, description: &str) -> Value {
    json!({"description": description, "$ref": format!("#/$defs/{to}")})
}

/// A list, or nothing after the colon.
fn list(of: &str, description: &str) -> Value {
    json!({
        "description": description,
        "type": ["array", "null"],
        "items": {"$ref": format!("#/$defs/{of}")},
    })
}

fn not_both(one: &str, other: &str) -> Value {
    json!({"not": {"required": [one, other]}})
}

fn any_of(fields: &[&str]) -> Value {
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
