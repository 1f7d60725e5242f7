//! The algorithms as they are plotted: compiled by the rule compiler, decided by limiter-common,
//! and beside them the bound that their documentation states.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use limiter_common::time::Ticks;
use limiter_common::window::{LogLimit, WallOffset};
use limiter_common::wire::Count;
use limiter_decision::algorithm::soft::{Grade, grade};
use limiter_decision::algorithm::two_rate::{Arrival, Colour, charge_bucket, rfc2698, rfc4115};
use limiter_decision::algorithm::{
    Charged, fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_slots,
};
use limiter_decision::gcra;
use limiter_rules::compile::{self, Quota, SlotError, Upper};
use limiter_rules::{Period, RateLimit, Unit};

const FRAME: u64 = 1522;
const SECOND: u64 = 1_000_000;

/// Decides packets of one source in the order of time.
pub(crate) type Decide = Box<dyn FnMut(Ticks) -> Grade>;

/// Says when packets of one source depart, in the order of time; none of what is dropped.
pub(crate) type Wait = Box<dyn FnMut(Ticks) -> Option<Ticks>>;

/// The most that may pass from the first to the second time, both included; microseconds.
pub(crate) type Bound = fn(u64, u64) -> u64;

pub(crate) struct Meter {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) fresh: Box<dyn Fn() -> Decide>,
    /// The bound of what passes unmarked.
    pub(crate) bound: Bound,
    /// The bound of all that passes, where some of it is marked or waits.
    pub(crate) bound_of_all: Option<Bound>,
    /// The departures of a bucket that lets packets wait, drawn instead of all that passes.
    pub(crate) waits: Option<Box<dyn Fn() -> Wait>>,
}

const fn quota(requests_per_unit: u64) -> Quota {
    Quota::new(Count::Packets, requests_per_unit, Period::one(Unit::Second))
}

const fn rate(requests_per_unit: u64, burst: u64) -> RateLimit {
    quota(requests_per_unit).with_burst(burst)
}

/// 50 a second are more than a log holds, so it keeps half as many of half a second.
fn log() -> LogLimit {
    LogLimit { window: 500_000_000, size: 25, ..LogLimit::default() }
}

const fn plain(charged: Charged) -> Grade {
    match charged {
        Charged::Conforming => Grade::Within,
        Charged::Over => Grade::Refused,
        Charged::Contended => Grade::Contended,
    }
}

fn word() -> AtomicU64 {
    AtomicU64::new(0)
}

const fn green(now: Ticks) -> Arrival {
    Arrival { now, units: 1, colour: Colour::Green }
}

/// A bucket that drops, and beside it one whose packets wait at most 200 ms, as long as ten more of
/// them take.
fn waiting() -> Result<Meter> {
    let bucket = compile::limit(&rate(50, 20).into(), FRAME)?;
    let with_waiting = compile::limit(&rate(50, 30).into(), FRAME)?;
    Ok(Meter {
        name: "delay",
        title: "Token bucket: 50/s, burst 20; action: {delay: {longest: 200ms}}",
        fresh: Box::new(move || {
            let cell = word();
            Box::new(move |now| plain(charge_bucket(&bucket, &cell, now, 1)))
        }),
        bound: |from, to| 20 + 50 * (to - from) / SECOND,
        // Departures are rounded up to microseconds.
        bound_of_all: Some(|from, to| 20 + 50 * (to - from + 1) / SECOND),
        waits: Some(Box::new(move || {
            let cell = word();
            let tat = Ticks::new_within;
            Box::new(move |now| {
                let before = tat(cell.load(Ordering::Relaxed));
                let charged = charge_bucket(&with_waiting, &cell, now, 1);
                let after = tat(cell.load(Ordering::Relaxed));
                matches!(charged, Charged::Conforming)
                    .then(|| gcra::departure(&bucket, before, after, now))
            })
        })),
    })
}

/// All of them, in the order of the documentation.
pub(crate) fn all() -> Result<Vec<Meter>> {
    let mut meters = buckets()?;
    meters.push(waiting()?);
    meters.extend(windows()?);
    meters.extend(graded()?);
    Ok(meters)
}

fn buckets() -> Result<Vec<Meter>> {
    let bucket = compile::limit(&rate(50, 20).into(), FRAME)?;
    let leaky = compile::leaky_bucket(quota(50), Duration::from_millis(100), FRAME)?;
    Ok(vec![
        Meter {
            name: "token-bucket",
            title: "Token bucket: 50/s, burst 20",
            fresh: Box::new(move || {
                let cell = word();
                Box::new(move |now| plain(charge_bucket(&bucket, &cell, now, 1)))
            }),
            bound: |from, to| 20 + 50 * (to - from) / SECOND,
            bound_of_all: None,
            waits: None,
        },
        Meter {
            name: "leaky-bucket",
            title: "Leaky bucket: 50/s, backlog 100 ms",
            fresh: Box::new(move || {
                let cell = word();
                Box::new(move |now| plain(leaky_bucket::charge(&leaky, &cell, now, 1)))
            }),
            bound: |from, to| 1 + 50 * (to - from + SECOND / 10) / SECOND,
            bound_of_all: None,
            waits: None,
        },
    ])
}

fn windows() -> Result<Vec<Meter>> {
    let fixed = compile::fixed_window(quota(50), FRAME)?;
    let log = log();
    let counter = compile::sliding_counter(quota(50), FRAME)?;
    let slots = compile::sliding_slots(quota(50), 4, SlotError::Lenient, FRAME)?;
    Ok(vec![
        Meter {
            name: "fixed-window",
            title: "Fixed window: 50 in each second of the clock",
            fresh: Box::new(move || {
                let cell = word();
                Box::new(move |now| {
                    plain(fixed_window::charge(&fixed, WallOffset::BOOT, &cell, now, 1))
                })
            }),
            // By the borders in between, which is tighter than the bound for windows anywhere.
            bound: |from, to| 50 * (to / SECOND - from / SECOND + 1),
            bound_of_all: None,
            waits: None,
        },
        Meter {
            name: "sliding-log",
            title: "Sliding-window log: 25 in any half second",
            fresh: Box::new(move || {
                let (head, ring) = (word(), [const { AtomicU64::new(0) }; 31]);
                Box::new(move |now| plain(sliding_log::charge(&log, &head, &&ring, now)))
            }),
            bound: |from, to| 25 * ((to - from) / (SECOND / 2) + 1),
            bound_of_all: None,
            waits: None,
        },
        Meter {
            name: "sliding-counter",
            title: "Sliding-window counter: 50 a second, weighted by the second before",
            fresh: Box::new(move || {
                let words = [word(), word()];
                Box::new(move |now| plain(sliding_counter::charge(&counter, &&words, now, 1)))
            }),
            bound: |from, to| 50 + 50 * (to - from) / SECOND,
            bound_of_all: None,
            waits: None,
        },
        Meter {
            name: "sliding-slots",
            title: "Sliding window of 4 slots (lenient): 50 a second",
            fresh: Box::new(move || {
                let words = [const { AtomicU64::new(0) }; 4];
                Box::new(move |now| plain(sliding_slots::charge(&slots, &&words, now, 1)))
            }),
            // By the slots in between, which is tighter than the bound for windows anywhere.
            bound: |from, to| 50 * (to / (SECOND / 4) - from / (SECOND / 4) + 1).div_ceil(4),
            bound_of_all: None,
            waits: None,
        },
    ])
}

fn graded() -> Result<Vec<Meter>> {
    let total = compile::two_rate(&rate(50, 20), &rate(60, 40), Upper::Total, FRAME)?;
    let excess = compile::two_rate(&rate(50, 20), &rate(10, 20), Upper::Excess, FRAME)?;
    let limit = log();
    let ceiling = compile::limit(&rate(60, 80).into(), FRAME)?;
    Ok(vec![
        Meter {
            name: "two-rate-rfc2698",
            title: "RFC 2698: committed 50/s, burst 20; peak 60/s, burst 40",
            fresh: Box::new(move || {
                let (lower, upper) = (word(), word());
                Box::new(move |now| rfc2698(&total, &lower, &upper, green(now)))
            }),
            bound: |from, to| 20 + 50 * (to - from) / SECOND,
            bound_of_all: Some(|from, to| 40 + 60 * (to - from) / SECOND),
            waits: None,
        },
        Meter {
            name: "two-rate-rfc4115",
            title: "RFC 4115: committed 50/s, burst 20; excess 10/s, burst 20",
            fresh: Box::new(move || {
                let (lower, upper) = (word(), word());
                Box::new(move |now| rfc4115(&excess, &lower, &upper, green(now)))
            }),
            bound: |from, to| 20 + 50 * (to - from) / SECOND,
            bound_of_all: Some(|from, to| {
                20 + 50 * (to - from) / SECOND + 20 + 10 * (to - from) / SECOND
            }),
            waits: None,
        },
        Meter {
            name: "soft",
            title: "Soft limit: log of 25 in any half second; ceiling 60/s, burst 80",
            fresh: Box::new(move || {
                let (head, ring) = (word(), [const { AtomicU64::new(0) }; 31]);
                let cell = word();
                Box::new(move |now| {
                    grade(
                        || charge_bucket(&ceiling, &cell, now, 1),
                        || sliding_log::charge(&limit, &head, &&ring, now),
                    )
                })
            }),
            bound: |from, to| 25 * ((to - from) / (SECOND / 2) + 1),
            bound_of_all: Some(|from, to| 80 + 60 * (to - from) / SECOND),
            waits: None,
        },
    ])
}
