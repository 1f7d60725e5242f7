//! Exact meter of what all nodes pass together: by how much any window exceeds `rate * window`.

use limiter_sharing::rate::Rate;

/// Sliding maximum over every window that begins and ends with a packet; no other can be worse.
#[derive(Debug)]
pub(crate) struct Meter {
    rate: Rate,
    admitted: u64,
    /// Least of `admitted * micros - units * time` before a packet, and the most that one after
    /// was above it.
    lowest: i128,
    most: i128,
}

impl Meter {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, admitted: 0, lowest: i128::MAX, most: 0 }
    }

    fn level(&self, now: u64) -> i128 {
        i128::from(self.admitted) * i128::from(self.rate.micros())
            - i128::from(self.rate.units()) * i128::from(now)
    }

    /// A packet of `units` passed at `now`, anywhere. Times must not go back.
    pub(crate) fn pass(&mut self, now: u64, units: u64) {
        self.lowest = self.lowest.min(self.level(now));
        self.admitted += units;
        self.most = self.most.max(self.level(now) - self.lowest);
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.admitted
    }

    /// The most by which a window exceeded `rate * window`, in units, rounded up.
    pub(crate) fn excess(&self) -> u64 {
        let micros = i128::from(self.rate.micros());
        u64::try_from((self.most + micros - 1) / micros).expect("in range")
    }
}

#[test]
fn every_window_is_looked_at() {
    // 1 in 10 us: bursts of 3 and 4 with 20 us between, so 7 in a window of 20.
    let mut meter = Meter::new(Rate::new(1, 10).expect("in range"));
    for (now, units) in [(0, 1), (500, 3), (520, 4), (1000, 2)] {
        meter.pass(now, units);
    }
    assert_eq!((meter.excess(), meter.admitted()), (5, 10));
}
