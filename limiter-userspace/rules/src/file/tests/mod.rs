//! Good files, and what is no file at all.

mod actions;
mod bad;
mod delay;
mod direction;
mod documented;
mod envoy;
mod fields;
mod good;
mod lists;
mod numbers;
mod round_trip;
mod schema;
mod sharing;
mod union;
mod written;

use limiter_common::wire::Count;
use proptest::prelude::*;

use super::*;
use crate::model::{Limits, Path, Period, Quota, Rule, RuleSet, Selector, Subject, Terms, Unit};
use crate::source_text;

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
        Terms::from(Quota::new(count, requests_per_unit, Period::one(unit)).with_burst(burst))
    };
    let rule = |name: Option<&str>, value: &str, terms| {
        let path = Path::of_source(&source_text::parse(value).unwrap());
        Rule { name: name.map(Box::from), ..Rule::new(path, terms) }
    };
    let terms = limit(Count::Packets, 100, Unit::Second, 20);
    let every = Rule::new(Path::of_source(&Selector::Every), terms);
    let counted = Quota::new(Count::Packets, 7, Period::one(Unit::Second)).with_burst(7);
    let counted = Limits { shadow: true, ..Limits::new(counted) };
    let wanted = vec![
        every,
        rule(Some("office"), "192.0.2.0/24", limit(Count::Bytes, 125_000, Unit::Second, 30_000)),
        rule(None, "192.0.2.7", Terms::Unlimited),
        rule(None, "2001:db8::/64", limit(Count::Packets, 5, Unit::Day, 5)),
        rule(None, "198.51.100.0/24", counted.into()),
    ];
    assert_eq!(file.rules, RuleSet::of(wanted.clone()));
    assert_eq!(file.places[&Subject::Rule(wanted[2].path.clone())], Place { line: 8, column: 5 });
}

#[test]
fn a_file_with_nothing_in_it_is_refused() {
    let nothing = "no rules are in the file, and so nobody would be limited: write them, or \
                   `descriptors: []` if none are meant";
    for text in [
        "",
        " ",
        "\n# nothing\n",
        "---\n",
        "---\n...\n",
        "null\n",
        "~\n",
        "{}\n",
        "\u{feff}",
        "domain: x\n",
        "domain: x\nbudgets: []\n",
        "budgets:\n",
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.to_string(), format!("r.yaml:1:1: {nothing}"), "{text:?}");
    }
    for (text, place) in [
        ("descriptors:\n", "1:12"),
        ("domain: x\ndescriptors:\n  # - key: remote_address\n", "2:12"),
        ("martians: drop\ndescriptors: null\n", "2:14"),
    ] {
        let error = parse(text).expect_err(text);
        let what =
            "descriptors has no value: write the rules, or `descriptors: []` if none are meant";
        assert_eq!(error.to_string(), format!("r.yaml:{place}: {what}"), "{text:?}");
    }
}

#[test]
fn a_file_may_say_that_it_has_no_rules() {
    for text in ["descriptors: []\n", "domain: x\ndescriptors: []\n", "{\"descriptors\": []}"] {
        let file = parse(text).unwrap();
        assert!(file.rules == RuleSet::default() && file.no_rules_meant, "{text:?}");
        assert!(RuleFiles::unite([("r.yaml".to_owned(), file)]).is_ok());
    }
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

/// Mistakes that people make have words of their own, not those of the YAML reader.
#[test]
fn mistakes_of_yaml_are_said_in_plain_words() {
    for (text, wanted) in [
        ("descriptors:\n  - key: vlan\n\tvalue: 1\n", "2:10: a tab stands here: indent"),
        ("descriptors:\n  - key: vlan\n   value: 1\n", "3:4: the indentation of this line fits"),
        ("descriptors:\n- key: vlan\n value: 1\n", "3:2: the indentation of this line fits"),
        ("descriptors: [{key: vlan}\n", "1:14: the bracket that begins here is not closed"),
        ("descriptors: [{key: vlan]}\n", "1:15: this bracket does not close"),
        ("descriptors:\n- key: \"vlan\n  value: 1\n", "3:3: the quotes before this"),
        ("descriptors:\n- key: @vlan\n", "2:8: no value begins with this character"),
        ("descriptors:\n- key: vlan\n  value: *x\n", "3:10: `*` stands for a value that"),
        ("descriptors:\n- key: vlan\n  value: 1: 2\n", "3:11: a second `: ` in one line"),
        ("descriptors:\n- key: vlan\n  value\n  x: 1\n", "3:3: a field wants a `: ` behind"),
    ] {
        let said = parse(text).expect_err(text).to_string();
        let said = said.strip_prefix("r.yaml:").unwrap_or(&said);
        assert!(said.starts_with(wanted), "{text}{said}");
    }
    for (value, wanted) in [
        ("ssh", "write its number, 22"),
        ("[ssh, http]", "write its number, 22"),
        ("\"ssh,HTTPS\"", "write a list, [22, 443]"),
        ("sshd", "give a whole number from 0 to 65535, or a range as in 80-90"),
    ] {
        let text = format!("descriptors: [{{key: destination_port, value: {value}}}]\n");
        let said = parse(&text).unwrap_err().to_string();
        assert!(said.ends_with(wanted), "{value}: {said}");
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
    assert!(rules.iter().all(|rule| rule.terms == rules[0].terms));
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

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes: Vec<u8>) {
        drop(RuleFile::parse("r.yaml", &bytes, 1522));
    }
}
