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
