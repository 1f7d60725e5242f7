//! The counters of a bucket, and their rates.

use limiter_common::time::Ticks;

/// Packets a second that passed, and that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) passed: f64,
    pub(super) dropped: f64,
}

impl Rates {
    /// The rates of a number of packets in a time.
    #[expect(clippy::cast_precision_loss, reason = "a rate is reported to a few digits")]
    pub(super) fn of(packets: Counters, time: Ticks) -> Option<Self> {
        let nanos = time.as_nanos();
        let over = |packets: u64| packets as f64 * 1e9 / nanos as f64;
        (nanos > 0).then(|| Self { passed: over(packets.passed), dropped: over(packets.dropped) })
    }
}

/// The counters of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) passed: u64,
    pub(super) dropped: u64,
}

impl Counters {
    /// Packets since an earlier reading of the same bucket; `None` if it started again in between.
    pub(super) fn since(self, before: Self) -> Option<Self> {
        let passed = self.passed.checked_sub(before.passed)?;
        Some(Self { passed, dropped: self.dropped.checked_sub(before.dropped)? })
    }

    /// Dropped packets alone.
    pub(super) const fn dropped(dropped: u64) -> Self {
        Self { passed: 0, dropped }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed = self.passed.saturating_add(other.passed);
        self.dropped = self.dropped.saturating_add(other.dropped);
    }
}
