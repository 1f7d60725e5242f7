//! Bytes that the log may grow by, so that a flood does not push out what was logged before it.

use std::time::Duration;

use super::files::PARTS;

/// Time that the log reaches back at least, whatever is reported.
const REACH: Duration = Duration::from_hours(24);

/// Part of the budget that is reserved for summaries of drops: one in `KEPT`.
const KEPT: u64 = 8;

/// A token bucket of bytes. One part of the log may be written at once, and all but two parts
/// within the time that the log must reach back: so a part that is removed is older than that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Nanoseconds per byte.
    cost: u64,
    /// Nanoseconds for the bytes that may come at once.
    burst: u64,
    /// Time at which the bucket is full again, in nanoseconds.
    full_at: u64,
}

impl Budget {
    /// Makes the budget of a log of `most` bytes.
    pub(super) fn new(most: u64) -> Self {
        let part = (most / PARTS).max(1);
        let reach = u64::try_from(REACH.as_nanos()).unwrap_or(u64::MAX);
        let cost = reach.div_ceil(part * (PARTS - 2));
        Self { cost, burst: cost.saturating_mul(part), full_at: 0 }
    }

    /// Takes bytes for a line that names a source, if there are enough of them.
    pub(super) fn name(&mut self, now: u64, bytes: usize) -> bool {
        self.take(now, bytes, self.burst - self.burst / KEPT)
    }

    /// Takes bytes for a summary line, if there are any.
    pub(super) fn sum(&mut self, now: u64, bytes: usize) -> bool {
        self.take(now, bytes, self.burst)
    }

    /// Takes bytes for a line that is always written, because such lines are few.
    pub(super) fn always(&mut self, now: u64, bytes: usize) {
        self.take(now, bytes, u64::MAX);
    }

    fn take(&mut self, now: u64, bytes: usize, most: u64) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let next = self.full_at.max(now).saturating_add(bytes.saturating_mul(self.cost));
        if next > now.saturating_add(most) {
            return false;
        }
        self.full_at = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is reported, the lines of a day fit beside the part that may be removed.
    #[test]
    fn a_day_of_any_flood_fits() {
        for most in [1 << 20, 64 << 20, 1 << 30] {
            for (bytes, every) in [(300_usize, 1_000_000_000_u64), (100, 250_000_000)] {
                let mut budget = Budget::new(most);
                let mut written = 0;
                for step in 0..u64::try_from(REACH.as_nanos()).unwrap() / every {
                    let now = step * every;
                    while budget.name(now, bytes) || budget.sum(now, bytes) {
                        written += u64::try_from(bytes).unwrap();
                    }
                }
                let part = most / PARTS;
                assert!(written <= most - part, "{written} of {most}");
                assert!(written >= most - 2 * part, "{written} of {most} is little");
            }
        }
    }

    #[test]
    fn sums_have_room_when_names_have_none() {
        let mut budget = Budget::new(1 << 20);
        while budget.name(0, 300) {}
        assert!(budget.sum(0, 300));
        while budget.sum(0, 300) {}
        assert!(!budget.name(1_000_000, 300));
        budget.always(0, 300);
    }
}
