//! Buckets beside the decision: how long packets would wait if they were queued instead of dropped,
//! and how long a bucket that kept to its limit got nothing through.

use limiter_common::time::Ticks;
use limiter_common::wire::{Count, Limit};
use limiter_decision::gcra;
use limiter_rules::compile;
use limiter_rules::model::{Limits, Meter, RateLimit, Terms};

/// A limit as a queue would apply it: a rate, and a number that passes at once. For a limit with
/// windows, this number is the window's.
#[derive(Clone, Copy, Debug)]
struct Pace {
    limit: Limit,
    count: Count,
    requests: u64,
    period: u64,
}

impl Pace {
    /// The time that a packet of `length` bytes costs.
    fn cost(&self, length: u64) -> Ticks {
        gcra::cost(&self.limit, if self.count == Count::Bytes { length } else { 1 })
    }

    /// The time, in nanoseconds, that a packet waits if `queued` is the queue's arrival time after
    /// it.
    fn wait(&self, queued: Ticks, now: Ticks) -> u64 {
        queued.since(Ticks::new(self.limit.tolerance)).since(now).as_nanos()
    }
}

/// The limits of a rule or budget.
#[derive(Clone, Debug, Default)]
pub(super) struct Paces {
    paces: Vec<Pace>,
    /// True if the limits count SYNs or flows, which packets alone do not show.
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

impl Paces {
    /// The time, in nanoseconds, that the first packet of a bucket would wait.
    pub(super) fn first_wait(&self, length: u64) -> u64 {
        let waits = self.paces.iter().map(|pace| pace.wait(pace.cost(length), Ticks::ZERO));
        waits.max().unwrap_or(0)
    }

    /// Approximate bytes of a [`BucketQueue`] besides the struct.
    pub(super) const fn heap(&self) -> usize {
        self.paces.len() * size_of::<Ticks>() + 16
    }
}

/// Counts packets instead of SYNs and flows, so never fewer.
const fn plain(count: Count) -> Count {
    match count {
        Count::Bytes => Count::Bytes,
        Count::Packets | Count::Syns | Count::Flows => Count::Packets,
    }
}

/// A leaky bucket passes one unit more than its backlog.
fn leaky(rate: RateLimit, backlog: std::time::Duration) -> RateLimit {
    let units = backlog.as_nanos() * u128::from(rate.requests_per_unit);
    let ahead = u64::try_from(units / u128::from(rate.period.nanos())).unwrap_or(u64::MAX);
    RateLimit { burst: ahead.saturating_add(1), ..rate }
}

/// Stands for no time.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(super) struct BucketQueue {
    first: u64,
    last: u64,
    packets: u64,
    bytes: u64,
    /// Theoretical arrival times of an unbounded queue, by limit.
    queued: Box<[Ticks]>,
    /// Time since which every packet was dropped, or [`NEVER`].
    dropped_since: u64,
    /// The longest time in which every packet was dropped, in nanoseconds.
    starved: u64,
}

impl BucketQueue {
    /// A bucket at its first packet. Also returns the time, in nanoseconds, that the packet would
    /// wait in a queue.
    pub(super) fn begin(paces: &Paces, now: u64, length: u64, passed: bool) -> (Self, u64) {
        let mut bucket = Self {
            first: now,
            last: now,
            packets: 0,
            bytes: 0,
            queued: vec![Ticks::ZERO; paces.paces.len()].into(),
            dropped_since: NEVER,
            starved: 0,
        };
        let wait = bucket.add(paces, now, length, passed);
        (bucket, wait)
    }

    /// Adds a packet. Returns the time, in nanoseconds, that it would wait in a queue. `now` is no
    /// earlier than before.
    pub(super) fn add(&mut self, paces: &Paces, now: u64, length: u64, passed: bool) -> u64 {
        self.last = now;
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(length);
        if self.dropped_since != NEVER {
            self.starved = self.starved.max(now.saturating_sub(self.dropped_since));
        }
        self.dropped_since = if passed { NEVER } else { self.dropped_since.min(now) };
        let ticks = Ticks::from_nanos(now.saturating_sub(self.first));
        let mut wait = 0;
        for (pace, queued) in paces.paces.iter().zip(&mut self.queued) {
            *queued = (*queued).max(ticks).plus(pace.cost(length));
            wait = wait.max(pace.wait(*queued, ticks));
        }
        wait
    }

    /// The longest time, in nanoseconds, in which every packet was dropped, if the bucket was
    /// offered no more than its limits on average; otherwise 0.
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
