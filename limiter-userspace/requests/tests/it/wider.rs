//! Soft limits, budgets and aggregates.

use limiter_requests::Limiter;

use crate::support::*;

/// How many of so many requests at once pass.
fn passed(limiter: &Limiter, texts: &[&str], requests: usize, nanos: u64) -> usize {
    (0..requests).filter(|_| passes(limiter, texts, nanos)).count()
}

#[test]
fn requests_over_a_soft_limit_pass_marked_up_to_its_ceiling() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_log", "leaky_bucket"] {
        let limit =
            format!("rate: 2/min, algorithm: {algorithm}, ceiling: {{rate: 5/min, burst: 5}}");
        let limiter = with_limit(&limit);
        let answers: Vec<_> = (0..7).map(|_| ask(&limiter, &["k=1"], 1, 0)).collect();
        let states: Vec<_> =
            answers.iter().map(|answer| (answer.over, answer.statuses[0].over_soft)).collect();
        let within = if algorithm == "leaky_bucket" { 1 } else { 2 };
        let expected: Vec<_> = (0..7).map(|n| (n >= 5, (within..5).contains(&n))).collect();
        assert_eq!(states, expected, "{algorithm}");
        // The wait is that of the ceiling, which refuses: 5 a minute.
        let (_, left) = answers[6].statuses[0].nearest.unwrap();
        assert_eq!(left.wait, Some(12 * SECOND), "{algorithm}");
    }
}

#[test]
fn what_passes_over_a_soft_limit_is_not_charged_to_it() {
    let limiter = with_limit("rate: 1/s, burst: 1, ceiling: {rate: 10/s, burst: 10}");
    assert!(!ask(&limiter, &["k=1"], 1, 0).statuses[0].over_soft);
    for _ in 0..5 {
        assert!(ask(&limiter, &["k=1"], 1, 0).statuses[0].over_soft);
    }
    assert!(!ask(&limiter, &["k=1"], 1, SECOND).statuses[0].over_soft);
}

const BUDGET: &str = "
domain: d
budgets:
  - {name: mails, rate_limit: {rate: 5/min}}
descriptors:
  - {key: welcome, budget: mails}
  - {key: news, value: weekly, budget: mails, shadow_mode: false}
  - {key: other, rate_limit: {rate: 5/min}}
";

#[test]
fn rules_of_a_budget_share_its_limits() {
    let limiter = limiter(BUDGET, 100);
    assert_eq!(passed(&limiter, &["welcome=ann"], 3, 0), 3);
    assert_eq!(passed(&limiter, &["news=weekly"], 4, 0), 2);
    assert_eq!(passed(&limiter, &["welcome=bob"], 4, 0), 0);
    assert_eq!(passed(&limiter, &["other=1"], 9, 0), 5);
    // A request of two such descriptors takes two.
    assert!(!passes(&limiter, &["welcome=ann", "news=weekly"], 12 * SECOND));
    assert!(passes(&limiter, &["welcome=ann", "news=weekly"], 24 * SECOND));
    assert!(!passes(&limiter, &["news=weekly"], 24 * SECOND));
}

const WIDER: &str = "
domain: d
descriptors:
  - key: form
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {rate: 3/min}
        aggregates:
          - {v4_prefix_mask_len: 24, v6_prefix_mask_len: 48, rate_limit: {rate: 5/min}}
          - {v4_prefix_mask_len: 16, rate_limits: [{rate: 8/min}, {rate: 100/day}]}
";

#[test]
fn prefixes_of_a_source_have_limits_of_their_own() {
    let limiter = limiter(WIDER, 100);
    let log_in = |source: &str, requests| {
        passed(&limiter, &[&format!("form=login remote_address={source}")], requests, 0)
    };
    assert_eq!(log_in("198.51.100.1", 9), 3, "the address");
    assert_eq!(log_in("198.51.100.2", 9), 2, "its /24 has five");
    assert_eq!(log_in("198.51.100.3", 9), 0);
    assert_eq!(log_in("198.51.7.1", 9), 3, "its /16 has eight");
    assert_eq!(log_in("198.51.8.1", 9), 0);
    assert_eq!(log_in("192.0.2.1", 9), 3);
    assert_eq!(log_in("2001:db8::1", 9), 3);
    assert_eq!(log_in("2001:db8:0:1::1", 9), 2, "its /48 has five");
    assert_eq!(log_in("2001:db8:1::1", 9), 3);
    assert_eq!(log_in("nobody", 9), 3, "a text has no prefix");
}

#[test]
fn a_request_over_a_wider_limit_is_charged_to_none_and_says_which() {
    let limiter = limiter(WIDER, 100);
    let of = |source: u8| format!("form=login remote_address=198.51.100.{source}");
    for source in 1..=5 {
        assert!(passes(&limiter, &[&of(source)], 0));
    }
    let answer = ask(&limiter, &[&of(6)], 1, 0);
    let [status] = &answer.statuses[..] else { panic!("{answer:?}") };
    assert!(answer.over && status.over);
    let (limit, left) = status.nearest.unwrap();
    assert_eq!(limit.meter.quota().requests_per_unit, 5);
    assert_eq!(left.wait, Some(12 * SECOND));
    assert_eq!(status.limits.len(), 4, "its own, that of the /24, two of the /16");
    // Neither its own bucket nor the one of the /16 was charged.
    let remaining: Vec<_> = status.limits.iter().map(|(_, left)| left.remaining).collect();
    assert_eq!(remaining, [3, 0, 3, 95]);
}

#[test]
fn a_wider_limit_without_room_is_shared_apart_from_the_limits_of_its_rule() {
    // Room for one key: that of the first address.
    let limiter = limiter(WIDER, 1);
    let of = |source: &str| format!("form=login remote_address={source}");
    assert_eq!(passed(&limiter, &[&of("198.51.100.1")], 9, 0), 3);
    // All other addresses share one bucket of three, all /24 one of five.
    assert_eq!(passed(&limiter, &[&of("192.0.2.1")], 9, 0), 2);
    assert_eq!(passed(&limiter, &[&of("203.0.113.1")], 9, 0), 0);
}
