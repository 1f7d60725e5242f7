//! Buckets beside the decision: how long packets would wait if they were queued and not dropped,
//! and how long nothing of a bucket passed that kept to its limit.

use limiter_common::time::Ticks;
use limiter_common::wire::{Count, Limit};
use limiter_decision::gcra;

use crate::rules::compile;
use crate::rules::model::{Limits, Meter, RateLimit, Terms};

/// A limit as a queue would hold it: a rate, and what passes at once. A limit by windows is taken
/// as that many at once.
#[derive(Clone, Copy, Debug)]
struct Pace {
    limit: Limit,
    count: Count,
    requests: u64,
    period: u64,
}

/// The limits of a rule or budget.
#[derive(Clone, Debug, Default)]
pub(super) struct Paces {
    paces: Vec<Pace>,
    /// True if the limits count SYNs or flows, which packets alone do not tell.
    pub(super) partly: bool,
}

impl Paces {
    pub(super) fn new(limits: &Limits, max_frame: u64) -> Self {
        let mut paces = Self::default();
        for limit in limits.limits.iter() {
            let quota = limit.meter.quota();
            let rate = match (&limit.upper, &limit.meter) {
                (Some(upper), _) => *upper.rate(),
                (None, Meter::TokenBucket(rate)) => *rate,
                (None, Meter::LeakyBucket { backlog, .. }) => leaky(quota.with_burst(1), *backlog),
                (None, _) => quota.with_burst(quota.requests_per_unit),
            };
            let rate = match rate.count {
                Count::Bytes => RateLimit { burst: rate.burst.max(max_frame), ..rate },
                Count::Packets | Count::Syns | Count::Flows => rate,
            };
            paces.partly |= matches!(rate.count, Count::Syns | Count::Flows);
            if let Ok(limit) = compile::limit(
                &Terms::from(RateLimit { count: plain(rate.count), ..rate }),
                max_frame,
            ) {
                let (requests, period) = (quota.requests_per_unit, quota.period.nanos());
                paces.paces.push(Pace { limit, count: rate.count, requests, period });
            }
        }
        paces
    }
}

/// Packets stand for SYNs and flows: never fewer of them.
const fn plain(count: Count) -> Count {
    match count {
        Count::Bytes => Count::Bytes,
        Count::Packets | Count::Syns | Count::Flows => Count::Packets,
    }
}

/// A leaky bucket passes one unit more than its backlog is long.
fn leaky(rate: RateLimit, backlog: std::time::Duration) -> RateLimit {
    let units = backlog.as_nanos() * u128::from(rate.requests_per_unit);
    let ahead = u64::try_from(units / u128::from(rate.period.nanos())).unwrap_or(u64::MAX);
    RateLimit { burst: ahead.saturating_add(1), ..rate }
}

/// One bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    first: u64,
    last: u64,
    packets: u64,
    bytes: u64,
    /// Theoretical arrival times of a queue without an end, by limit.
    queued: Vec<Ticks>,
    /// Since when every packet was dropped.
    dropped_since: Option<u64>,
    /// The longest time in which every packet was dropped, in nanoseconds.
    starved: u64,
}

impl Bucket {
    /// Adds a packet; the time that it would wait in a queue, in nanoseconds. `now` is no earlier
    /// than before.
    pub(super) fn add(&mut self, paces: &Paces, now: u64, length: u64, passed: bool) -> u64 {
        if self.packets == 0 {
            self.first = now;
            self.queued = vec![Ticks::ZERO; paces.paces.len()];
        }
        self.last = now;
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(length);
        if let Some(since) = self.dropped_since {
            self.starved = self.starved.max(now.saturating_sub(since));
        }
        self.dropped_since = if passed { None } else { self.dropped_since.or(Some(now)) };
        let ticks = Ticks::from_nanos(now.saturating_sub(self.first));
        let mut wait = 0;
        for (pace, queued) in paces.paces.iter().zip(&mut self.queued) {
            let units = if pace.count == Count::Bytes { length } else { 1 };
            *queued = (*queued).max(ticks).plus(gcra::cost(&pace.limit, units));
            let leaves = queued.since(Ticks::new(pace.limit.tolerance));
            wait = wait.max(leaves.since(ticks).as_nanos());
        }
        wait
    }

    /// The longest time in which every packet was dropped, of a bucket that was offered no more
    /// than its limits on average; in nanoseconds.
    pub(super) fn starved(&self, paces: &Paces) -> u64 {
        let time = u128::from(self.last - self.first);
        let within = |pace: &Pace| {
            let units = if pace.count == Count::Bytes { self.bytes } else { self.packets };
            let period = u128::from(pace.period);
            u128::from(units) * period <= u128::from(pace.requests) * (time + period)
        };
        if paces.paces.iter().all(within) { self.starved } else { 0 }
    }
}
