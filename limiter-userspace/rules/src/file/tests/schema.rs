//! The schema has the reader's fields, takes what the checks take, and is published.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path as FilePath;

use limiter_json_schema::valid;
use serde_json::{Value, json};

use super::*;
use crate::dialect::Dialect;

fn schema() -> Value {
    crate::file::schema(Dialect::Packets)
}

fn accepts(text: &str) -> Result<(), String> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let schema = schema();
    valid(&schema, &schema, &document)
}

fn repository(path: &str) -> std::path::PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The committed schemas are those of the two dialects.
#[test]
fn the_published_schemas_are_these() {
    for (dialect, page, option) in [
        (Dialect::Packets, "docs/rules.schema.json", ""),
        (Dialect::Requests, "docs/requests.schema.json", " --requests"),
    ] {
        let text = fs::read_to_string(repository(page)).unwrap();
        let published: Value = serde_json::from_str(&text).unwrap();
        // Not assert_eq: it would print both.
        let is_this = published == crate::file::schema(dialect);
        assert!(is_this, "run `limiter schema{option} > {page}`");
    }
}

/// The reader names the fields that it would take when it meets one that it does not.
#[test]
fn the_schema_has_the_fields_of_the_reader() {
    let places = [
        ("", "zzz: 1\n"),
        ("/$defs/descriptor", "descriptors: [{zzz: 1}]\n"),
        ("/$defs/aggregate", "descriptors: [{aggregates: [{zzz: 1}]}]\n"),
        ("/$defs/budget", "budgets: [{zzz: 1}]\n"),
        ("/$defs/cluster", "budgets: [{cluster: {zzz: 1}}]\n"),
        ("/$defs/rate_limit", "descriptors: [{rate_limit: {zzz: 1}}]\n"),
        ("/$defs/rate", "replies: {zzz: 1}\n"),
        ("/$defs/action/anyOf/1", "descriptors: [{action: {zzz: 1}}]\n"),
        ("/$defs/mark", "descriptors: [{action: {mark: {zzz: 1}}}]\n"),
        ("/$defs/listing", "allow: [{zzz: 1}]\n"),
        ("/$defs/ban", "descriptors: [{action: {ban: {zzz: 1}}}]\n"),
        ("/$defs/delay", "descriptors: [{action: {delay: {zzz: 1}}}]\n"),
    ];
    let schema = schema();
    for (pointer, text) in places {
        let Problem::UnknownField { expected, .. } = parse(text).unwrap_err().problem else {
            panic!("{text}");
        };
        let expected: BTreeSet<&str> = expected.into_iter().collect();
        let object = schema.pointer(pointer).unwrap();
        assert_eq!(object["additionalProperties"], false, "{pointer}");
        let fields = object["properties"].as_object().unwrap();
        let fields: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
        assert_eq!(fields, expected, "{pointer}");
    }
    let definitions = schema["$defs"].as_object().unwrap().keys().map(String::as_str);
    let tested = places.iter().filter_map(|(pointer, _)| pointer.split('/').nth(2));
    let tested: BTreeSet<&str> = tested.collect();
    assert_eq!(definitions.collect::<BTreeSet<_>>(), tested);
}

#[test]
fn the_examples_are_valid() {
    let mut files = 0;
    for entry in fs::read_dir(repository("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(&path).unwrap();
            accepts(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            files += 1;
        }
    }
    assert!(files >= 8, "{files}");
    let pages = ["docs/rules.md", "docs/rules-reference.md"];
    let docs = pages.map(|page| fs::read_to_string(repository(page)).unwrap()).concat();
    let blocks: Vec<_> = docs.split("```yaml\n").skip(1).collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        let block = block.split("```").next().unwrap();
        accepts(block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
}

proptest! {
    /// Every rule set that there can be.
    #[test]
    fn what_the_checks_take_the_schema_takes(set in round_trip::any_set()) {
        let text = render("x", &set, 1522).unwrap();
        prop_assert_eq!(accepts(&text), Ok(()), "{}", text);
    }
}

#[test]
fn numbers_and_names_may_stand_in_quotes() {
    for text in [
        "descriptors: []\n",
        "domain: 7\ndescriptors: []\n",
        "domain: 22.0\nbudgets: [{name: TRUE, rate_limit: {rate: 5/s}}]\ndescriptors: [{key: \
         interface, value: [true, 22.0], budget: TRUE}, {key: interface, value: 1e3, rate_limit: \
         {rate: 5/s, name: 22.0}}, {key: generic_key, value: False, budget: TRUE}]\n",
        "martians: drop\n",
        "descriptors: [{key: remote_address, value: 192.0.2.7}]\n",
        "descriptors: [{key: vlan, rate_limit: {unit: SECOND, requests_per_unit: 5}}, {key: vlan, \
         value: 7, rate_limit: {unit: Week, requests_per_unit: 5}}]\n",
        "descriptors: [{key: vlan, value: 7, rate_limit: {unit: second, requests_per_unit: \
         \"5\"}}]\n",
        "descriptors: [{key: vlan, rate_limit: {unit: day, unit_multiplier: \"5\", \
         requests_per_unit: 5}}]\n",
        "descriptors: [{key: vlan, value: [\"7\", 8], rate_limit: {unit: \"second\", \
         requests_per_unit: 5}}]\n",
        "descriptors: [{key: dscp, value: af11, budget: b, descriptors: [{key: vlan, rate_limit: \
         {unlimited: true, name: x}}]}]\n",
        "descriptors: [{key: vlan, rate_limit: {unlimited: false, unit: day, requests_per_unit: \
         5}, action: {mark: {dscp: cs1}}}]\n",
        "descriptors: [{key: vlan, rate_limit: {unit: day, requests_per_unit: 5}, action: {mark: \
         {ecn: true}}}]\n",
        "descriptors: [{key: vlan, rate_limit: {unit: day, requests_per_unit: 5}, action: {ban: \
         {}}}]\n",
        "descriptors: [{key: vlan, rate_limit: {rate: 5/30s, burst: 2}}, {key: vlan, value: 7, \
         rate_limit: {rate: 2mbit/s, burst: 60kB, count: bytes}}]\n",
        "descriptors: [{key: vlan, rate_limit: {rate: unlimited}}, {key: vlan, value: 7, \
         rate_limit: {rate: 10 syns/min, burst: \"1.5k\", name: x}}]\n",
        "replies: {rate: 100/s}\nbans: {rate: 5/s, burst: 10}\nmartians: drop\n",
        "budgets: [{name: b, scope: node, rate_limit: {unit: day, requests_per_unit: 5}}]\n",
        "budgets: [{name: b, scope: cluster, cluster: {share: 100%, share_of_burst: 0.1%}, \
         rate_limit: {unit: day, requests_per_unit: 5}}]\n",
        "descriptors: [{key: vlan, scope: cluster, cluster: {sync: 1s}, rate_limit: {unit: day, \
         requests_per_unit: 5}}]\n",
        "budgets: [{name: b, scope: cluster, cluster: {sync: 1s, strict: true}, rate_limit: \
         {unit: day, requests_per_unit: 5}}]\n",
    ] {
        parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        accepts(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}

#[test]
fn what_the_schema_refuses_the_checks_refuse() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 5}";
    for text in [
        String::new(),
        "domain: x\n".to_owned(),
        "descriptors:\n".to_owned(),
        "domainn: x\n".to_owned(),
        "descriptors: {}\n".to_owned(),
        "descriptors: [{}]\n".to_owned(),
        format!("descriptors: [{{{limit}}}]\n"),
        "descriptors: [{key: vlan}]\n".to_owned(),
        format!("descriptors: [{{key: remote_adress, {limit}}}]\n"),
        format!("descriptors: [{{key: vlan, value: [], {limit}}}]\n"),
        format!("descriptors: [{{key: vlan, value:, {limit}}}]\n"),
        format!("descriptors: [{{key: masked_remote_address, {limit}}}]\n"),
        format!("descriptors: [{{key: masked_remote_address, v4_prefix_mask_len: 33, {limit}}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, budget: b}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, rate_limits: []}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, action: deny}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, action: {{}}}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, action: {{cpu: 1, class: b}}}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, action: {{ban: {{strikes: 0}}}}}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, shadow_mode: \"yes\"}}]\n"),
        format!("descriptors: [{{key: vlan, {limit}, on_full: maybe}}]\n"),
        format!("budgets: [{{name: b, scope: nodes, {limit}}}]\n"),
        format!("budgets: [{{name: b, cluster: {{}}, {limit}}}]\n"),
        format!("budgets: [{{name: b, scope: node, cluster: {{}}, {limit}}}]\n"),
        format!("budgets: [{{name: b, scope: cluster, cluster: {{share: 25}}, {limit}}}]\n"),
        format!("budgets: [{{name: b, scope: cluster, cluster: {{share: 101%}}, {limit}}}]\n"),
        format!(
            "budgets: [{{name: b, scope: cluster, cluster: {{on_partition: pass}}, {limit}}}]\n"
        ),
        format!("descriptors: [{{key: vlan, cluster: {{}}, {limit}}}]\n"),
        "descriptors: [{key: vlan, rate_limit: {unit: minutes, requests_per_unit: 5}}]\n"
            .to_owned(),
        "descriptors: [{key: vlan, rate_limit: {unit: MONTH, requests_per_unit: 5}}]\n".to_owned(),
        "descriptors: [{key: vlan, rate_limit: {unit: second}}]\n".to_owned(),
        "descriptors: [{key: vlan, rate_limit: {rate: 5}}]\n".to_owned(),
        "descriptors: [{key: vlan, rate_limit: {rate: 5/s, unit: second}}]\n".to_owned(),
        "descriptors: [{key: vlan, rate_limit: {rate: 5/s, unlimited: true}}]\n".to_owned(),
        "descriptors: [{key: vlan, rate_limit: {rate: 5/s, burst: 0}}]\n".to_owned(),
        "replies: {rate: 5/s, requests_per_unit: 5}\n".to_owned(),
        "replies: {burst: 5}\n".to_owned(),
        "descriptors: [{key: vlan, rate_limit: {unit: day, unit_multiplier: 0, requests_per_unit: \
         5}}]\n"
            .to_owned(),
        "descriptors: [{key: vlan, rate_limit: {unit: second, requests_per_unit: 0}}]\n".to_owned(),
        "descriptors: [{key: vlan, rate_limit: {unit: second, requests_per_unit: 1.5}}]\n"
            .to_owned(),
        "descriptors: [{key: vlan, rate_limit: {unlimited: true, unit: second}}]\n".to_owned(),
        format!("budgets: [{{{limit}}}]\n"),
        "budgets: [{name: b}]\n".to_owned(),
        "replies: {unit: second}\n".to_owned(),
    ] {
        assert!(accepts(&text).is_err(), "the schema takes\n{text}");
        assert!(parse(&text).is_err(), "the checks take\n{text}");
    }
    let limited = |fields: &str| format!("key: k, rate_limit: {{rate: 1/s}}, {fields}");
    let rule = |fields: &str| format!("domain: d\ndescriptors: [{{{fields}}}]\n");
    for text in [
        "domain: d\n".to_owned(),
        "descriptors: []\n".to_owned(),
        "domain: d\ncheck: []\ndescriptors: []\n".to_owned(),
        "domain: d\ncheck: [[{key: a, value: b, header: c}]]\ndescriptors: []\n".to_owned(),
        "domain: d\nqueues: []\ndescriptors: []\n".to_owned(),
        "domain: d\nqueues: [{depth: 1}]\ndescriptors: []\n".to_owned(),
        "domain: d\nqueues: [{name: q, depth: 0}]\ndescriptors: []\n".to_owned(),
        "domain: d\nqueues: [{name: q, attempts: 1001}]\ndescriptors: []\n".to_owned(),
        rule("value: x"),
        rule("key: k"),
        rule("key: k, rate_limit: {replaces: [{}], rate: 1/s}"),
        rule("key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}"),
        rule("key: k, value: [], rate_limit: {rate: 1/s}"),
        rule(&limited("rate_limits: [{rate: 1/s}]")),
        rule(&limited("action: drop")),
        rule(&limited("action: {}")),
        rule(&limited("action: {ban: {evidence: none}}")),
        rule(&limited("action: {queue: q, ban: {first: 1min}}")),
    ] {
        assert!(requests::tests::accepts(&text).is_err(), "the schema takes\n{text}");
        requests::tests::error(&text);
    }
}

#[test]
fn the_test_s_own_validator_knows_wrong_from_right() {
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]});
    assert!(valid(&schema, &schema, &json!({"a": 1})).is_ok());
    for wrong in [json!({}), json!([]), json!({"a": 2}), json!({"a": "1"})] {
        assert!(valid(&schema, &schema, &wrong).is_err(), "{wrong}");
    }
}
