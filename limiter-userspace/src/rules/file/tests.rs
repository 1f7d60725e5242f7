//! Good files, and a table of bad ones with the exact words of the refusal.

use limiter_common::wire::Count;
use proptest::prelude::*;

use super::*;
use crate::rules::model::{Action, RateLimit, Rule, Unit};
use crate::rules::source_text;

fn parse(text: &str) -> Result<RuleFile, RuleFileError> {
    RuleFile::parse("r.yaml", text.as_bytes(), 1522)
}

#[test]
fn the_example_is_read() {
    let file = parse(
        "domain: sandbox
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 100, burst: 20}
  - key: remote_address
    value: 192.0.2.0/24
    rate_limit: {name: office, unit: second, requests_per_unit: 125000, count: bytes, burst: 30000}
  - key: remote_address
    value: 192.0.2.7
    rate_limit: {unlimited: true}
  - key: remote_address
    value: 2001:db8::1
    rate_limit:
      unit: day
      requests_per_unit: 5
  - key: remote_address
    value: 198.51.100.0/24
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 7}
",
    )
    .unwrap();
    let limit = |count, requests_per_unit, unit, burst| {
        Action::Limit(RateLimit { count, requests_per_unit, unit, burst })
    };
    let rule = |name: Option<&str>, value: &str, action| Rule {
        name: name.map(str::to_owned),
        selector: source_text::parse(value).unwrap(),
        action,
    };
    let every = Rule {
        name: None,
        selector: Selector::Every,
        action: limit(Count::Packets, 100, Unit::Second, 20),
    };
    let wanted = vec![
        every,
        rule(Some("office"), "192.0.2.0/24", limit(Count::Bytes, 125_000, Unit::Second, 30_000)),
        rule(None, "192.0.2.7", Action::Unlimited),
        rule(None, "2001:db8::/64", limit(Count::Packets, 5, Unit::Day, 5)),
        rule(None, "198.51.100.0/24", limit(Count::Packets, 7, Unit::Second, 7).shadowed()),
    ];
    assert_eq!(file.rules.rules, wanted);
    assert_eq!(file.places[&wanted[2].selector], Place { line: 8, column: 5 });
}

#[test]
fn no_rules_limit_nobody() {
    for text in [
        "",
        "\n# nothing\n",
        "---\n",
        "domain: x\n",
        "domain: x\ndescriptors:\n",
        "descriptors: []\n",
    ] {
        assert_eq!(parse(text).unwrap().rules.rules, [], "{text:?}");
    }
}

/// A file with one rule: the lines under `rate_limit`, at column 7.
fn with_limit(lines: &str) -> String {
    format!("descriptors:\n  - key: remote_address\n    rate_limit:\n      {lines}\n")
}

#[test]
fn bad_files_are_refused_with_place_and_remedy() {
    let good = "rate_limit: {unit: second, requests_per_unit: 1}";
    let whole = "give a whole number from 1 to 18446744073709551615";
    let table: Vec<(String, String)> = vec![
        (with_limit("unit: second\n      requests_per_unit: 5\n      brust: 3"), "6:7: unknown field \"brust\": did you mean \"burst\"?".into()),
        ("descriptor: []\n".into(), "1:1: unknown field \"descriptor\": did you mean \"descriptors\"?".into()),
        ("domain: a\nfoo: 1\n".into(), "2:1: unknown field \"foo\": use domain, descriptors".into()),
        (format!("descriptors:\n  - key: remote_address\n    shadow_mode: maybe\n    {good}\n"), "3:18: neither true nor false: write one of them".into()),
        ("descriptors:\n  - key: remote_address\n    shadow_mode: true\n    rate_limit: {unlimited: true}\n".into(), "3:18: shadow_mode beside unlimited: remove one of the two".into()),
        ("descriptors:\n  - key: remote_address\n    descriptors: []\n".into(), "3:5: \"descriptors\" is not supported: this version has remote_address alone, without nested descriptors".into()),
        (with_limit("replaces: [{name: a}]"), "4:7: \"replaces\" is not supported: this version has one limit for each source; remove the field".into()),
        (format!("descriptors:\n  - key: destination_port\n    {good}\n"), "2:10: \"destination_port\" is not supported: this version has remote_address alone".into()),
        (format!("descriptors:\n  - key: header_match\n    {good}\n"), "2:10: \"header_match\" is not supported: it needs HTTP, and packets are judged before there is any; use remote_address".into()),
        (format!("descriptors:\n  - key: remote_adress\n    {good}\n"), "2:10: key: \"remote_adress\" is not known: did you mean \"remote_address\"?".into()),
        (format!("descriptors:\n  - value: 192.0.2.7\n    {good}\n"), "2:5: key is missing: write `key: remote_address`".into()),
        ("descriptors:\n  - key: remote_address\n".into(), "2:5: rate_limit is missing: write `rate_limit: {unit: second, requests_per_unit: 100}`".into()),
        (format!("descriptors:\n  - key: remote_address\n    value:\n    {good}\n"), "3:10: value has no value: give an address or prefix, or remove the line to limit every source".into()),
        (format!("descriptors:\n  - key: remote_address\n    value: 192.0.2.7/24\n    {good}\n"), "3:12: value: 192.0.2.7/24 has host bits set: write 192.0.2.0/24".into()),
        (format!("descriptors:\n  - key: remote_address\n    value: 2001:db8::1/128\n    {good}\n"), "3:12: value: 2001:db8::1/128 is longer than /64, and an IPv6 source is a /64: write 2001:db8::/64".into()),
        (format!("descriptors:\n  - key: remote_address\n    value: office\n    {good}\n"), "3:12: value: \"office\" is not an IP address or prefix: write one like 192.0.2.7, 192.0.2.0/24 or 2001:db8::/48".into()),
        (format!("descriptors:\n  - key: remote_address\n    value: 192.0.2.7\n    {good}\n  - key: remote_address\n    value: 192.0.2.7/32\n    {good}\n"), "5:5: a second rule for 192.0.2.7, the first is in line 2: keep one".into()),
        (format!("descriptors:\n  - key: remote_address\n    {good}\n  - key: remote_address\n    {good}\n"), "4:5: a second rule for every source, the first is in line 2: keep one".into()),
        (with_limit("unit: fortnight\n      requests_per_unit: 1"), "4:13: unit: \"fortnight\" is not known: use second, minute, hour, day, week".into()),
        (with_limit("unit: secnd\n      requests_per_unit: 1"), "4:13: unit: \"secnd\" is not known: did you mean \"second\"?".into()),
        (with_limit("requests_per_unit: 1"), "4:7: unit is missing: write second, minute, hour, day or week".into()),
        (with_limit("unit: second"), "4:7: requests_per_unit is missing: write a number, or `unlimited: true`".into()),
        (with_limit("unit: second\n      requests_per_unit: 0"), format!("5:26: requests_per_unit: \"0\" blocks the source for ever: {whole}")),
        (with_limit("unit: second\n      requests_per_unit: -3"), format!("5:26: requests_per_unit: \"-3\" is negative: {whole}")),
        (with_limit("unit: second\n      requests_per_unit: 1.5"), format!("5:26: requests_per_unit: \"1.5\" is not a whole number: {whole}")),
        (with_limit("unit: second\n      requests_per_unit: 18446744073709551616"), format!("5:26: requests_per_unit: \"18446744073709551616\" is too large: {whole}")),
        (with_limit("unit: second\n      requests_per_unit: 1\n      burst: 0"), format!("6:14: burst: \"0\" lets no packet pass: {whole}")),
        (with_limit("unit: second\n      requests_per_unit: 1\n      count: byte"), "6:14: count: \"byte\" is not known: did you mean \"bytes\"?".into()),
        (with_limit("unlimited: true\n      requests_per_unit: 1"), "5:26: requests_per_unit beside unlimited: remove one of the two".into()),
        (with_limit("unlimited: yes"), "4:18: neither true nor false: write one of them".into()),
        (with_limit("unit: second\n      unit: second"), "5:7: unit stands here twice: keep one".into()),
        ("domain: \"\"\n".into(), "1:9: domain has no value: name it, or remove the line".into()),
        ("domain: a\n---\ndomain: b\n".into(), "3:1: a second YAML document begins here: keep one".into()),
    ];
    let mut wrong = Vec::new();
    for (text, message) in table {
        let error = parse(&text).expect_err(&text);
        assert!(error.place.is_some(), "{error}");
        if error.to_string() != format!("r.yaml:{message}") {
            wrong.push(format!("{text}\n  got  {error}\n  want r.yaml:{message}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn what_is_not_yaml_is_refused_with_its_place() {
    for text in [
        "descriptors: [",
        "domain: b: c\n",
        "domain:\n\t- x\n",
        "- 1\n",
        "just text\n",
        "descriptors: 5\n",
        "domain: [a]\n",
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.to_string().starts_with("r.yaml:"), "{error}");
        assert!(error.place.is_some(), "{text:?}: {error}");
        assert!(matches!(error.problem, Problem::Yaml(_)), "{text:?}: {error}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_named() {
    let error = RuleFile::parse("r.yaml", b"domain: a\n# \xc3\xa4 \xff\n", 1522).unwrap_err();
    assert_eq!(error.to_string(), "r.yaml:2:5: byte 15 is not UTF-8: save the file as UTF-8");
}

#[test]
fn files_over_16_mib_are_refused() {
    let bytes = vec![b'#'; 1 + (16 << 20)];
    let error = RuleFile::parse("r.yaml", &bytes, 1522).unwrap_err();
    assert_eq!(
        error.to_string(),
        "r.yaml: the file is larger than 16 MiB: use prefixes instead of single addresses"
    );
}

#[test]
fn one_anchored_limit_serves_many_rules() {
    let rule = |n: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + n);
        let limit = if n == 0 { "&all {unit: day, requests_per_unit: 5}" } else { "*all" };
        format!("  - {{key: remote_address, value: {address}, rate_limit: {limit}}}\n")
    };
    let text = format!("descriptors:\n{}", (0..2_000).map(rule).collect::<String>());
    let rules = parse(&text).unwrap().rules.rules;
    assert_eq!(rules.len(), 2_000);
    assert!(rules.iter().all(|rule| rule.action == rules[0].action));
}

#[test]
fn aliases_cannot_multiply_a_file() {
    let level = |n: u32| {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        format!("  - &a{n} [{aliases}]\n")
    };
    let text = format!(
        "descriptors:\n  - &a0 [x, x, x, x, x, x, x, x, x, x]\n{}",
        (1..12).map(level).collect::<String>()
    );
    let error = parse(&text).unwrap_err();
    assert!(matches!(error.problem, Problem::Yaml(_)), "{error}");
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let limit =
        (any::<bool>(), 1u64.., 0usize..5, 1u64..).prop_map(|(bytes, rate, unit, burst)| {
            let count = if bytes { Count::Bytes } else { Count::Packets };
            Action::Limit(RateLimit {
                count,
                requests_per_unit: rate,
                unit: Unit::ALL[unit],
                burst,
            })
        });
    let action =
        prop_oneof![limit.clone(), limit.prop_map(Action::shadowed), Just(Action::Unlimited),];
    let selector =
        prop_oneof![Just(Selector::Every), any::<std::net::IpAddr>().prop_map(Selector::address)];
    // Names with everything that YAML or JSON could trip over, but for what no YAML file may hold.
    let name = proptest::option::of("[ -~äß€\\n\\t]{1,12}");
    (name, selector, action).prop_map(|(name, selector, action)| Rule { name, selector, action })
}

proptest! {
    #[test]
    fn what_is_rendered_is_read_back(rule in any_rule()) {
        let text = render("cli", &[&rule], 1522).unwrap();
        let file = RuleFile::parse("edits.json", text.as_bytes(), 1522).unwrap();
        prop_assert_eq!(file.rules.rules, [rule]);
    }

    #[test]
    fn any_bytes_are_answered(bytes: Vec<u8>) {
        drop(RuleFile::parse("r.yaml", &bytes, 1522));
    }
}
