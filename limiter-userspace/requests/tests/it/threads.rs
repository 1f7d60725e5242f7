//! Many threads: no limit is passed, in whatever order they come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use limiter_requests::{Asked, Detail};

use crate::support::*;

const THREADS: u64 = 4;
const EACH: u64 = 20_000;

/// Hits that pass of all that four threads ask for, within a moment.
fn passed(limit: &str) -> u64 {
    let limiter = with_limit(limit);
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let rules = limiter.rules();
                let asked = Asked { domain: "d", descriptors: descriptors(&["k=1"]), hits: 1 };
                for _ in 0..EACH {
                    let answer = limiter.decide(&rules, &asked, &at(0), Detail::Decision);
                    passed.fetch_add(u64::from(!answer.unwrap().over), Ordering::Relaxed);
                }
            });
        }
    });
    passed.into_inner()
}

#[test]
fn exactly_the_limit_passes_at_once() {
    for (limit, expected) in [
        ("rate: 50000/hour", 50_000),
        ("rate: 50000/hour, algorithm: fixed_window", 50_000),
        ("rate: 50000/hour, algorithm: sliding_counter", 50_000),
        ("rate: 50000/hour, algorithm: sliding_slots", 50_000),
        ("rate: 31/hour, algorithm: sliding_log", 31),
        ("rate: 10/s, algorithm: leaky_bucket, backlog: 1000s", 10_001),
    ] {
        assert_eq!(passed(limit), expected, "{limit}");
    }
}

/// Each thread has a clock of its own, which goes on with every request: in any window of any
/// length no more than the burst and what came back in it.
#[test]
fn no_window_is_over_whatever_the_clocks_say() {
    let limiter = with_limit("rate: 1000/s, burst: 50");
    let mut times: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let limiter = &limiter;
                scope.spawn(move || {
                    let rules = limiter.rules();
                    let asked = Asked { domain: "d", descriptors: descriptors(&["k=1"]), hits: 1 };
                    let mut passed = Vec::new();
                    let mut now = thread * 333;
                    for step in 0..EACH {
                        now += 100_000 + step % 7 * 1_000;
                        let answer =
                            limiter.decide(&rules, &asked, &at(now), Detail::Decision).unwrap();
                        if !answer.over {
                            passed.push(now);
                        }
                    }
                    passed
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    times.sort_unstable();
    let milli = 1_000_000;
    for (first, begin) in times.iter().enumerate() {
        for (count, end) in (1u64..).zip(times.iter().skip(first)) {
            let most = 50 + (end - begin) / milli;
            assert!(count <= most, "{count} within {} ns", end - begin);
            if count > 500 {
                break;
            }
        }
    }
    assert!(times.len() > 1500, "{}", times.len());
}

/// Requests of two keys in either order: each is charged to both or to none.
#[test]
fn requests_of_several_keys_leave_no_half_of_one() {
    let limiter = limiter(
        "domain: d\ndescriptors:\n  - {key: a, rate_limit: {rate: 30000/hour}}\n  - {key: b, \
         rate_limit: {rate: 20000/hour}}\n",
        1000,
    );
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limiter, passed) = (&limiter, &passed);
            scope.spawn(move || {
                let rules = limiter.rules();
                let texts = if thread % 2 == 0 { ["a=1", "b=1"] } else { ["b=1", "a=1"] };
                let asked = Asked { domain: "d", descriptors: descriptors(&texts), hits: 1 };
                for _ in 0..EACH {
                    let answer = limiter.decide(&rules, &asked, &at(0), Detail::Decision);
                    passed.fetch_add(u64::from(!answer.unwrap().over), Ordering::Relaxed);
                }
            });
        }
    });
    let passed = passed.into_inner();
    let left =
        |text: &str| ask(&limiter, &[text], 1 << 40, 0).statuses[0].nearest.unwrap().1.remaining;
    // A charge that somebody charged over stays, on the safe side: a few at the end at most.
    assert!(passed <= 20_000 && passed > 19_000, "{passed}");
    assert!(30_000 - left("a=1") >= passed);
    assert_eq!(20_000 - left("b=1"), 20_000);
}
