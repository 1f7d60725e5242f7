//! Rules of nft that another translation would have changed in silence.

use super::*;

const OVER: &str = r#"{"limit": {"rate": 10, "per": "second", "burst": 9, "inv": true}}"#;
const DROP: &str = r#"{"drop": null}"#;
const SOURCE: &str = r#"{"payload": {"protocol": "ip", "field": "saddr"}}"#;

/// Objects and rules of a table `inet f`, in a chain of a hook.
fn of(hook: &str, objects: &[&str], rules: &[&str]) -> Imported {
    let mut all = vec![format!(
        r#"{{"chain": {{"family": "inet", "table": "f", "name": "c", "type": "filter",
            "hook": "{hook}", "prio": 0, "policy": "accept"}}}}"#
    )];
    all.extend(objects.iter().map(ToString::to_string));
    for (index, rule) in rules.iter().enumerate() {
        all.push(format!(
            r#"{{"rule": {{"family": "inet", "table": "f", "chain": "c", "handle": {},
                "expr": [{rule}]}}}}"#,
            index + 1
        ));
    }
    imported(Format::Nft, &format!(r#"{{"nftables": [{}]}}"#, all.join(", ")))
}

fn set(name: &str, more: &str) -> String {
    format!(
        r#"{{"set": {{"family": "inet", "name": "{name}", "table": "f", "type": "ipv4_addr",
            {more}}}}}"#
    )
}

fn add(op: &str, set: &str) -> String {
    format!(r#"{{"set": {{"op": "{op}", "elem": {SOURCE}, "set": "@{set}"}}}}"#)
}

fn add_limit(op: &str, set: &str) -> String {
    format!(r#"{{"set": {{"op": "{op}", "elem": {SOURCE}, "set": "@{set}", "stmt": [{OVER}]}}}}"#)
}

fn is_in(set: &str) -> String {
    format!(r#"{{"match": {{"op": "==", "left": {SOURCE}, "right": "@{set}"}}}}"#)
}

fn letters(imported: &Imported) -> String {
    let last = imported.rules.last().expect("a rule");
    assert_eq!(last.outcome, Outcome::Translated, "{}", imported.text);
    last.differences.iter().filter_map(|one| one.chars().next()).collect()
}

#[test]
fn a_set_with_a_limit_limits_what_is_added_and_what_is_looked_up() {
    let limited = set("s", &format!(r#""stmt": [{OVER}]"#));
    let made = of("input", &[&limited], &[&format!("{}, {DROP}", add("add", "s"))]);
    assert_eq!(rules(&made), ["0.0.0.0/0: 10/s burst 9"]);
    let held = set(
        "s",
        &format!(r#""elem": [{{"elem": {{"val": "192.0.2.9", {}}}}}]"#, &OVER[1..OVER.len() - 1]),
    );
    for object in [&held, &set("s", &format!(r#""elem": ["192.0.2.9"], "stmt": [{OVER}]"#))] {
        let made = of("input", &[object], &[&format!("{}, {DROP}", is_in("s"))]);
        assert!(refusal(&made).contains("limits of their own"), "{}", made.text);
    }
    let counted = set("s", r#""elem": ["192.0.2.9"], "stmt": [{"counter": null}]"#);
    let made = of("input", &[&counted], &[&format!("{}, {DROP}", is_in("s"))]);
    assert!(made.text.contains("\ndeny:\n  - 192.0.2.9\n"), "{}", made.text);
}

#[test]
fn elements_that_leave_after_a_time_are_reported() {
    let timed = set("t", r#""timeout": 60"#);
    let rule = |op: &str| of("input", &[&timed], &[&format!("{}, {DROP}", add_limit(op, "t"))]);
    // Added, an element leaves after its time, however busy its source is.
    assert!(letters(&rule("add")).contains('K'));
    assert!(!letters(&rule("update")).contains('K'));
    let short = set("t", r#""timeout": 1"#);
    let slow = OVER.replace("second", "hour");
    let slow = add_limit("update", "t").replace(OVER, &slow);
    assert!(letters(&of("input", &[&short], &[&format!("{slow}, {DROP}")])).contains('K'));

    let guests =
        set("g", r#""elem": [{"elem": {"val": "192.0.2.1", "timeout": 60, "expires": 9}}]"#);
    let accepted = format!(r#"{}, {{"accept": null}}"#, is_in("g"));
    let made = of("input", &[&guests], &[&accepted, &format!("{OVER}, {DROP}")]);
    assert!(refusal(&made).contains("accepts sources for a time"), "{}", made.text);
    let made = of("input", &[&guests], &[&format!("{}, {OVER}, {DROP}", is_in("g"))]);
    assert!(refusal(&made).contains("sources for a time"), "{}", made.text);
    let not = is_in("g").replace("==", "!=");
    let made = of("input", &[&guests], &[&format!("{not}, {OVER}, {DROP}")]);
    assert!(refusal(&made).contains("elements for a time"), "{}", made.text);
    let made = of("input", &[&guests], &[&format!("{}, {DROP}", is_in("g"))]);
    assert!(made.text.contains("limiter deny --for 9s 192.0.2.1"), "{}", made.text);
}

#[test]
fn a_set_that_others_change_and_a_limit_that_others_charge() {
    let plain = set("s", r#""size": 9"#);
    let limit = format!("{}, {DROP}", add_limit("add", "s"));
    let made = of("input", &[&plain], &[&add("delete", "s"), &limit]);
    assert!(refusal(&made).contains("another rule uses the set s"), "{}", made.text);
    let named = r#"{"limit": {"family": "inet", "name": "L", "table": "f", "rate": 10,
        "per": "second", "burst": 9, "inv": true}}"#;
    let on = |protocol: &str, port: u16| {
        format!(
            r#"{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "{protocol}",
                "field": "dport"}}}}, "right": {port}}}}}, {{"limit": "L"}}, {DROP}"#
        )
    };
    let made = of("input", &[named], &[&on("tcp", 22), &on("udp", 53)]);
    assert_eq!(made.translated, 2, "{}", made.text);
    let all = format!(r#"{{"limit": "L"}}, {DROP}"#);
    let made = of("input", &[named], &[&on("tcp", 22), &all]);
    assert!(refusal(&made).contains("charges the same limit"), "{}", made.text);
}

#[test]
fn a_limit_on_what_others_ask_for_is_no_log() {
    for (statement, outcome) in [
        (add("add", "banned"), Outcome::NotTranslated),
        (
            r#"{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}"#.to_owned(),
            Outcome::NotTranslated,
        ),
        (r#"{"log": {"prefix": "x"}}"#.to_owned(), Outcome::Left),
    ] {
        let made =
            of("input", &[&set("banned", r#""size": 9"#)], &[&format!("{OVER}, {statement}")]);
        assert_eq!(made.rules[0].outcome, outcome, "{}", made.text);
    }
}

#[test]
fn full_sets_let_pass_or_drop_as_the_rule_says() {
    let within = add_limit("add", "s").replace(", \"inv\": true", "");
    let rules = [format!(r#"{within}, {{"accept": null}}"#), DROP.to_owned()];
    let made = of("input", &[], &[&rules[0], &rules[1]]);
    let output = made.rules[0].differences.iter().find(|one| one.starts_with("L: ")).unwrap();
    assert!(output.contains("over the limit"), "{output}");
}

#[test]
fn chains_that_are_off_elsewhere_or_passed_by() {
    let limit = format!("{OVER}, {DROP}");
    let dormant = r#"{"table": {"family": "inet", "name": "f", "flags": "d"}}"#;
    let made = of("input", &[dormant], &[&limit]);
    assert!(refusal(&made).contains("no chain with a hook"), "{}", made.text);
    assert!(made.text.contains("the table inet f is dormant"), "{}", made.text);
    let made = of("ingress", &[], &[&limit]);
    assert!(refusal(&made).contains("the device of its chain is not in the text"));
    let flow = r#"{"flow": {"op": "add", "flowtable": "@ft"}}"#;
    for (hook, held) in [("forward", false), ("input", true)] {
        let made = of(hook, &[], &[flow, &limit]);
        assert_eq!(made.translated == 1, held, "{}", made.text);
    }
    let notrack = r#"{"notrack": null}"#;
    let established = r#"{"match": {"op": "in", "left": {"ct": {"key": "state"}},
        "right": ["established", "related"]}}, {"accept": null}"#;
    let made = of("input", &[], &[notrack, established, &limit]);
    assert!(refusal(&made).contains("out of connection tracking"), "{}", made.text);
}
