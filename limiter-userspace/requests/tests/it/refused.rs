//! Who is refused now: by the table, by an exact count, and over the door.

use std::collections::HashMap;
use std::fs;

use limiter_api::refused::{MOST_KEYS, RefusedKeys};
use limiter_requests::{Asked, Limiter, StateOptions, Throttle};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::brought;
use crate::cluster::as_node;
use crate::redis_server::Server as Redis;
use crate::running::{RULES, Running, started};
use crate::support::{SECOND, ask, at, descriptors, file, limiter, passes};

/// Nothing of it passes.
const NEVER: &str = "
domain: d
descriptors:
  - {key: k, rate_limit: {unit: day, requests_per_unit: 0}, detailed_metric: true}
";

fn list(limiter: &Limiter, nanos: u64) -> RefusedKeys {
    let list = limiter.refused(None, &at(nanos)).unwrap();
    let listed: u64 = list.keys.iter().map(|key| key.refused).sum();
    assert_eq!(listed + list.others, list.refused);
    list
}

fn of(limiter: &Limiter, domain: &str, text: &str, nanos: u64) -> Result<RefusedKeys, String> {
    let asked = Asked { domain, descriptors: descriptors(&[text]), hits: 0 };
    limiter.refused(Some(&asked), &at(nanos))
}

fn values(list: &RefusedKeys) -> Vec<(&str, u64)> {
    list.keys.iter().map(|key| (key.values.as_deref().unwrap_or("-"), key.refused)).collect()
}

/// With few keys nothing is missed.
#[test]
fn counts_of_few_keys_are_exact_and_the_worst_comes_first() {
    let limiter = limiter(NEVER, 100);
    for number in 0..40_u64 {
        for _ in 0..=number {
            assert!(!passes(&limiter, &[&format!("k={number}")], SECOND));
        }
    }
    let list = list(&limiter, SECOND);
    assert_eq!((list.keys.len(), list.refused, list.others), (40, 820, 0));
    assert_eq!(list.others_at_most, 0);
    let expected: Vec<_> = (0..40).rev().map(|of| (format!("k={of}"), of + 1)).collect();
    let expected: Vec<_> = expected.iter().map(|(key, count)| (&**key, *count)).collect();
    assert_eq!(values(&list), expected);
    assert!(list.keys.iter().all(|key| key.missed_at_most == 0));
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of a key, at random"
)]
fn skewed(random: &mut fastrand::Rng, keys: u32, skew: i32) -> u32 {
    (random.f64().powi(skew) * f64::from(keys)) as u32
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Beyond the room of the table each row says how far it may be off, and so does the rest.
    #[test]
    fn the_error_holds_beyond_the_room_of_the_table(seed: u64, keys in 1_u32..8000, skew in 1_i32..6) {
        let limiter = limiter(NEVER, 100);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut exact = HashMap::new();
        let mut now = 0;
        for _ in 0..5000 {
            let text = format!("k={}", skewed(&mut random, keys, skew));
            now += random.u64(..SECOND / 10);
            passes(&limiter, &[&text], now);
            *exact.entry(text).or_insert(0) += 1;
        }
        let list = list(&limiter, now);
        prop_assert_eq!(list.refused, 5000);
        prop_assert_eq!(list.keys.len(), exact.len().min(MOST_KEYS));
        for row in &list.keys {
            let truth = exact.remove(row.values.as_deref().unwrap()).unwrap();
            prop_assert!((row.refused..=row.refused + row.missed_at_most).contains(&truth));
        }
        prop_assert!(exact.values().all(|truth| *truth <= list.others_at_most));
        for (text, truth) in exact.into_iter().take(50) {
            let own = of(&limiter, "d", &text, now).unwrap().keys.remove(0);
            prop_assert!((own.refused..=own.refused + own.missed_at_most).contains(&truth));
        }
    }
}

/// Keys that never come again take no row from one that does, however many were refused before.
#[test]
fn a_key_that_is_refused_often_now_is_first_among_millions() {
    let limiter = limiter(NEVER, 100);
    for number in 0..2000 {
        ask(&limiter, &["k=yesterday"], 1, number);
    }
    let day = 86_400 * SECOND;
    for number in 0..100_000_u64 {
        // Twice each, so that none is the least for long.
        let text = format!("k=once{}", number / 2);
        passes(&limiter, &[&text], day + number * SECOND / 10_000);
        if number % 100 == 0 {
            passes(&limiter, &["k=worst"], day + number * SECOND / 10_000);
        }
    }
    let list = list(&limiter, day + 10 * SECOND);
    let worst = &list.keys[0];
    assert_eq!((worst.values.as_deref(), worst.refused), (Some("k=worst"), 1000));
    assert!((99.0..101.0).contains(&worst.refused_per_second), "{worst:?}");
    let yesterday = &of(&limiter, "d", "k=yesterday", day + 10 * SECOND).unwrap().keys[0];
    assert!(yesterday.refused + yesterday.missed_at_most >= 2000, "{yesterday:?}");
}

#[test]
fn a_rate_is_that_of_the_last_ten_seconds() {
    let limiter = limiter(NEVER, 100);
    let rate = |nanos| list(&limiter, nanos).keys[0].refused_per_second;
    for tenth in 0..6000 {
        passes(&limiter, &["k=1"], tenth * SECOND / 10);
        if tenth == 9 {
            assert!((9.0..11.0).contains(&rate(SECOND)), "after a second: {}", rate(SECOND));
        }
    }
    assert!((9.9..10.1).contains(&rate(600 * SECOND)), "{}", rate(600 * SECOND));
    assert!((3.5..3.8).contains(&rate(610 * SECOND)), "{}", rate(610 * SECOND));
    assert!(rate(900 * SECOND) < 1e-9);
    let list = list(&limiter, 3600 * SECOND);
    let times = (list.keys[0].since.as_deref(), list.keys[0].last.as_deref());
    assert_eq!(times, (Some("2026-11-02T00:00:00Z"), Some("2026-11-02T00:09:59Z")));
}

#[test]
fn values_are_hidden_unless_the_rule_shows_them_in_metrics() {
    let text = "domain: d\ndescriptors:\n  - key: a\n    detailed_metric: false\n    descriptors:\n      \
                - {key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 0}}\n  \
                - {key: k, rate_limit: {unit: day, requests_per_unit: 0}}\n";
    let limiter = limiter(text, 100);
    for text in ["k=ann", "k=ann", "k=ann", "k=bob", "k=bob", "a=secret user=ann"] {
        assert!(!passes(&limiter, &[text], 0));
    }
    let all = list(&limiter, 0);
    assert_eq!(values(&all), [("-", 3), ("-", 2), ("a user=ann", 1)]);
    let written = serde_json::to_string(&all).unwrap();
    assert!(!written.contains("bob") && !written.contains("secret"), "{written}");
    let ids: Vec<&str> = all.keys.iter().map(|key| &*key.id).collect();
    assert!(ids[0] != ids[1] && ids[0].len() == 12, "{ids:?}");
    // Who asks for a value sees whose row it is.
    for (text, id) in [("k=ann", ids[0]), ("k=bob", ids[1]), ("a=secret user=ann", ids[2])] {
        let own = of(&limiter, "d", text, 0).unwrap();
        assert_eq!((own.keys.len(), &*own.keys[0].id), (1, id), "{text}");
        assert_eq!(own.refused, own.others + own.keys[0].refused);
    }
    let none = of(&limiter, "d", "k=eve", 0).unwrap();
    assert_eq!((values(&none), &none.keys[0].since), (vec![("-", 0)], &None));
    assert!(of(&limiter, "d", "other=1", 0).unwrap_err().contains("no rule"));
    assert!(of(&limiter, "e", "k=ann", 0).unwrap_err().contains("no rule file"));
    assert_ne!(id_of(text), ids[0], "the hash is of the process");
    // Rules that show none any more show none of before, either.
    let hidden = text.replace("value_to_metric: true, ", "");
    limiter.apply(&[("r.yaml".to_owned(), file(&hidden))], &at(0)).unwrap();
    assert_eq!(values(&list(&limiter, 0)), [("-", 3), ("-", 2), ("-", 1)]);
}

fn id_of(text: &str) -> String {
    let limiter = limiter(text, 100);
    passes(&limiter, &["k=ann"], 0);
    list(&limiter, 0).keys[0].id.clone()
}

#[test]
fn prefixes_budgets_brought_limits_and_commands_have_rows_of_their_own() {
    let text = "domain: d\nbudgets: [{name: b, rate_limit: {rate: 1/day, burst: 1}}]\ndescriptors:\n  - \
                {key: k, budget: b, detailed_metric: true}\n  - key: remote_address\n    \
                detailed_metric: true\n    rate_limit: {rate: 100/s}\n    aggregates: \
                [{v4_prefix_mask_len: 24, v6_prefix_mask_len: 48, rate_limit: {unit: day, \
                requests_per_unit: 2}}]\n";
    let limiter = limiter(text, 100);
    for text in ["k=ann", "k=ann", "k=bob", "k=ann"] {
        passes(&limiter, &[text], 0);
    }
    assert_eq!(values(&list(&limiter, 0)), [("k=ann", 2), ("k=bob", 1)]);
    for last in 1..=5 {
        passes(&limiter, &[&format!("remote_address=192.0.2.{last}")], 0);
    }
    let prefix = list(&limiter, 0).keys.remove(0);
    assert_eq!(
        (prefix.values.as_deref(), prefix.refused),
        (Some("remote_address=192.0.2.0/24"), 3)
    );
    assert_eq!(prefix.prefix, Some(24));
    // It is asked for by any of its sources.
    let own = of(&limiter, "d", "remote_address=192.0.2.77", 0).unwrap();
    assert_eq!(
        values(&own),
        [("remote_address=192.0.2.0/24", 3), ("remote_address=192.0.2.77", 0)]
    );
    let throttle = Throttle { burst: 1, count: 1, period: 3600 };
    for key in ["ann", "ann", "ann", "bob"] {
        limiter.throttle(key.as_bytes(), &throttle, 1, &at(0)).unwrap();
    }
    let commands = of(&limiter, "(commands)", "key=ann", 0).unwrap();
    assert_eq!((values(&commands), &*commands.keys[0].rule), (vec![("-", 2)], "CL.THROTTLE"));
    let one = brought::limit("rate: 1/day");
    for text in ["other=ann", "other=ann", "other=ann"] {
        brought::ask(&limiter, text, one, 0);
    }
    assert_eq!(values(&of(&limiter, "d", "other=ann", 0).unwrap()), [("-", 2)]);
    assert_eq!(list(&limiter, 0).refused, 10);
}

fn refused(running: &Running, asked: Option<&Value>) -> RefusedKeys {
    let answer = match asked {
        None => running.ask("GET", "/refused", "", ""),
        Some(asked) => running.ask("POST", "/refused", "", &asked.to_string()),
    };
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    serde_json::from_str(&answer.body).unwrap()
}

fn metric(running: &Running, rule: &str, became: &str) -> u64 {
    running.metric(&format!("limiter_request_descriptors_total{{{rule},became=\"{became}\"}}"))
}

/// Over the door, as the metrics have it; gone with its rule, and begun anew by a new process.
#[test]
fn the_door_lists_what_the_metrics_count() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        started(|options| {
            let directory = directory.path().to_owned();
            let every = std::time::Duration::from_hours(1);
            options.state = Some(StateOptions { directory, every });
        })
    };
    let running = start();
    assert_eq!(refused(&running, None), RefusedKeys::default());
    for _ in 0..5 {
        running.one("user", "ann");
        running.check("192.0.2.1", "/check");
    }
    running.one("never", "x");
    let all = refused(&running, None);
    let shown: Vec<_> = all.keys.iter().map(|key| (&*key.rule, key.refused)).collect();
    assert_eq!(shown, [("form=login remote_address", 3), ("user", 2), ("never", 1)]);
    assert_eq!((all.keys[0].name.as_deref(), &all.keys[0].values), (Some("logins"), &None));
    assert_eq!(all.keys[1].values.as_deref(), Some("user=ann"));
    assert_eq!((all.refused, all.others), (6, 0));
    let rule = "domain=\"auth\",rule=\"user\",name=\"\"";
    assert_eq!(metric(&running, rule, "over"), 2);
    let entries =
        json!([{"key": "form", "value": "login"}, {"key": "remote_address", "value": "192.0.2.1"}]);
    let asked = json!({"domain": "auth", "descriptors": [{"entries": entries}]});
    let own = refused(&running, Some(&asked));
    assert_eq!((own.keys.len(), &own.keys[0].id, own.others), (1, &all.keys[0].id, 3));
    assert_eq!(running.ask("PUT", "/refused", "", "").status, 405);
    let other = json!({"domain": "other", "descriptors": [{"entries": entries}]});
    assert_eq!(running.ask("POST", "/refused", "", &other.to_string()).status, 400);
    // A rule that is gone takes its counts along, and begins anew.
    let path = running.directory.path().join("r.yaml");
    let line = "  - {key: never, rate_limit: {unit: day, requests_per_unit: 0}}\n";
    for rules in [RULES.replace(line, ""), RULES.to_owned()] {
        fs::write(&path, rules).unwrap();
        assert!(running.server.reload());
        let all = refused(&running, None);
        assert_eq!((all.refused, all.others, all.keys.len()), (5, 0, 2));
    }
    running.server.stop().unwrap();
    let running = start();
    assert_eq!(refused(&running, None), RefusedKeys::default());
    assert_eq!(running.check("192.0.2.1", "/check").status, 429, "its bucket went on");
    assert_eq!(refused(&running, None).keys[0].refused, 1);
    running.server.stop().unwrap();
}

#[test]
fn refusals_of_shared_limits_and_queues_are_listed_as_such() {
    let Some(redis) = Redis::start(&[]) else { return };
    let rules = "
domain: d
queues: [{name: emails, depth: 1}]
descriptors:
  - {key: k, rate_limit: {rate: 1/hour, burst: 1}, action: {queue: emails}}
  - {key: s, scope: cluster, rate_limit: {rate: 2/hour, burst: 2}}
";
    let node = started(|options| as_node(options, &redis, "node-0", 1, rules));
    let send = |key: &str, payload: bool| {
        let entries = json!([{"key": key, "value": "ann"}]);
        let mut asked = json!({"domain": "d", "descriptors": [{"entries": entries}]});
        if payload {
            asked["payload"] = "text".into();
        }
        node.json(&asked).status
    };
    assert_eq!([0; 4].map(|_| send("s", false)), [200, 200, 429, 429]);
    // One goes, one waits, two are refused.
    assert_eq!([0; 4].map(|_| send("k", true)), [200, 202, 429, 429]);
    let all = refused(&node, None);
    let mut shown: Vec<_> = all.keys.iter().map(|key| (&*key.rule, key.refused)).collect();
    shown.sort_unstable();
    assert_eq!(shown, [("k", 2), ("s", 2)]);
    assert_eq!(all.refused, 4);
    assert_eq!(metric(&node, "domain=\"d\",rule=\"k\",name=\"\"", "queued"), 1);
    node.server.stop().unwrap();
}
