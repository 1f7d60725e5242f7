//! Rules whose packets wait: what is refused, and what their sentence says.

use super::direction::{compiled, compiled_for};
use super::fields::refused;
use super::*;
use crate::model::rule_sentence;

/// A file of one rule, with its other fields.
fn rule(direction: &str, rate_limit: &str, fields: &str) -> String {
    format!(
        "descriptors: [{{key: remote_address, direction: {direction}, rate_limit: {{{rate_limit}}}, \
         {fields}}}]\n"
    )
}

const RATE: &str = "rate: 100/s, burst: 5";

#[test]
fn a_wait_is_whole_milliseconds_up_to_two_seconds() {
    for longest in ["0s", "1500us", "2001ms", "30s", "200", "soon"] {
        let text = rule("out", RATE, &format!("action: {{delay: {{longest: {longest}}}}}"));
        let error = parse(&text).unwrap_err().to_string();
        let expected = format!(
            "\"longest: {longest}\" is not supported: a wait is a whole number of milliseconds from 1ms \
             to 2s, like 200ms"
        );
        assert!(error.ends_with(&expected), "{error}");
    }
    for longest in ["1ms", "200ms", "2s"] {
        let text = rule("out", RATE, &format!("action: {{delay: {{longest: {longest}}}}}"));
        assert_eq!(compiled(&text), Ok(()));
    }
    refused(&[
        (
            rule("out", RATE, "action: delay"),
            "1:98: action: delay needs more than its name: write it as in `action: {delay: \
             {longest: 200ms}}`",
        ),
        (
            rule("out", RATE, "action: {delay: {ecn: true}}"),
            "1:106: delay has no value: write `longest: 200ms` in it",
        ),
    ]);
}

#[test]
fn what_comes_in_waits_at_tc_alone_and_only_where_the_limit_says_how_long() {
    let delay = "action: {delay: {longest: 200ms}}";
    let rule_is = |direction: &str| match direction {
        "in" => "rule for every source".to_owned(),
        other => format!("rule for direction={other} remote_address"),
    };
    for direction in ["in", "both"] {
        let errors = compiled(&rule(direction, RATE, delay)).unwrap_err();
        assert_eq!(
            errors,
            [format!(
                "{}: action: delay is not for `direction: {direction}` at XDP, where no packet can \
                 wait: start the daemon with --hook tc, or write `direction: out`, or `action: \
                 drop`",
                rule_is(direction)
            )]
        );
        assert_eq!(compiled_for(&rule(direction, RATE, delay), true), Ok(()));
        // Over a budget, and over the budget of a class.
        for charged in ["budget: later", "rate_limit: {rate: 5/s}, action: {class: later}"] {
            let text = format!(
                "budgets: [{{name: later, rate_limit: {{rate: 9/s}}, {delay}}}]\ndescriptors: \
                 [{{key: vlan, direction: {direction}, {charged}}}]\n"
            );
            let errors = compiled(&text).unwrap_err().join("\n");
            assert!(errors.contains("action: delay of the budget later"), "{errors}");
            let out = text.replace(&format!("direction: {direction}"), "direction: out");
            assert_eq!(compiled(&out), Ok(()));
        }
    }
    for (limit, words) in [
        ("rate: 100/s, algorithm: fixed_window", "fixed_window does not"),
        ("rate: 100/s, burst: 5, ceiling: {rate: 200/s}", "ceiling lets packets over the limit"),
    ] {
        let errors = compiled(&rule("out", limit, delay)).unwrap_err().join("\n");
        assert!(errors.contains(words), "{errors}");
    }
    let shared = format!("scope: cluster, {delay}");
    let errors = compiled(&rule("out", "rate: 100/s, burst: 500", &shared)).unwrap_err().join("\n");
    assert!(errors.contains("nodes cannot share it, because packets over it wait"), "{errors}");
}

#[test]
fn the_sentence_says_how_long_packets_wait() {
    let said = |fields: &str| {
        let file = parse(&rule("out", RATE, fields)).unwrap();
        rule_sentence(&file.rules.rules[0], &file.rules)
    };
    let waits = said("action: {delay: {longest: 200ms}}");
    assert!(waits.ends_with("; more waits up to 200 ms, and then is dropped"), "{waits}");
    let would = said("action: {delay: {longest: 1s}}, shadow_mode: true");
    assert!(would.contains("more would wait up to 1 s, and then be dropped"), "{would}");
}
