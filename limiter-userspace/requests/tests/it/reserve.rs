//! When a request may go.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use limiter_requests::{Asked, GivenBack, Limiter, Refused, Reserved};

use crate::support::*;

fn reserve(limiter: &Limiter, texts: &[&str], nanos: u64, longest: u64) -> Reserved {
    let asked = Asked { domain: "d", descriptors: descriptors(texts), hits: 1 };
    limiter.reserve(&limiter.rules(), &asked, &at(nanos), longest).unwrap()
}

const MILLI: u64 = 1_000_000;

#[test]
fn a_request_goes_now_later_or_not_within_the_wait() {
    for limit in ["rate: 10/s, burst: 1", "rate: 10/s, algorithm: leaky_bucket"] {
        let limiter = with_limit(limit);
        let wait = |longest| reserve(&limiter, &["k=1"], 0, longest).wait;
        assert_eq!(wait(0), Some(0), "{limit}");
        assert_eq!(wait(0), None);
        assert_eq!(wait(99 * MILLI), None);
        assert_eq!(wait(100 * MILLI), Some(100 * MILLI));
        assert_eq!(wait(SECOND), Some(200 * MILLI));
        // What is reserved is charged.
        assert!(!passes(&limiter, &["k=1"], 299 * MILLI), "{limit}");
        assert!(passes(&limiter, &["k=1"], 300 * MILLI), "{limit}");
    }
}

#[test]
fn the_longest_wait_of_all_limits_counts() {
    let limiter = limiter(
        "domain: d\ndescriptors:\n  - {key: a, rate_limit: {rate: 10/s, burst: 1}}\n  - {key: b, \
         rate_limits: [{rate: 100/s, burst: 9}, {rate: 1/s, burst: 1}]}\n  - {key: never, \
         rate_limit: {unit: day, requests_per_unit: 0}}\n  - {key: free, rate_limit: {unlimited: \
         true}}\n  - {key: s, rate_limit: {rate: 1/hour}, shadow_mode: true}\n",
        100,
    );
    let wait = |texts: &[&str]| reserve(&limiter, texts, 0, 10 * SECOND).wait;
    assert_eq!(wait(&["a=1", "b=1"]), Some(0));
    assert_eq!(wait(&["a=1"]), Some(100 * MILLI));
    assert_eq!(wait(&["a=1", "b=1"]), Some(SECOND));
    assert_eq!(wait(&["never=1"]), None);
    assert_eq!(wait(&["b=1", "never=1"]), None);
    assert_eq!(wait(&["b=1"]), Some(2 * SECOND), "nothing was charged for that");
    assert_eq!(wait(&["free=1"]), Some(0));
    assert_eq!([wait(&["s=1"]), wait(&["s=1"])], [Some(0); 2]);
    assert_eq!(wait(&["unknown=1"]), Some(0));
}

#[test]
fn a_reservation_is_given_back_once_and_before_its_time() {
    let limiter = with_limit("rate: 10/s, burst: 1");
    let take = |nanos| reserve(&limiter, &["k=1"], nanos, SECOND);
    assert_eq!(take(0).wait, Some(0));
    let second = take(0);
    let id = second.id.unwrap();
    assert_eq!(limiter.give_back(&id, &at(MILLI)), GivenBack::Returned);
    assert_eq!(limiter.give_back(&id, &at(MILLI)), GivenBack::Unknown);
    let again = take(0);
    assert_eq!(again.wait, Some(100 * MILLI), "its place is free");
    // Somebody was charged after it.
    assert_eq!(take(0).wait, Some(200 * MILLI));
    assert_eq!(limiter.give_back(&again.id.unwrap(), &at(MILLI)), GivenBack::Kept);
    assert_eq!(take(0).wait, Some(300 * MILLI));
    // Its time has come.
    let late = take(0);
    assert_eq!(late.wait, Some(400 * MILLI));
    assert_eq!(limiter.give_back(&late.id.unwrap(), &at(400 * MILLI)), GivenBack::Unknown);
    assert_eq!(limiter.give_back("another", &at(0)), GivenBack::Unknown);
}

#[test]
fn windows_cannot_say_when() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_counter", "sliding_slots"] {
        let limiter = with_limit(&format!("rate: 10/s, algorithm: {algorithm}"));
        let asked = Asked { domain: "d", descriptors: descriptors(&["k=1"]), hits: 1 };
        let refused = limiter.reserve(&limiter.rules(), &asked, &at(0), SECOND).unwrap_err();
        assert_eq!(refused, Refused::NoRate(0), "{algorithm}");
    }
}

/// Requests that go when they may go pass at governor's bucket, too, one by one, and none of them
/// could have gone a moment earlier.
#[test]
fn reserved_times_conform_at_another_bucket() {
    let limiter = with_limit("rate: 10/s, burst: 3");
    let clock = FakeRelativeClock::default();
    let quota = Quota::per_second(NonZeroU32::new(10).unwrap());
    let quota = quota.allow_burst(NonZeroU32::new(3).unwrap());
    let oracle = RateLimiter::direct_with_clock(quota, clock.clone());
    let mut now = 0;
    for step in 0u64..200 {
        let asked_at = step * 37 * MILLI;
        let wait = reserve(&limiter, &["k=1"], asked_at, 100 * SECOND).wait.unwrap();
        let goes = asked_at + wait;
        assert!(goes >= now, "in their order");
        if wait > 0 && goes - 1 > now {
            clock.advance(Duration::from_nanos(goes - 1 - now));
            now = goes - 1;
            assert!(oracle.check().is_err(), "step {step}: a moment earlier");
        }
        clock.advance(Duration::from_nanos(goes - now));
        now = goes;
        assert!(oracle.check().is_ok(), "step {step} at {goes}");
    }
}
