//! What limits nothing, or refuses everybody, because proxy and rule files do not fit: the process
//! says so, with numbers.

use std::fs;

use serde_json::{Value, json};

use crate::running::{Running, running, started};

const RULES: &str = "domain: d
descriptors:
  - key: route
    value: login
    descriptors:
      - {key: remote_address, rate_limit: {rate: 1/min}}
  - {key: client, value: crawler, rate_limit: {rate: 1/min}}
  - {key: client, value: other}
  - {key: client, value: office, rate_limit: {unlimited: true}}
";

/// A server with rule files of the test.
fn serving(files: &[(&str, &str)]) -> Running {
    started(|options| {
        let directory = options.rules[0].parent().unwrap().join("rules");
        fs::create_dir(&directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        options.rules = vec![directory];
    })
}

fn add(running: &Running, name: &str, text: &str) {
    fs::write(running.directory.path().join("rules").join(name), text).unwrap();
    assert!(running.server.reload());
}

fn health(running: &Running) -> String {
    running.ask("GET", "/healthcheck", "", "").body
}

/// Asks about one descriptor, `a=b c=d`.
fn ask(running: &Running, descriptors: &[&str]) -> u16 {
    let entry = |text: &str| {
        let (key, value) = text.split_once('=').unwrap();
        json!({"key": key, "value": value})
    };
    let of = |text: &&str| json!({"entries": text.split(' ').map(entry).collect::<Vec<Value>>()});
    let descriptors: Vec<Value> = descriptors.iter().map(of).collect();
    running.json(&json!({"domain": "d", "descriptors": descriptors})).status
}

/// Keys in another order, too many, too few, in other letters, another value: all pass, and it is
/// counted and reported with the number. One that fits is no fault any more.
#[test]
fn descriptors_that_no_rule_is_for_are_counted_and_reported() {
    let running = serving(&[("d.yaml", RULES)]);
    assert_eq!(health(&running), "OK\n");
    let wrong = [
        ("remote_address=192.0.2.1 route=login", "route=login remote_address"),
        ("route=login remote_address=192.0.2.1 path=/", "goes on with the key path"),
        ("route=login", "need one more key: remote_address"),
        ("Route=login remote_address=192.0.2.1", "in another order or other letters"),
        ("route=Login remote_address=192.0.2.1", "no rule is for this value of route"),
    ];
    for (number, (descriptor, _)) in (1..).zip(&wrong) {
        for _ in 0..4 {
            assert_eq!(ask(&running, &[descriptor]), 200);
        }
        let words =
            format!("degraded: of {0} requests for the domain \"d\" {0} met no rule", 4 * number);
        assert!(health(&running).starts_with(&words), "{}", health(&running));
    }
    let count = |met: &str| {
        running
            .metric(&format!("limiter_request_domain_requests_total{{domain=\"d\",met=\"{met}\"}}"))
    };
    assert_eq!(running.metric("limiter_request_unmet_descriptors_total{domain=\"d\"}"), 20);
    assert_eq!([count("all"), count("some"), count("none")], [0, 0, 20]);
    // Only a part of it, what is meant, and what fits.
    assert_eq!(ask(&running, &["client=other", "route=logout"]), 200);
    for free in ["client=other", "client=office", "client=office remote_address=192.0.2.1"] {
        assert_eq!(ask(&running, &[free]), 200);
    }
    assert_eq!(ask(&running, &["client=crawler"]), 200);
    assert_eq!([count("all"), count("some"), count("none")], [4, 1, 20]);
    let words = "OK\nnote: of 25 requests for the domain \"d\" 20 met no rule and 1 only in part";
    assert!(health(&running).starts_with(words), "{}", health(&running));
    running.server.stop().unwrap();
    // Each is explained.
    for (descriptor, why) in wrong {
        let running = serving(&[("d.yaml", RULES)]);
        ask(&running, &[descriptor]);
        assert!(health(&running).contains(why), "{descriptor}: {}", health(&running));
        running.server.stop().unwrap();
    }
}

/// A rule that a hundred requests for its domain did not meet is named; a new one gets as many.
#[test]
fn rules_that_no_request_meets_are_reported() {
    let running = serving(&[("d.yaml", RULES)]);
    for _ in 0..99 {
        ask(&running, &["client=office"]);
    }
    assert_eq!(health(&running), "OK\n");
    ask(&running, &["client=office"]);
    let words = "note: of 100 requests for the domain \"d\" none met 2 of 3 rules: route=login \
                 remote_address, client=crawler\n";
    assert_eq!(health(&running), format!("OK\n{words}"));
    ask(&running, &["client=crawler"]);
    ask(&running, &["route=login remote_address=192.0.2.1"]);
    assert_eq!(health(&running), "OK\n");
    add(&running, "d.yaml", &format!("{RULES}  - {{key: new, rate_limit: {{rate: 1/s}}}}\n"));
    assert_eq!(health(&running), "OK\n");
    running.server.stop().unwrap();
}

/// Nobody names a domain that is there: all pass.
#[test]
fn requests_that_name_no_domain_of_a_file_are_reported() {
    let running = serving(&[("d.yaml", RULES)]);
    let other = json!({"domain": "D", "descriptors": [{"entries": [{"key": "client"}]}]});
    for _ in 0..3 {
        assert_eq!(running.json(&other).status, 200);
    }
    let words = "degraded: 3 requests named a domain without rules, and passed; the latest: \"D\"; \
                 the rule files have \"d\"\n";
    assert_eq!(health(&running), words);
    // Who may ask may name anything.
    ask(&running, &["client=other"]);
    assert_eq!(health(&running), "OK\n");
    running.server.stop().unwrap();
}

const AUTH: &str = "domain: auth
check: [[{key: remote_address, header: X-Real-IP}]]
descriptors: [{key: remote_address, rate_limit: {rate: 2/hour}}]
";

/// A second file with `check` takes nothing from proxies that ask without a domain. Where nobody
/// could know which file is meant, that is reported with what to ask.
#[test]
fn a_second_file_with_checks_leaves_those_of_the_first_alone() {
    let running = serving(&[("auth.yaml", AUTH)]);
    assert_eq!(running.check("192.0.2.1", "/check").status, 200);
    let search = AUTH.replace("auth", "a-search").replace("2/hour", "9/hour");
    add(&running, "a-search.yaml", &search);
    let statuses = || running.check("192.0.2.1", "/check").status;
    assert_eq!([statuses(), statuses()], [200, 429]);
    assert_eq!(running.check("192.0.2.1", "/check/a-search").status, 200);
    let words = "OK\nnote: 2 rule files have `check`, so /check without a domain stays that of \
                 \"auth\" until this process ends, and is refused after it: ask /check/a-search, \
                 /check/auth\n";
    assert_eq!(health(&running), words);
    // It is gone: nobody knows what is meant.
    fs::remove_file(running.directory.path().join("rules/auth.yaml")).unwrap();
    add(&running, "third.yaml", &AUTH.replace("auth", "third"));
    assert_eq!(statuses(), 404);
    running.server.stop().unwrap();
    let running = serving(&[("auth.yaml", AUTH), ("search.yaml", &search)]);
    assert!(health(&running).contains("/check without a domain is refused: ask /check/a-search"));
    for number in 1..=2 {
        assert_eq!(running.check("192.0.2.1", "/check").status, 404);
        let words = format!("degraded: of {number} request");
        assert!(health(&running).starts_with(&words), "{}", health(&running));
    }
    assert!(health(&running).contains("to /check 2 could not be decided"));
    running.server.stop().unwrap();
}

/// With a window beside a bucket a check that may wait is answered at once, and no error, of which
/// nginx would make one for everybody.
#[test]
fn a_check_that_cannot_wait_is_answered_at_once() {
    let rules = "domain: d
check: [[{key: a, header: A}], [{key: b, header: A}]]
descriptors:
  - {key: a, rate_limit: {rate: 1/hour, burst: 3}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 2, algorithm: fixed_window}}
";
    let running = serving(&[("d.yaml", rules)]);
    let statuses: Vec<u16> = (0..3)
        .map(|_| running.ask("GET", "/check/d?wait=30s&over=403", "A: x\r\n", "").status)
        .collect();
    assert_eq!(statuses, [200, 200, 403]);
    assert_eq!(running.metric("limiter_request_checks_without_wait_total"), 3);
    running.server.stop().unwrap();
}

/// An empty header is as a missing one, whichever of the two a proxy sends: nobody shares a bucket
/// with all others who have no key. Where no header is left it is reported.
#[test]
fn an_empty_header_is_as_a_missing_one() {
    let running = running(100);
    for header in
        ["", "X-Real-IP:\r\n", "X-Real-IP:   \r\n", "X-Real-IP: 192.0.2.1\r\nX-Real-IP:\r\n"]
    {
        for _ in 0..3 {
            assert_eq!(running.ask("GET", "/check", header, "").status, 200, "{header}");
        }
    }
    assert_eq!(running.metric("limiter_request_empty_checks_total"), 12);
    assert_eq!(running.metric("limiter_request_keys"), 0);
    let words = "degraded: of 12 requests to /check 12 had none of the headers";
    assert!(health(&running).starts_with(words), "{}", health(&running));
    running.server.stop().unwrap();
}

/// nginx keeps its connection to who answers only after an answer without a body.
#[test]
fn a_refused_check_has_no_body() {
    let running = running(100);
    for status in [200, 200, 429] {
        let answer = running.check("192.0.2.1", "/check");
        let length = answer.header("content-length");
        assert_eq!((answer.status, &*answer.body, length), (status, "", Some("0")));
    }
    running.server.stop().unwrap();
}

/// Headers that clients pace themselves by are those of limits that count: no rule in shadow mode,
/// and of rules in quota mode the one that still lets the request pass.
#[test]
fn headers_name_the_limits_that_count() {
    let rules = |first: &str, second: &str| {
        format!(
            "domain: d\ncheck: [[{{key: all, value: x}}], [{{key: k, header: K}}]]\n\
             descriptors:\n  - {{key: all, rate_limit: {{name: one, rate: 1/hour}}{first}}}\n  \
             - {{key: k, rate_limit: {{name: more, rate: 3/hour}}{second}}}\n"
        )
    };
    let (shadow, quota) = (", shadow_mode: true", ", quota_mode: true");
    let more = Some("\"more\";q=3;w=3600");
    for (first, second, statuses, policy) in [
        (shadow, "", &[200, 200, 200, 429][..], more),
        (quota, quota, &[200, 200, 200, 429], more),
        (quota, shadow, &[200, 429, 429], Some("\"one\";q=1;w=3600")),
        (shadow, shadow, &[200, 200], None),
    ] {
        let running = serving(&[("d.yaml", &rules(first, second))]);
        let limit = policy.map(|policy| &policy[policy.find("q=").unwrap() + 2..][..1]);
        let most: Option<usize> = limit.map(|limit| limit.parse().unwrap());
        for (number, status) in statuses.iter().enumerate() {
            let answer = running.ask("GET", "/check", "K: a\r\n", "");
            assert_eq!(answer.status, *status, "{first} {second} {number}");
            let left = most.map(|most| most.saturating_sub(number + 1).to_string());
            assert_eq!(answer.header("x-ratelimit-limit"), limit, "{first} {second}");
            assert_eq!(answer.header("x-ratelimit-remaining"), left.as_deref());
            assert_eq!(answer.header("ratelimit-policy"), policy);
            assert_eq!(answer.header("retry-after").is_some(), *status == 429);
        }
        running.server.stop().unwrap();
    }
}

/// The alerts and the dashboard of `dist` name metrics and labels that there are.
#[test]
fn alerts_and_dashboard_name_metrics_of_this_process() {
    let running = running(100);
    let page = running.ask("GET", "/metrics", "", "").body;
    running.server.stop().unwrap();
    // Those of queues need a store.
    let known = format!("{page}{}", include_str!("../../src/reports/metrics.rs"));
    let of_dist = [
        include_str!("../../../../dist/prometheus/limiter.rules.yml"),
        include_str!("../../../../dist/grafana/limiter.json"),
    ];
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = 0;
    for text in of_dist {
        for begins in ["limiter_request", "limiter_queue_"] {
            for (at, _) in text.match_indices(begins) {
                let rest = &text[at..];
                let name = &rest[..rest.find(|c| !is_word(c)).unwrap()];
                assert!(known.contains(&format!("\"{name}\"")), "{name} is no metric");
                names += 1;
            }
        }
    }
    assert!(names > 25, "{names}");
    for label in ["code=\"ok\"", "reason=\"request\"", "met=\"none\"", "became=\"full_shared\""] {
        assert!(page.contains(label), "{label}");
    }
}
