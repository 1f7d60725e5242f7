//! Random schedules at every algorithm, against an oracle that shares no code: governor for the
//! token bucket, and for the others the list of all that passed.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use proptest::prelude::*;

use crate::support::*;

/// Gaps between requests, in parts of a window of one second, and their hits.
fn schedule() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop::sample::select(vec![
        0u64,
        0,
        0,
        0,
        1,
        1_000,
        50_000_000,
        99_999_999,
        100_000_000,
        100_000_001,
        250_000_000,
        333_333_333,
        500_000_000,
        999_999_999,
        1_000_000_000,
        1_000_000_001,
        3_000_000_000,
    ]);
    let hits = prop::sample::select(vec![1u64, 1, 1, 1, 2, 3, 7]);
    prop::collection::vec((gap, hits), 1..120)
}

/// Runs a schedule; `expected` decides each request, too.
fn compare(
    limit: &str,
    schedule: &[(u64, u64)],
    mut expected: impl FnMut(u64, u64) -> bool,
) -> Result<(), TestCaseError> {
    let limiter = with_limit(limit);
    let mut now = 0;
    for (gap, hits) in schedule {
        now += gap;
        let passed = !ask(&limiter, &["k=1"], *hits, now).over;
        prop_assert_eq!(passed, expected(now, *hits), "{} hits at {} of {}", hits, now, limit);
    }
    Ok(())
}

/// Hits that passed, with their times.
#[derive(Default)]
struct Log(Vec<(u64, u64)>);

impl Log {
    fn sum(&self, within: impl Fn(u64) -> bool) -> u64 {
        self.0.iter().filter(|(at, _)| within(*at)).map(|(_, hits)| hits).sum()
    }

    /// Lets hits pass if that many still may.
    fn pass(&mut self, now: u64, hits: u64, used: u64, most: u64) -> bool {
        let fits = used + hits <= most;
        if fits {
            self.0.push((now, hits));
        }
        fits
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_token_bucket_is_that_of_governor(schedule in schedule(), burst in 1u32..20) {
        let clock = FakeRelativeClock::default();
        let quota = Quota::per_second(NonZeroU32::new(10).unwrap())
            .allow_burst(NonZeroU32::new(burst).unwrap());
        let oracle = RateLimiter::direct_with_clock(quota, clock.clone());
        let mut last = 0;
        compare(&format!("rate: 10/s, burst: {burst}"), &schedule, |now, hits| {
            clock.advance(Duration::from_nanos(now - last));
            last = now;
            let hits = NonZeroU32::new(u32::try_from(hits).unwrap()).unwrap();
            matches!(oracle.check_n(hits), Ok(Ok(())))
        })?;
    }

    #[test]
    fn a_leaky_bucket_keeps_its_distance(schedule in schedule(), backlog in 0u64..5) {
        // What is in the bucket, in nanoseconds of the rate.
        let (mut level, mut last) = (0u64, 0);
        let limit = format!("rate: 10/s, algorithm: leaky_bucket, backlog: {backlog}00ms");
        compare(&limit, &schedule, |now, hits| {
            level = level.saturating_sub(now - last);
            last = now;
            let fits = level <= backlog * 100_000_000;
            if fits {
                level += hits * 100_000_000;
            }
            fits
        })?;
    }

    #[test]
    fn a_fixed_window_is_one_of_the_clock(schedule in schedule(), most in 1u64..20) {
        let mut log = Log::default();
        compare(&format!("rate: {most}/s, algorithm: fixed_window"), &schedule, |now, hits| {
            let used = log.sum(|at| at / SECOND == now / SECOND);
            log.pass(now, hits, used, most)
        })?;
    }

    #[test]
    fn a_log_has_exactly_so_many_in_any_window(schedule in schedule(), most in 1u64..20) {
        let mut log = Log::default();
        compare(&format!("rate: {most}/s, algorithm: sliding_log"), &schedule, |now, hits| {
            let used = log.sum(|at| at + SECOND > now);
            log.pass(now, hits, used, most)
        })?;
    }

    #[test]
    fn a_counter_weighs_the_window_before(schedule in schedule(), most in 1u64..20) {
        let mut log = Log::default();
        // Its windows begin with the boot, an hour before.
        compare(&format!("rate: {most}/s, algorithm: sliding_counter"), &schedule, |now, hits| {
            let (window, left) = (now / SECOND, SECOND - now % SECOND);
            let current = log.sum(|at| at / SECOND == window);
            let before = if window == 0 { 0 } else { log.sum(|at| at / SECOND + 1 == window) };
            let fits = before * left + (current + hits) * SECOND <= most * SECOND;
            if fits {
                log.0.push((now, hits));
            }
            fits
        })?;
    }

    #[test]
    fn strict_slots_are_never_over_in_any_window(schedule in schedule(), most in 1u64..20) {
        let mut log = Log::default();
        let limit = format!("rate: {most}/s, algorithm: sliding_slots, slots: 4, strict: true");
        let width = SECOND.div_ceil(3);
        let start = 3600 * SECOND;
        compare(&limit, &schedule, |now, hits| {
            let slot = |at: u64| (start + at) / width;
            let used = log.sum(|at| slot(at) + 4 > slot(now));
            log.pass(now, hits, used, most)
        })?;
    }

    /// What is said to be left passes one by one, and no more; what is said to wait passes then,
    /// and not a moment before; and after the reset all of the limit is there.
    #[test]
    fn what_an_answer_says_is_what_happens(
        schedule in schedule(),
        limit in prop::sample::select(vec![
            "rate: 10/s, burst: 15",
            "rate: 10/s, algorithm: leaky_bucket, backlog: 350ms",
            "rate: 10/s, algorithm: fixed_window",
            "rate: 10/s, algorithm: sliding_log",
            "rate: 10/s, algorithm: sliding_counter",
            "rate: 10/s, algorithm: sliding_slots",
            "unit: month, algorithm: fixed_window, requests_per_unit: 10",
        ]),
    ) {
        let replay = || {
            let limiter = with_limit(limit);
            let mut now = 0;
            for (gap, hits) in &schedule {
                now += gap;
                ask(&limiter, &["k=1"], *hits, now);
            }
            (limiter, now)
        };
        let (limiter, now) = replay();
        let look = |hits: u64| {
            let answer = ask(&limiter, &["k=1"], hits, now);
            answer.statuses[0].nearest.unwrap().1
        };
        // A request that is too large changes nothing.
        let left = if limit.contains("leaky") {
            let mut answer = ask(&limiter, &["k=1"], 1, now);
            answer.statuses.remove(0).nearest.unwrap().1
        } else {
            look(1000)
        };
        let passed = (0..left.remaining).filter(|_| passes(&limiter, &["k=1"], now)).count();
        prop_assert_eq!(u64::try_from(passed).unwrap(), left.remaining);
        prop_assert!(!passes(&limiter, &["k=1"], now), "{:?}", left);
        let left = look(1);
        let wait = left.wait.unwrap();
        prop_assert!(wait > 0 && wait <= left.reset, "{:?}", left);
        prop_assert!(!passes(&limiter, &["k=1"], now + wait - 1), "{:?}", left);
        prop_assert!(passes(&limiter, &["k=1"], now + wait), "{:?}", left);
        let (limiter, _) = replay();
        let before = ask(&limiter, &["k=1"], 1, now).statuses[0].nearest.unwrap().1;
        let after = ask(&limiter, &["k=1"], 1, now + before.reset).statuses[0].nearest.unwrap().1;
        let fresh = with_limit(limit);
        let fresh = ask(&fresh, &["k=1"], 1, now + before.reset).statuses[0].nearest.unwrap().1;
        prop_assert_eq!(after, fresh);
    }
}

#[test]
fn a_month_is_that_of_the_calendar() {
    let limiter = with_limit("unit: month, algorithm: fixed_window, requests_per_unit: 2");
    let day = 86_400 * SECOND;
    // The 2nd of November.
    assert!(passes(&limiter, &["k=1"], 0));
    assert!(passes(&limiter, &["k=1"], 28 * day));
    assert!(!passes(&limiter, &["k=1"], 29 * day - 1), "the last moment of November");
    assert!(passes(&limiter, &["k=1"], 29 * day), "December");
    let left = ask(&limiter, &["k=1"], 1, 29 * day + 1).statuses[0].nearest.unwrap().1;
    assert_eq!((left.remaining, left.reset), (0, 31 * day - 1));
    assert!(!passes(&limiter, &["k=1"], 60 * day - 1));
    assert!(passes(&limiter, &["k=1"], 60 * day), "January");
}
