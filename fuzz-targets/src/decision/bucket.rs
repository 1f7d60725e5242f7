//! Exact token buckets, as a bound on what may pass: whole numbers only, and no arithmetic of ours.

use std::collections::HashMap;

use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_decision::packet::{self, Packet};

/// A limit on every source, of a rule set that has no other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// True if bytes are counted, not packets.
    pub(super) bytes: bool,
    pub(super) rate: u64,
    /// Length of a period in nanoseconds.
    pub(super) period: u64,
    /// Units at once.
    pub(super) burst: u64,
}

/// A bucket of `units * period`, so that a nanosecond fills in `rate`.
#[derive(Debug)]
struct Bucket {
    level: u128,
    filled: u64,
}

#[derive(Debug)]
pub(super) struct Buckets {
    limit: Limit,
    by_source: HashMap<Source, Bucket>,
}

impl Buckets {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, by_source: HashMap::new() }
    }

    /// A frame left: one that passed within the limit must have been in the bucket.
    pub(super) fn saw(&mut self, frame: &[u8], now: u64, reason: Reason) {
        let Packet::From(source) = packet::parse(&frame) else {
            return;
        };
        if reason != Reason::Conforming {
            return;
        }
        let Limit { bytes, rate, period, burst } = self.limit;
        // Of bytes, the compiled burst may be longer by less than one.
        let full = u128::from(burst + u64::from(bytes)) * u128::from(period);
        let bucket = self.by_source.entry(source).or_insert(Bucket { level: full, filled: now });
        let gone = now.saturating_sub(bucket.filled);
        bucket.level = full.min(bucket.level + u128::from(gone) * u128::from(rate));
        bucket.filled = bucket.filled.max(now);
        let units = if bytes { frame.len() as u128 } else { 1 };
        let cost = units * u128::from(period);
        assert!(
            cost <= bucket.level,
            "{source:?} passed more than {burst} and {rate} every {period} ns"
        );
        bucket.level -= cost;
    }
}
