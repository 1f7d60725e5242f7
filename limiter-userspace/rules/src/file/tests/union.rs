//! Several files are one rule set, or an error that names both places.

use super::*;

const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 5}";

fn unite(files: &[(&str, &str)]) -> Result<RuleFiles, RuleFileError> {
    let parsed = files.iter().map(|(name, text)| {
        ((*name).to_owned(), RuleFile::parse(name, text.as_bytes(), 1522).unwrap())
    });
    RuleFiles::unite(parsed)
}

fn refused(files: &[(&str, &str)]) -> String {
    unite(files).unwrap_err().to_string()
}

#[test]
fn the_union_has_all_rules_and_their_places() {
    let all = format!("domain: x\ndescriptors:\n  - {{key: remote_address, {LIMIT}}}\n");
    let port = format!("domain: x\ndescriptors:\n  - {{key: destination_port, {LIMIT}}}\n");
    let union = unite(&[("a.yaml", &all), ("b.yaml", &port)]).unwrap();
    assert_eq!(union.domain.as_deref(), Some("x"));
    assert_eq!(union.rules.rules.len(), 2);
    let place = &union.places[&Subject::Rule(union.rules.rules[1].path.clone())];
    assert_eq!(place.to_string(), "b.yaml:3:5");
}

#[test]
fn one_file_is_what_it_was_alone() {
    let text = format!(
        "replies: {{unit: second, requests_per_unit: 9}}\nbudgets: [{{name: a, \
         {LIMIT}}}]\ndescriptors:\n  - {{key: remote_address, budget: a}}\n"
    );
    let alone = parse(&text).unwrap();
    let union = unite(&[("r.yaml", &text)]).unwrap();
    assert_eq!(union.rules, alone.rules);
    let places: Vec<_> = union.places.iter().map(|(s, at)| (s.clone(), at.place)).collect();
    assert_eq!(places, alone.places.into_iter().collect::<Vec<_>>());
}

#[test]
fn the_same_rule_in_two_files_names_both_places() {
    let rule = |value| format!("descriptors:\n  - {{key: remote_address{value}, {LIMIT}}}\n");
    assert_eq!(
        refused(&[("a.yaml", &rule("")), ("b.yaml", &format!("# first\n{}", rule("")))]),
        "b.yaml:3:5: a second rule for every source, the first is in a.yaml:2:5: put the limits of both under `rate_limits` of one, or keep one"
    );
    let keyed = format!("descriptors: [{{key: vlan, value: 7, {LIMIT}}}]\n");
    assert_eq!(
        refused(&[("a.yaml", &keyed), ("c.yaml", &rule("")), ("b.yaml", &keyed)]),
        "b.yaml:1:15: a second rule for vlan=7, the first is in a.yaml:1:15: put the limits of both under `rate_limits` of one, or keep one"
    );
    unite(&[("a.yaml", &rule("")), ("b.yaml", &rule(", value: 192.0.2.1"))]).unwrap();
}

#[test]
fn what_belongs_to_a_file_may_be_repeated_but_not_differ() {
    for (one, other, at, what) in [
        ("domain: a", "domain: b", "1:9", "domain \"b\""),
        (
            "replies: {unit: second, requests_per_unit: 5}",
            "replies: {unit: second, requests_per_unit: 6}",
            "1:10",
            "replies",
        ),
        (
            "bans: {unit: second, requests_per_unit: 5}",
            "bans: {unit: minute, requests_per_unit: 5}",
            "1:7",
            "bans",
        ),
        (
            "budgets: [{name: a, rate_limit: {unit: second, requests_per_unit: 5}}]",
            "budgets: [{name: a, rate_limit: {unit: second, requests_per_unit: 6}}]",
            "1:11",
            "budget a",
        ),
        (
            "deny: [192.0.2.7]",
            "deny: [{address: 192.0.2.7, reason: x}]",
            "1:8",
            "list entry 192.0.2.7",
        ),
    ] {
        let (one, other) =
            (&format!("{one}\ndescriptors: []\n"), &format!("{other}\ndescriptors: []\n"));
        assert_eq!(unite(&[("a", one), ("b", one)]).unwrap().rules, parse(one).unwrap().rules);
        assert_eq!(
            refused(&[("a", one), ("b", "descriptors: []\n"), ("c", other)]),
            format!(
                "c:{at}: {what} is another one than in a:{at}: write it once, or the same in both"
            )
        );
    }
}

#[test]
fn files_without_a_rule_in_any_say_so() {
    let budgets = "budgets: [{name: a, rate_limit: {unit: second, requests_per_unit: 5}}]\n";
    let none = "descriptors: []\n";
    let rules = "descriptors: [{key: vlan, rate_limit: {unit: second, requests_per_unit: 5}}]\n";
    for good in [
        &[none][..],
        &[budgets, none],
        &[none, rules],
        &[budgets, rules],
        &[rules, none, none],
        &["martians: drop\n"],
    ] {
        let named: Vec<_> = good.iter().map(|text| ("r", *text)).collect();
        unite(&named).unwrap_or_else(|error| panic!("{good:?}: {error}"));
    }
    for bad in [&[budgets][..], &[budgets, budgets], &["martians: charge\n"]] {
        let named: Vec<_> = bad.iter().map(|text| ("r", *text)).collect();
        assert_eq!(
            refused(&named),
            "r:1:1: no rules are in the file, and so nobody would be limited: write them, or \
             `descriptors: []` if none are meant"
        );
    }
    // One file of several that was emptied takes its rules with it.
    let error = RuleFile::parse("b", b"", 1522).unwrap_err();
    assert!(error.to_string().starts_with("b:1:1: no rules are in the file"), "{error}");
}
