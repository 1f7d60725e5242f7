//! The times at which a source of a load sends.

/// Pattern of a source. Rates are in packets per second, times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pattern {
    Steady {
        rate: f64,
    },
    /// At random, with this average rate.
    Poisson {
        rate: f64,
    },
    /// Alternates between sending evenly and sending nothing.
    OnOff {
        rate: f64,
        on: u64,
        off: u64,
    },
    /// Evenly, with a rate that changes linearly up to the end.
    Ramp {
        rate: f64,
        last: f64,
    },
    /// Evenly, with another address for each packet.
    Flood {
        rate: f64,
    },
    /// Evenly, but packets that are due while the service stalls are sent at once when it
    /// continues.
    Stall {
        rate: f64,
        from: u64,
        time: u64,
    },
}

const SECOND: f64 = 1e9;

/// The progress of one source through its pattern.
#[derive(Debug)]
pub(super) struct Draw {
    random: fastrand::Rng,
    /// Packets so far.
    count: u64,
    /// Part of an interval by which the source is delayed, so that sources do not send in step.
    phase: f64,
    /// Time of the last packet of a random pattern, in nanoseconds.
    last: f64,
}

impl Draw {
    pub(super) const fn new(random: fastrand::Rng, phase: f64) -> Self {
        Self { random, count: 0, phase, last: 0.0 }
    }

    /// The time of the next packet, in nanoseconds from the sender's beginning; `None` after the
    /// last. `length` is the sender's duration in nanoseconds.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a load is shorter than 2^53 ns, and no time is below 0"
    )]
    pub(super) fn next(&mut self, pattern: &Pattern, length: u64) -> Option<u64> {
        let place = self.count as f64 + self.phase;
        self.count += 1;
        let even = |rate: f64| (place * SECOND / rate) as u64;
        let at = match *pattern {
            Pattern::Steady { rate } | Pattern::Flood { rate } => even(rate),
            Pattern::Poisson { rate } => {
                // In (0, 1], so that the logarithm is finite.
                let gap = -(1.0 - self.random.f64()).ln() * SECOND / rate;
                self.last += gap;
                self.last as u64
            }
            Pattern::OnOff { rate, on, off } => {
                let sent = even(rate);
                (sent / on).saturating_mul(on.saturating_add(off)).saturating_add(sent % on)
            }
            Pattern::Ramp { rate, last } => {
                // The time at which the integral of the rate reaches `place`.
                let slope = (last - rate) / (length as f64 / SECOND);
                let under = 2.0f64.mul_add(slope * place, rate * rate);
                if under < 0.0 {
                    return None;
                }
                let divisor = rate + under.sqrt();
                // Without any rate: the first packet of a ramp from zero is at the beginning.
                let seconds = if divisor > 0.0 { 2.0 * place / divisor } else { 0.0 };
                (seconds * SECOND) as u64
            }
            Pattern::Stall { rate, from, time } => {
                let sent = even(rate);
                let end = from.saturating_add(time);
                if (from..end).contains(&sent) { end } else { sent }
            }
        };
        (at < length).then_some(at)
    }
}
