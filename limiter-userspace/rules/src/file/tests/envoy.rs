//! Files for envoyproxy/ratelimit: what means something for packets loads as it is, everything else
//! is refused with the reason. The files are of our own making, after the forms in that project's
//! README and tests; the comments say which.

use super::*;
use crate::model::{Part, Path};

/// Lines of a file that loads.
fn loaded(text: &str) -> Vec<String> {
    let file = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let lines = file.rules.lines();
    lines.into_iter().map(|(subject, text)| format!("{subject}: {text}")).collect()
}

#[test]
fn a_limit_for_each_address_loads() {
    // README, example 3, without its address at a rate of 0.
    let text = "
domain: front_door
descriptors:
  # Whoever it is.
  - key: remote_address
    rate_limit:
      unit: second
      requests_per_unit: 12

  # A guest that we know.
  - key: remote_address
    value: 198.51.100.5
    rate_limit:
      unit: minute
      requests_per_unit: 90
";
    assert_eq!(
        loaded(text),
        ["rule for every source: 12/s burst 12", "rule for 198.51.100.5: 90/min burst 90"]
    );
    assert_eq!(parse(text).unwrap().domain.unwrap().0, "front_door");
}

#[test]
fn unlimited_shadow_mode_and_names_load() {
    // README, examples 5, 6 and 7, with keys of packets.
    let text = "
domain: internal
descriptors:
  - key: remote_address
    value: 192.0.2.0/24
    rate_limit:
      name: office
      unlimited: true
  - key: remote_address
    rate_limit:
      name: everybody
      requests_per_unit: 10
      unit: hour
    shadow_mode: true
";
    assert_eq!(
        loaded(text),
        [
            "rule for every source: 10/hour burst 10; shadow; name \"everybody\"",
            "rule for 192.0.2.0/24: unlimited; name \"office\""
        ]
    );
}

#[test]
fn a_generic_key_around_an_address_is_its_name() {
    // The form of README, example 4, with the two keys that Envoy can send without HTTP.
    let text = "
domain: tcp_proxy
descriptors:
  - key: generic_key
    value: postgres
    descriptors:
      - key: remote_address
        rate_limit:
          requests_per_unit: 300
          unit: day
";
    // A name is no key, so this is a rule for every source.
    assert_eq!(
        loaded(text),
        ["rule for every source: 300/day burst 300; generic_key \"postgres\""]
    );
    let all = "
domain: tcp_proxy
descriptors:
  - key: generic_key
    value: postgres
    rate_limit: {requests_per_unit: 300, unit: day}
";
    assert_eq!(loaded(all), ["rule for every packet: 300/day burst 300; generic_key \"postgres\""]);
}

#[test]
fn files_of_several_domains_are_not_mixed() {
    // Domains are what keeps rule sets apart there; here one host has one rule set.
    let file = |name: &str, domain: &str| {
        let text = format!("domain: {domain}\ndescriptors: []\n");
        (name.to_owned(), RuleFile::parse(name, text.as_bytes(), 1522).unwrap())
    };
    assert!(RuleFiles::unite([file("a.yaml", "x"), file("b.yaml", "x")]).is_ok());
    let error = RuleFiles::unite([file("a.yaml", "x"), file("b.yaml", "y")]).unwrap_err();
    assert!(
        error.to_string().contains("domain \"y\" is another one than in a.yaml:1:9"),
        "{error}"
    );
}

#[test]
fn what_means_nothing_for_packets_is_refused_with_the_reason() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 5}";
    let of = |key: &str| format!("descriptors:\n  - {{key: {key}, {limit}}}\n");
    let with = |field: &str| {
        format!(
            "descriptors:\n  - {{key: remote_address, rate_limit: {{unit: second, \
             requests_per_unit: 5, {field}}}}}\n"
        )
    };
    let mut cases = Vec::new();
    // The keys that Envoy's actions send by themselves, all of them about a request.
    for key in [
        "header_match",
        "query_match",
        "query_parameter_value_match",
        "source_cluster",
        "destination_cluster",
        "path",
        "method",
    ] {
        let text = format!("2:11: {key:?} is not supported: it needs HTTP");
        cases.push((of(key), text));
    }
    // README, examples 1, 2 and 8: keys of their author's.
    for key in ["database", "message_type", "to_number", "key1"] {
        cases.push((
            of(key),
            format!("2:11: key: {key:?} is no key of packets: use remote_address,"),
        ));
    }
    // README, example 3.
    cases.push((
        "descriptors:\n  - {key: remote_address, value: 203.0.113.5, rate_limit: {unit: second, \
         requests_per_unit: 0}}\n"
            .into(),
        "2:93: requests_per_unit: a rate of 0 passes nothing: to block, write `action: drop` in a \
         rule, in place of the rate, or `limiter deny ADDRESS`; "
            .into(),
    ));
    // README, examples 7, 8 and 9, and its other fields.
    cases.push((with("replaces: [{name: x}]"), "\"replaces\" is not supported: ".into()));
    cases.push((
        with("unit_multiplier: 0"),
        "2:93: unit_multiplier: \"0\" does not fit: give a whole number from 1 to 31622400".into(),
    ));
    for field in ["detailed_metric", "value_to_metric", "quota_mode", "share_threshold"] {
        let text = format!("descriptors:\n  - {{key: remote_address, {field}: true, {limit}}}\n");
        cases.push((text, format!("{field:?} is not supported: ")));
    }
    cases.push((
        format!("descriptors:\n  - {{key: remote_address, charge: afterwards, {limit}}}\n"),
        "\"charge\" is not supported: packets are charged as they come".into(),
    ));
    cases.push((
        format!("descriptors:\n  - {{key: remote_address, value: 10.0.*, {limit}}}\n"),
        "2:34: value: \"10.0.*\" is not an IP address or prefix: ".into(),
    ));
    for (unit, days) in [("month", 30), ("YEAR", 365)] {
        let text = of("remote_address").replace("second", unit);
        let length = unit.to_lowercase();
        let reason =
            format!("a {length} is {days} days there; write `unit: day, unit_multiplier: {days}`");
        cases.push((text, format!("{unit:?} is not supported: {reason}")));
    }
    cases.push((
        format!("descriptors:\n  - {{key: remote_address, metadata: {{a: {{b: 1}}}}, {limit}}}\n"),
        "\"metadata\" is not supported: it is for the answer to a request, and packets get none"
            .into(),
    ));
    // There the masks are in Envoy's own configuration.
    cases.push((
        format!("descriptors:\n  - {{key: masked_remote_address, value: 192.0.2.0/24, {limit}}}\n"),
        "v4_prefix_mask_len is missing: write it, v6_prefix_mask_len, or both".into(),
    ));
    // There nothing of it is limited; here a limit was forgotten, as likely as not.
    for text in [
        "descriptors:\n  - key: remote_address\n",
        "descriptors:\n  - key: generic_key\n    value: postgres\n",
    ] {
        let remedy = "to let all of them pass, as envoyproxy/ratelimit does";
        cases.push((text.into(), format!("or `rate_limit: {{unlimited: true}}` {remedy}")));
    }
    let mut wrong = Vec::new();
    for (text, part) in cases {
        let error = parse(&text).expect_err(&text).to_string();
        if !error.starts_with("r.yaml:2:") || !error.contains(&part) {
            wrong.push(format!("{text}\n  got  {error}\n  want {part}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn an_entry_with_a_value_and_without_a_limit_lets_pass() {
    // README, "Descriptor list definition": such an entry is on a white list.
    let text = "
domain: front_door
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 12}
  - key: remote_address
    value: 198.51.100.5
  - key: generic_key
    value: postgres
    descriptors:
      - {key: destination_port, value: 5432}
      - {key: destination_port, rate_limit: {unit: second, requests_per_unit: 9}}
";
    assert_eq!(
        loaded(text),
        [
            "rule for every source: 12/s burst 12",
            "rule for 198.51.100.5: unlimited",
            "rule for destination_port: 9/s burst 9; generic_key \"postgres\"",
            "rule for destination_port=5432: unlimited; generic_key \"postgres\"",
        ]
    );
    // Fields of a limit show that one was meant.
    for field in ["shadow_mode: true", "on_full: drop", "on_daemon_loss: shadow"] {
        let text = format!("descriptors:\n  - {{key: vlan, value: 7, {field}}}\n");
        let error = parse(&text).expect_err(&text).to_string();
        assert!(error.contains("without rate_limit: add a limit, or remove the field"), "{error}");
    }
}

#[test]
fn units_are_read_in_letters_of_either_case() {
    for unit in ["SECOND", "Second", "second"] {
        let text = format!(
            "descriptors:\n  - {{key: remote_address, rate_limit: {{unit: {unit}, \
             requests_per_unit: 5}}}}\n"
        );
        assert_eq!(loaded(&text), ["rule for every source: 5/s burst 5"]);
    }
}

#[test]
fn a_mask_is_all_that_is_missing_for_a_masked_address() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 5}";
    let text = format!(
        "descriptors:\n  - {{key: masked_remote_address, v4_prefix_mask_len: 24, value: \
         192.0.2.0/24, {limit}}}\n"
    );
    let rules = parse(&text).unwrap().rules.rules;
    let Path { parts, .. } = &rules[0].path;
    assert!(matches!(&**parts, [Part::Source(_, Some(_))]), "{parts:?}");
}
