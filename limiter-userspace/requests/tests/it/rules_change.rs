//! A change of the rules.

use limiter_requests::Limiter;

use crate::support::*;

fn apply(limiter: &Limiter, limit: &str) {
    apply_at(limiter, limit, 0);
}

fn apply_at(limiter: &Limiter, limit: &str, nanos: u64) {
    let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n");
    limiter.apply(&[("r.yaml".to_owned(), file(&text))], &at(nanos)).unwrap();
}

fn left(limiter: &Limiter) -> u64 {
    // A request that is too large changes nothing.
    ask(limiter, &["k=1"], 1 << 40, 0).statuses[0].nearest.unwrap().1.remaining
}

#[test]
fn a_rule_that_did_not_change_keeps_its_buckets_and_a_changed_one_what_is_available() {
    let limiter = with_limit("rate: 100/hour");
    for _ in 0..60 {
        assert!(passes(&limiter, &["k=1"], 0));
    }
    assert_eq!(left(&limiter), 40);
    apply(&limiter, "rate: 100/hour");
    assert_eq!(left(&limiter), 40);
    apply(&limiter, "rate: 100/hour, name: another");
    assert_eq!(left(&limiter), 40);
    apply(&limiter, "rate: 1000/hour");
    assert_eq!(left(&limiter), 40);
    apply(&limiter, "rate: 1000/hour, algorithm: fixed_window");
    assert_eq!(left(&limiter), 40);
    apply(&limiter, "rate: 50/hour, algorithm: fixed_window");
    // A window goes on with its count.
    assert_eq!(left(&limiter), 0);
    apply(&limiter, "rate: 20/hour, algorithm: sliding_slots");
    assert_eq!(left(&limiter), 0, "nothing comes back");
    // Another key of the same rule was never seen.
    assert!(passes(&limiter, &["k=2"], 0));
}

#[test]
fn a_raise_gives_the_difference_of_what_is_counted_and_nothing_of_a_bucket() {
    for (algorithm, wanted) in [
        ("fixed_window", 5),
        ("sliding_counter", 5),
        ("sliding_slots", 5),
        ("sliding_log", 5),
        ("token_bucket", 0),
        ("leaky_bucket, backlog: 48min", 0),
    ] {
        let limiter = with_limit(&format!("rate: 5/hour, algorithm: {algorithm}"));
        let passed = (0..100).filter(|_| passes(&limiter, &["k=1"], 0)).count();
        assert_eq!(passed, 5, "{algorithm}");
        apply(&limiter, &format!("rate: 10/hour, algorithm: {algorithm}"));
        let passed = (0..100).filter(|_| passes(&limiter, &["k=1"], 1)).count();
        assert_eq!(passed, wanted, "{algorithm}");
    }
}

/// The new rate counts from the change on, also for a key that nobody asked about meanwhile.
#[test]
fn the_time_since_a_change_counts_at_the_new_rate() {
    for (from, to, wanted) in [
        ("rate: 5/min", "rate: 500/min", 25),
        ("rate: 500/min", "rate: 5/min", 0),
        ("rate: 60/min", "rate: 60/min, burst: 600", 3),
        ("rate: 5/min, algorithm: leaky_bucket, backlog: 48s", "rate: 500/min", 25),
    ] {
        let limiter = with_limit(from);
        while passes(&limiter, &["k=1"], 0) {}
        apply_at(&limiter, to, 0);
        // Changes of other things are none of the limit.
        apply_at(&limiter, &format!("{to}, name: other"), SECOND);
        let passed = (0..1000).filter(|_| passes(&limiter, &["k=1"], 3 * SECOND)).count();
        assert_eq!(passed, wanted, "{from} {to}");
    }
    // A key that is asked about at the change has as much.
    let limiter = with_limit("rate: 5/min");
    while passes(&limiter, &["k=1"], 0) {}
    apply_at(&limiter, "rate: 500/min", 12 * SECOND);
    assert!(passes(&limiter, &["k=1"], 12 * SECOND), "what came back at the old rate");
    assert!(!passes(&limiter, &["k=1"], 12 * SECOND));
    let passed = (0..1000).filter(|_| passes(&limiter, &["k=1"], 13 * SECOND)).count();
    assert_eq!(passed, 8);
}

#[test]
fn files_that_do_not_go_together_change_nothing() {
    let limiter = with_limit("rate: 1/hour");
    assert!(passes(&limiter, &["k=1"], 0));
    let one = file("domain: e\ndescriptors: [{key: k, rate_limit: {rate: 9/hour}}]\n");
    let files = [("a.yaml".to_owned(), one.clone()), ("b.yaml".to_owned(), one)];
    let error = limiter.apply(&files, &at(0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "b.yaml:1:9: a second file for the domain \"e\", the first is in a.yaml:1:9: keep one"
    );
    assert!(!passes(&limiter, &["k=1"], 0), "as before");
}
