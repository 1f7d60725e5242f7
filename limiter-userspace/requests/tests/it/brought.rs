//! Limits that requests bring themselves, and other parts of requests that are decided one by one.

use limiter_common::wire::Count;
use limiter_requests::{Answer, Asked, Descriptor, Detail, Limiter};
use limiter_rules::file::requests::{RequestLimit, RequestTerms};
use limiter_rules::model::{Meter, Period, Quota, Unit};
use serde_json::{Value, json};
use smallvec::smallvec;

use crate::running::started;
use crate::support::{SECOND, at, descriptors, file, limiter};

/// A plain limit of a rule.
pub(crate) fn limit(text: &str) -> RequestLimit {
    let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{text}}}}}]\n");
    let file = file(&text);
    let RequestTerms::Limits(limits) = &file.rules()[0].1.terms else { panic!("{text}") };
    limits[0].written
}

pub(crate) fn ask(limiter: &Limiter, text: &str, limit: RequestLimit, nanos: u64) -> Answer {
    let descriptor = Descriptor { limit: Some(limit), ..descriptors(&[text])[0].clone() };
    let asked = Asked { domain: "d", descriptors: smallvec![descriptor], hits: 1 };
    limiter.decide(&limiter.rules(), &asked, &at(nanos), Detail::Left).unwrap()
}

/// As in envoyproxy/ratelimit: a limit that a request brings needs no rule, is never in shadow mode
/// and no quota, and no rule replaces it.
#[test]
fn a_brought_limit_stands_for_itself() {
    let text = "
domain: d
budgets: [{name: all, rate_limit: {rate: 100/day}}]
descriptors:
  - {key: a, rate_limit: {rate: 100/day}}
  - {key: mail, budget: all}
  - {key: shadow, shadow_mode: true, rate_limit: {rate: 100/day}}
  - {key: named, rate_limit: {name: one, rate: 100/day}}
  - {key: quota, quota_mode: true, rate_limit: {rate: 100/day}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: value, value: x}
";
    let limiter = limiter(text, 1000);
    let one = limit("rate: 1/day");
    for text in [
        "a=1", "b=1", "a=1 b=1", "mail=1", "shadow=1", "named=1", "quota=1", "free=1", "never=1",
        "value=x", "value=y",
    ] {
        let over = [0, 1, 2].map(|_| ask(&limiter, text, one, 0).over);
        assert_eq!(over, [false, true, true], "{text}");
        let other = format!("{text}2");
        assert!(!ask(&limiter, &other, one, 0).over, "{other} has a bucket of its own");
    }
    // A rule replaces another of its name, and not what a request brings.
    let both = limiter_of_both();
    let mut asked =
        Asked { domain: "d", descriptors: descriptors(&["named=1", "other=1"]), hits: 1 };
    asked.descriptors[0].limit = Some(one);
    let pass = || !both.decide(&both.rules(), &asked, &at(0), Detail::Left).unwrap().over;
    assert_eq!([pass(), pass()], [true, false]);
    // IPv6 counts by /64, with a rule and without one.
    assert!(!ask(&limiter, "remote_address=2001:db8::1", one, 0).over);
    assert!(ask(&limiter, "remote_address=2001:db8::2", one, 0).over);
    let asked = Asked { domain: "unknown", descriptors: descriptors(&["a=1"]), hits: 1 };
    assert!(!limiter.decide(&limiter.rules(), &asked, &at(0), Detail::Left).unwrap().over);
}

fn limiter_of_both() -> Limiter {
    limiter(
        "
domain: d
descriptors:
  - {key: named, rate_limit: {name: one, rate: 100/day}}
  - {key: other, rate_limit: {rate: 100/day, replaces: [{name: one}]}}
",
        1000,
    )
}

/// Limits that no key has are forgotten, so any number of them may come one after the other. Of too
/// many at once the rule's own limit holds, and near that everybody can see it.
#[test]
fn brought_limits_are_forgotten_when_nobody_uses_them() {
    let text = "domain: d\ndescriptors: [{key: a, rate_limit: {rate: 2/day}}]\n";
    let limiter = limiter(text, 1 << 18);
    let numbered = |number: u64| {
        let quota = Quota::new(Count::Packets, number, Period::one(Unit::Day));
        RequestLimit::hard(Meter::TokenBucket(quota.with_burst(number)))
    };
    let most = 1 << 16;
    // 2 a day is the rule's.
    for number in 1..=most + 1 {
        assert!(!ask(&limiter, "a=1", numbered(number), 0).over);
    }
    // All of these are in use: two of the rule's pass, whatever is brought.
    let over = [1, 2, 3].map(|_| ask(&limiter, "a=1", numbered(most + 2), 0).over);
    assert_eq!(over, [false, false, true]);
    // Without a rule, the power of two below it.
    let limit = ask(&limiter, "b=1", numbered(most + 9), 0).statuses[0].nearest.unwrap().0;
    assert_eq!(limit.meter.quota().requests_per_unit, most);
    // A day later nothing of them is used.
    let later = 2 * 86_400 * SECOND;
    for _ in 0..3 {
        limiter.sweep(0, 1, &at(later));
    }
    let limit = ask(&limiter, "a=1", numbered(most + 2), later).statuses[0].nearest.unwrap().0;
    assert_eq!(limit.meter.quota().requests_per_unit, most + 2);
}

/// What used up a limit that was brought has used it up after any number of sweeps and others.
#[test]
fn a_brought_limit_that_is_used_up_is_not_forgotten() {
    let limiter = limiter("domain: d\ndescriptors: [{key: a, rate_limit: {rate: 9/day}}]\n", 1000);
    let one = limit("rate: 1/day");
    assert!(!ask(&limiter, "a=1", one, 0).over);
    for round in 0..50 {
        limiter.sweep(round, 16, &at(SECOND));
    }
    assert!(ask(&limiter, "a=1", one, SECOND).over);
    // Nor one that a rule has as well.
    let nine = limit("rate: 9/day");
    ask(&limiter, "b=1", nine, 0);
    limiter
        .apply(
            &[(
                "r.yaml".to_owned(),
                file("domain: d\ndescriptors: [{key: a, rate_limit: {rate: 9/day}}]\n"),
            )],
            &at(0),
        )
        .unwrap();
    for round in 0..50 {
        limiter.sweep(round, 16, &at(3 * 86_400 * SECOND));
    }
    assert!(!crate::support::ask(&limiter, &["a=2"], 9, 4 * 86_400 * SECOND).over);
    assert!(crate::support::ask(&limiter, &["a=2"], 1, 4 * 86_400 * SECOND).over);
}

/// One descriptor that cannot be taken as it is takes no other one with it.
#[test]
fn each_descriptor_is_decided_by_itself() {
    let running = started(|_| {});
    let bad = [
        json!({"entries": [{"key": "user", "value": "b"}], "limit": {"requestsPerUnit": 0, "unit": "MINUTE"}}),
        json!({"entries": [{"key": "user", "value": "b"}], "limit": {"requestsPerUnit": u32::MAX, "unit": "SECOND"}}),
        json!({"entries": [{"key": "user", "value": "b"}], "limit": {"requestsPerUnit": u64::MAX, "unit": "YEAR"}}),
        json!({"entries": []}),
        json!({"entries": [{"key": "", "value": "b"}]}),
        json!({"entries": [{"key": "user", "value": "x".repeat(50_000)}]}),
        json!({"entries": vec![json!({"key": "user", "value": "x"}); 40]}),
        json!({"entries": [{"key": "free", "value": "b"}], "hitsAddend": u64::MAX}),
    ];
    for (number, bad) in bad.iter().enumerate() {
        let other = json!({"entries": [{"key": "user", "value": format!("ann{number}")}]});
        let asked = json!({"domain": "auth", "descriptors": [bad, other]});
        let answers: Vec<_> = (0..4).map(|_| running.json(&asked)).collect();
        let last = answers.last().unwrap();
        assert_eq!(last.status, 429, "{bad}");
        if number > 0 {
            // Three a minute pass, and the fourth is refused for the other one.
            assert!(answers[..3].iter().all(|answer| answer.status == 200), "{bad}");
            assert_eq!(last.json()["statuses"][1]["code"], "OVER_LIMIT");
        } else {
            let codes = |answer: &Value| [0, 1].map(|of| answer["statuses"][of]["code"].clone());
            assert_eq!(codes(&last.json()), ["OVER_LIMIT", "OK"]);
            assert_eq!(last.json()["statuses"][0]["limitRemaining"], 0);
        }
    }
    let many = vec![json!({"entries": [{"key": "user", "value": "z"}]}); 65];
    assert_eq!(running.json(&json!({"domain": "auth", "descriptors": many})).status, 429);
    assert_eq!(running.metric("limiter_request_odd_parts_total{part=\"limit_too_fast\"}"), 8);
    assert_eq!(running.metric("limiter_request_refused_total{reason=\"request\"}"), 0);
    running.server.stop().unwrap();
}
