//! No room for another key.

use crate::support::*;

fn full(on_full: &str) -> limiter_requests::Limiter {
    let text = format!(
        "domain: d\ndescriptors: [{{key: k, rate_limit: {{rate: 2/hour}}, on_full: {on_full}}}]\n"
    );
    limiter(&text, 3)
}

#[test]
fn without_a_bucket_a_request_shares_one_passes_or_is_refused() {
    for (on_full, expected) in [
        ("share", [true, true, false, false]),
        ("pass", [true, true, true, true]),
        ("drop", [false, false, false, false]),
    ] {
        let limiter = full(on_full);
        for key in ["k=1", "k=2", "k=3"] {
            assert!(passes(&limiter, &[key], SECOND), "{on_full}");
        }
        assert_eq!(limiter.keys(), 3);
        let strangers = ["k=4", "k=5", "k=6", "k=7"].map(|key| passes(&limiter, &[key], SECOND));
        assert_eq!(strangers, expected, "{on_full}");
        // Those that have a bucket lose nothing.
        assert!(passes(&limiter, &["k=1"], SECOND), "{on_full}");
        assert!(!passes(&limiter, &["k=1"], SECOND), "{on_full}");
    }
}

#[test]
fn a_key_of_which_nothing_is_used_makes_room() {
    let limiter = full("drop");
    for key in ["k=1", "k=2", "k=3"] {
        assert!(passes(&limiter, &[key], SECOND));
    }
    assert!(!passes(&limiter, &["k=4"], SECOND));
    // All of a shard have drained after half an hour each.
    limiter.sweep(0, 1, &at(1801 * SECOND));
    assert_eq!(limiter.keys(), 0);
    assert!(passes(&limiter, &["k=4"], 1801 * SECOND));
}

#[test]
fn a_request_alone_finds_the_room_of_a_drained_key_of_its_shard() {
    let limiter = full("drop");
    for key in ["k=1", "k=2", "k=3"] {
        assert!(passes(&limiter, &[key], SECOND));
    }
    // Some key falls into the shard of one of those.
    let found = (4..20_000).filter(|n| passes(&limiter, &[&format!("k={n}")], 7200 * SECOND));
    assert!(found.count() >= 1);
    assert_eq!(limiter.keys(), 3);
}

#[test]
fn a_key_that_is_over_or_only_looked_at_takes_no_room() {
    let limiter = full("drop");
    for n in 0..100 {
        ask(&limiter, &[&format!("k={n}"), "k=x"], 1000, 0);
    }
    assert_eq!(limiter.keys(), 0);
}

/// A request whose clock was read before a key was forgotten finds no more than was left of it.
#[test]
fn a_clock_that_is_late_gains_nothing_by_a_key_that_is_gone() {
    let ends = SECOND;
    let passed_late = |sweep: bool| {
        let limiter = with_limit("rate: 10/s, burst: 10");
        (0..10).for_each(|_| assert!(passes(&limiter, &["k=1"], 0)));
        if sweep {
            limiter.sweep(0, 1, &at(ends));
            assert_eq!(limiter.keys(), 0);
        }
        // The first has waited for its turn for half a second.
        let late = u64::from(passes(&limiter, &["k=1"], ends / 2));
        let rest = (0..100).filter(|_| passes(&limiter, &["k=1"], ends)).count();
        late + u64::try_from(rest).unwrap()
    };
    assert_eq!(passed_late(false), 10);
    assert_eq!(passed_late(true), 10);
}
