//! Rule sets that do not fit.

use std::fmt::Write as _;

use super::*;
use crate::Subject;

fn refused(text: &str) -> String {
    Maps::default().plan(&parse(text)).unwrap_err().to_string()
}

fn rule(path: &str, rest: &str) -> String {
    let mut text = String::new();
    let keys: Vec<&str> = path.split_whitespace().collect();
    for key in &keys {
        let (key, value) = key.split_once('=').unwrap_or((key, ""));
        let value = if value.is_empty() { String::new() } else { format!(", value: {value}") };
        write!(text, "{{key: {key}{value}, descriptors: [").unwrap();
    }
    let end = text.rfind(", descriptors: [").unwrap();
    text.truncate(end);
    write!(text, ", {rest}").unwrap();
    text.push('}');
    text.push_str(&"]}".repeat(keys.len() - 1));
    format!("  - {text}\n")
}

#[test]
fn the_ninth_table_is_named() {
    let keys = ["vlan", "dscp", "protocol", "tcp_flags", "interface", "destination_port"];
    let mut text = "descriptors:\n".to_owned();
    for key in keys {
        text.push_str(&rule(key, LIMIT));
    }
    text.push_str(&rule("vlan dscp", LIMIT));
    text.push_str(&rule("vlan protocol", LIMIT));
    Maps::default().plan(&parse(&text)).unwrap();
    text.push_str(&rule("dscp=7 protocol", LIMIT));
    assert_eq!(
        refused(&text),
        "rule for dscp=7 protocol has another list of keys than the 8 tables before it: use the \
         keys of one of those, and mind that rules with several limits on remote_address take a \
         table"
    );
    // Source rules of more than a token bucket are a table, too.
    let text = text.replace(
        "dscp, value: 7, descriptors: [{key: protocol",
        "remote_address, descriptors: [{key: dscp",
    );
    let several = text.replace(
        "descriptors:\n  -",
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 1, \
         count: syns}}\n  -",
    );
    assert!(refused(&several).contains("than the 8 tables before it"));
}

#[test]
fn the_seventeenth_shape_is_named() {
    let mut text = "descriptors:\n".to_owned();
    for length in 1..=16 {
        text.push_str(&rule(&format!("destination_address=0.0.0.0/{length} vlan"), LIMIT));
    }
    Maps::default().plan(&parse(&text)).unwrap();
    text.push_str(&rule("destination_address=0.0.0.0/17 vlan", LIMIT));
    assert!(
        refused(&text).starts_with(
            "rule for destination_address=0.0.0.0/17 vlan has values for other keys, or another \
             length of destination prefix, than the 16 combinations before it"
        ),
        "{}",
        refused(&text)
    );
}

#[test]
fn one_order_of_keys() {
    let text = format!("descriptors:\n{}{}", rule("vlan=1 dscp", LIMIT), rule("dscp vlan", LIMIT));
    assert_eq!(
        refused(&text),
        "rule for dscp vlan has the keys of the rule for vlan=1 dscp in another order: use one \
         order"
    );
}

#[test]
fn names_must_be_there() {
    for (rest, message) in [
        ("budget: nobody", "rule for vlan: there is no budget \"nobody\""),
        ("ACTION {class: nobody}", "rule for vlan: there is no budget \"nobody\""),
        ("ACTION {interface: wlan0}", "rule for vlan: there is no interface \"wlan0\""),
        ("ACTION {cpu: 4}", "rule for vlan: there is no CPU 4: this machine has 4"),
    ] {
        let rest = rest.replace("ACTION", &format!("{LIMIT}, action:"));
        let error = refused(&format!("descriptors:\n{}", rule("vlan", &rest)));
        assert!(error.starts_with(message), "{error}");
    }
    let error = refused(&format!("descriptors:\n{}", rule("interface=wlan0", LIMIT)));
    assert!(
        error.starts_with("rule for interface=wlan0: there is no interface \"wlan0\""),
        "{error}"
    );
    // Two names of one interface.
    let twice = format!(
        "descriptors:\n{}{}",
        rule("interface=eth1", LIMIT),
        rule("interface=eth01", LIMIT)
    );
    assert_eq!(refused(&twice), "rule for interface=eth01 stands there twice: keep one");
}

#[test]
fn a_class_has_no_class() {
    let text = format!(
        "budgets:
  - {{name: a, {LIMIT}, action: {{class: b}}}}
  - {{name: b, {LIMIT}, action: {{class: a}}}}
descriptors:
{}",
        rule("vlan", "budget: a")
    );
    assert_eq!(
        refused(&text),
        "budget a: the class b has a class of its own: give that budget another action"
    );
}

#[test]
fn bad_limits_are_named_by_number() {
    let limits = |limits: &str| {
        refused(&format!("descriptors:\n{}", rule("vlan", &format!("rate_limits: [{limits}]"))))
    };
    let one = "{unit: second, requests_per_unit: 1}";
    let log = "{unit: second, requests_per_unit: 20, algorithm: sliding_log}";
    for (text, message) in [
        (
            format!("{one}, {{unit: second, requests_per_unit: 400000000}}"),
            "rule for vlan, limit 2: 400000000/s is faster than can be held to 1 %: the fastest \
             is 320M/s",
        ),
        (
            format!("{one}, {log}, {log}"),
            "rule for vlan, limit 3: needs 21 of the 32 words of a key, and the limits before it \
             leave 10: use sliding slots, a smaller log, or fewer limits",
        ),
        (
            log.replace("20", "32"),
            "rule for vlan: 32/s needs more than the 31 stamps of a log: use sliding slots or a \
             token bucket",
        ),
        (
            log.replace("20,", "20, count: bytes,"),
            "rule for vlan: 20B/s: a log keeps packets, not bytes",
        ),
        (
            [one; 5].join(", "),
            "rule for vlan, limit 5: 5 limits: a rule has at most 4, and a ceiling, peak or \
             excess counts as one",
        ),
        (
            "{unit: second, requests_per_unit: 9, ceiling: {unit: second, requests_per_unit: 8}}"
                .into(),
            "rule for vlan: the upper rate 8/s is below the lower one, 9/s",
        ),
        (
            "{unit: second, requests_per_unit: 1, algorithm: fixed_window, peak: {unit: second, \
             requests_per_unit: 8}}"
                .into(),
            "rule for vlan: peak needs a token bucket below it: use ceiling, or remove the \
             algorithm",
        ),
        (
            format!(
                "{{unit: second, requests_per_unit: 1, ceiling: {one}}}, {{unit: second, \
                 requests_per_unit: 1, ceiling: {one}, mark: {{ecn: true}}}}"
            ),
            "rule for vlan, limit 2: marks another way than the limit before it",
        ),
        (
            "{unit: second, requests_per_unit: 5, algorithm: fixed_window, count: bytes}".into(),
            "rule for vlan: 5B/s lets no frame pass in its window: give at least 1522",
        ),
    ] {
        let error = limits(&text);
        assert!(error.starts_with(message), "{error}\n{message}");
    }
}

#[test]
fn too_many_rules_say_what_would_do() {
    let list: Vec<String> = (0..CAPACITY).map(|vlan| vlan.to_string()).collect();
    let text = format!("descriptors:\n  - {{key: vlan, value: [{}], {LIMIT}}}\n", list.join(", "));
    assert_eq!(
        refused(&text),
        "1024 rules do not fit beside the 0 in force: start the daemon with --max-rules 2064"
    );
}

#[test]
fn too_many_budgets_and_actions_are_reported() {
    let mut text = "budgets:\n".to_owned();
    let mut rules = "descriptors:\n".to_owned();
    for index in 0..=MAX_BUDGETS {
        writeln!(text, "  - {{name: b{index}, {LIMIT}}}").unwrap();
        rules.push_str(&rule(&format!("vlan={index}"), &format!("budget: b{index}")));
    }
    let set = parse(&(text + &rules));
    let error = Installed::default().plan(&set, 1, 1 << 15, &environment()).unwrap_err();
    let full = PlaceError::TooManyBudgets(Subject::Budget("b1024".into()));
    assert_eq!(error, PlanError::Place(full));

    let mut rules = "descriptors:\n".to_owned();
    for index in 1..=256 {
        let ban = format!("{LIMIT}, action: {{ban: {{strikes: {index}}}}}");
        rules.push_str(&rule(&format!("vlan={index}"), &ban));
    }
    assert_eq!(
        refused(&rules),
        "rule for vlan=256: there is room for 255 different actions, with those being replaced: \
         use fewer"
    );
}
