//! Answers whose numbers agree with each other and with what happens next.

use limiter_requests::{Answer, Limiter, Moment};

use crate::support::*;

const EVERY: [&str; 6] = [
    "rate: 5/week",
    "rate: 5/week, algorithm: leaky_bucket, backlog: 3days",
    "rate: 5/week, algorithm: fixed_window",
    "rate: 5/week, algorithm: sliding_log",
    "rate: 5/week, algorithm: sliding_counter",
    "rate: 5/week, algorithm: sliding_slots",
];

fn budget(limit: &str) -> Limiter {
    let text = format!(
        "domain: d\nbudgets: [{{name: all, rate_limit: {{{limit}}}}}]\ndescriptors:\n  - {{key: \
         welcome, budget: all}}\n  - {{key: news, budget: all}}\n"
    );
    limiter(&text, 100)
}

/// What an answer says of a descriptor: over, hits left, reset and wait.
fn said(answer: &Answer, number: usize) -> (bool, u64, u64, Option<u64>) {
    let status = &answer.statuses[number];
    let (_, left) = status.nearest.unwrap();
    (status.over, left.remaining, left.reset, left.wait)
}

#[test]
fn a_request_that_meets_a_bucket_twice_and_is_refused_is_charged_to_none() {
    for limit in EVERY {
        let limiter = budget(limit);
        let left = || said(&look(&limiter, "welcome=u", 0), 0).1;
        while left() > 1 {
            assert!(passes(&limiter, &["welcome=u"], 0), "{limit}");
        }
        // A leaky bucket takes any number at once, but not one behind the other.
        let both = ask(&limiter, &["welcome=u", "news=u"], 1, 0);
        assert!(both.over, "{limit}");
        let (over, _, _, wait) = said(&both, 0);
        assert_eq!((over, wait), (false, Some(0)), "{limit}: alone it passes");
        let (over, left_then, reset, wait) = said(&both, 1);
        assert!(over && left_then == 1 && reset > 0, "{limit}: {left_then} {reset}");
        let wait = wait.unwrap();
        assert!(0 < wait && wait <= reset, "{limit}: {wait} {reset}");
        assert_eq!(left(), 1, "{limit}");
        assert!(ask(&limiter, &["welcome=u", "news=u"], 1, wait - 1).over, "{limit}");
        assert!(!ask(&limiter, &["welcome=u", "news=u"], 1, wait).over, "{limit}");
    }
}

#[test]
fn more_hits_than_a_limit_ever_takes_have_no_time_to_come_back() {
    for limit in EVERY.iter().filter(|limit| !limit.contains("leaky")) {
        let limiter = budget(limit);
        let (over, left, _, wait) = said(&ask(&limiter, &["welcome=u"], 6, 0), 0);
        assert_eq!((over, left, wait), (true, 5, None), "{limit}");
        let both = ask(&limiter, &["welcome=u", "news=u"], 3, 0);
        assert_eq!(said(&both, 1).3, None, "{limit}: together");
        assert!(!ask(&limiter, &["welcome=u"], 5, 0).over, "{limit}");
    }
}

/// A window of the calendar that was counted ahead of the clock is told with its own end.
#[test]
fn what_a_clock_that_went_back_left_used_is_told_with_its_own_end() {
    let day = 86_400 * SECOND;
    for (unit, length) in [("month", 31), ("day", 1)] {
        let limiter =
            with_limit(&format!("unit: {unit}, algorithm: fixed_window, requests_per_unit: 3"));
        // The 30th of December and the last of the year, and the windows behind them.
        let before = (MONDAY + 58 * day, MONDAY + 59 * day);
        let early = if unit == "month" { before.0 } else { before.1 };
        let at = |wall, boot| Moment::of_nanos(boot, wall);
        let next = MONDAY + 60 * day;
        let ask = |moment: &Moment| ask_at(&limiter, &["k=1"], 1, moment);
        for n in 0..3 {
            assert!(!ask(&at(next + n, SECOND)).over);
        }
        let now = at(early + 20 * SECOND, 20 * SECOND);
        let (over, left, reset, wait) = said(&ask(&now), 0);
        let passes_at = next + length * day - early - 20 * SECOND;
        assert_eq!((over, left, reset, wait), (true, 0, passes_at, Some(passes_at)), "{unit}");
        assert!(ask(&now.plus(passes_at - 1)).over, "{unit}");
        assert!(!ask(&now.plus(passes_at)).over, "{unit}");
    }
}
