//! Refusals of actions and budgets, and their exact words.

use super::fields::{LIMIT, refused, with};

fn acting(action: &str) -> String {
    with(&format!("rate_limit: {{unit: second, requests_per_unit: 1}}, action: {action}"))
}

#[test]
fn actions_refuse_what_they_cannot_be() {
    refused(&[
        (acting("rejct"), "2:75: action: \"rejct\" is not known: did you mean \"reject\"?"),
        (
            acting("ban"),
            "2:75: action: ban needs more than its name: write it as in `action: {ban: {first: \
             10min}}`",
        ),
        (
            acting("{ban: 10m}"),
            "2:81: ban: \"10m\" is not enough: write its fields, as in `ban: {first: 10min}`",
        ),
        (
            acting("{mark: 12}"),
            "2:82: mark: \"12\" is not enough: write its fields, as in `mark: {dscp: 10}`",
        ),
        (
            acting(""),
            "2:73: action has no value: write drop, reject, or one of mark, class, interface, cpu \
             and ban in braces",
        ),
        (
            acting("{}"),
            "2:75: action has no value: write drop, reject, or one of mark, class, interface, cpu \
             and ban in braces",
        ),
        (acting("{class: a, cpu: 1}"), "2:91: cpu beside class: remove one of the two"),
        (
            acting("{queue: a}"),
            "2:76: \"queue\" is not supported: payloads of requests can wait in a queue, and packets \
             wait by `action: {delay: {longest: 200ms}}`: write that, or remove the field",
        ),
        (acting("{clas: a}"), "2:76: unknown field \"clas\": did you mean \"class\"?"),
        (acting("{class: }"), "2:81: class has no value: name a budget"),
        (
            acting("{cpu: first}"),
            "2:81: cpu: \"first\" does not fit: give a whole number from 0 to 4294967295",
        ),
        (
            acting("{mark: {dscp: fast}}"),
            "2:89: dscp: \"fast\" is not known: use cs0, le, cs1, af11, af12, af13, cs2, af21, \
             af22, af23, cs3, af31, af32, af33, cs4, af41, af42, af43, cs5, va, ef, cs6, cs7",
        ),
        (
            acting("{ban: {first: 10ms}}"),
            "2:89: first: \"10ms\" is too short: it is at least 1s: write one like 5s, \
             1min, 2h or 1day",
        ),
        (
            acting("{ban: {first: 2h, longest: 1h}}"),
            "2:102: longest: \"1h\" is shorter than the first ban: write one like 5s, \
             1min, 2h or 1day",
        ),
        (
            acting("{ban: {first: 2days}}"),
            "2:89: longest: \"1day\" is shorter than the first ban: write one like 5s, \
             1min, 2h or 1day",
        ),
        (
            acting("{ban: {strikes: 0}}"),
            "2:91: strikes: \"0\" does not fit: give a whole number from 1 to 65535",
        ),
        (
            acting("{ban: {strikes: 65536}}"),
            "2:91: strikes: \"65536\" does not fit: give a whole number from 1 to 65535",
        ),
        (
            acting("{ban: {evidence: some}}"),
            "2:92: evidence: \"some\" is not known: use established, none",
        ),
        (
            acting("[drop]"),
            "2:67: not a rule file: invalid type: sequence, expected a word or a map",
        ),
    ]);
}

#[test]
fn budgets_refuse_what_they_cannot_be() {
    refused(&[
        (format!("budgets: [{{{LIMIT}}}]\n"), "1:11: name is missing: name the budget"),
        (
            format!("budgets: [{{name: limiter:x, {LIMIT}}}]\n"),
            "1:18: \"limiter:x\" is a name of limiter's own: use another",
        ),
        (
            format!("budgets: [{{name: a, {LIMIT}}}, {{name: a, {LIMIT}}}]\n"),
            "1:72: a second budget a, the first is in line 1: keep one",
        ),
        (
            "budgets: [{name: a}]\n".into(),
            "1:11: rate_limit is missing: write `rate_limit: {rate: 100/s}`",
        ),
        (
            "budgets: [{name: a, rate_limit: {unlimited: true}}]\n".into(),
            "1:11: \"unlimited\" is not supported: a budget is there to limit: give it a rate, or \
             remove it",
        ),
        (
            "budgets: [{name: a, rate_limit: {name: b, unit: day, requests_per_unit: 1}}]\n".into(),
            "1:11: \"name\" is not supported: the budget has a name: remove the one of its limit",
        ),
        (
            "replies: {unit: second, requests_per_unit: 0}\n".into(),
            "1:44: requests_per_unit: a rate of 0 passes nothing: to block, write `action: drop` in a \
             rule, in place of the rate, or `limiter deny ADDRESS`; a rate is at least 1 per week",
        ),
        (
            "bans: {unit: second, requests_per_unit: 1, count: bytes}\n".into(),
            "1:44: unknown field \"count\": use rate, unit, unit_multiplier, requests_per_unit, \
             burst",
        ),
        (
            "replies:\n".into(),
            "1:8: rate is missing: write one like `rate: 100/s`, or `unlimited: true`",
        ),
    ]);
}

#[test]
fn blocks_refuse_what_they_cannot_be() {
    let action = "action without rate_limit: add a limit; without one, drop and reject alone have \
                  a meaning: they block";
    let everything = "action without rate_limit: it would drop every packet: put a key around it, \
                      or add a limit";
    let gets = "without rate_limit: what is blocked gets no bucket, and nodes share nothing; \
                remove the field";
    refused(&[
        (with("action: {mark: {ecn: true}}"), &format!("2:25: {action}")),
        (with("action: {ban: {}}"), &format!("2:25: {action}")),
        (
            "descriptors: [{key: generic_key, value: all, action: drop}]\n".into(),
            &format!("1:54: {everything}"),
        ),
        (with("action: drop, on_full: share"), &format!("2:40: on_full {gets}")),
        (with("action: drop, scope: cluster"), &format!("2:38: scope {gets}")),
        (
            with("action: drop, descriptors: [{key: dscp, rate_limit: {rate: 5/s}}]"),
            "2:25: action without rate_limit: add a limit, or remove the field",
        ),
        (
            with("action: drop, budget: b"),
            "2:25: action without rate_limit: the budget has one of its own; write it there",
        ),
    ]);
}
