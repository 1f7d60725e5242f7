//! Rates over time: of all packets, which the daemon keeps, and of a source from look to look.

use std::collections::VecDeque;

use limiter_api::status::history::{History, Mark, Point};

/// Points that are kept: as wide as any terminal's.
const POINTS: usize = 600;

/// Packets a second, over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// The time of each point by the daemon's clock, in nanoseconds, and the rate until then, the
    /// newest first; `None` if the rate is not known.
    points: VecDeque<(u64, Option<u64>)>,
    pub(super) now: Option<f64>,
}

impl Rates {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are not negative"
    )]
    pub(super) fn push(&mut self, at: u64, rate: Option<f64>) {
        self.now = rate;
        self.points.truncate(POINTS - 1);
        self.points.push_front((at, rate.map(|rate| rate.ceil() as u64)));
    }

    /// The newest `count` points, the newest first.
    pub(super) fn points(&self, count: usize) -> Vec<(u64, Option<u64>)> {
        self.points.iter().copied().take(count).collect()
    }
}

/// What passed and what was dropped in all, and what changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) passed: Rates,
    pub(super) dropped: Rates,
    /// Bits a second now that passed, and that were dropped.
    pub(super) bits: [Option<f64>; 2],
    /// Changes, the oldest first.
    pub(super) marks: VecDeque<Mark>,
    /// The previous reading, and the run of the daemon that it belongs to.
    before: Option<(u64, Point)>,
}

impl Totals {
    /// The time of the newest reading, to ask for what is newer.
    pub(super) fn newest(&self) -> Option<u64> {
        self.before.map(|(_, point)| point.clock_ns)
    }

    pub(super) fn take(&mut self, history: History) {
        for point in history.points {
            let before = self.before.replace((history.began_ns, point));
            let Some((began, before)) = before else { continue };
            // Of another run of the daemon the counters may be others.
            let rates = point.since(&before).filter(|_| began == history.began_ns);
            self.passed.push(point.clock_ns, rates.map(|rates| rates.passed_packets));
            self.dropped.push(point.clock_ns, rates.map(|rates| rates.dropped_packets));
            self.bits = [rates.map(|of| of.passed_bits), rates.map(|of| of.dropped_bits)];
        }
        self.marks.extend(history.marks);
        while self.marks.len() > POINTS {
            self.marks.pop_front();
        }
    }
}
