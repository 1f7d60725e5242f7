//! What passed and what was dropped in the last minutes, second by second, and what changed then.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Counts;

/// The query of `GET /v1/history`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AskHistory {
    /// Only what is newer than this time of the machine's monotonic clock, in nanoseconds, such as
    /// the time of the newest point of the answer before; all that is kept when left out.
    #[serde(default)]
    pub after: Option<u64>,
}

/// `GET /v1/history`: the counters of the last ten minutes, about one reading a second, since the
/// daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The time of the answer, in nanoseconds of the machine's monotonic clock.
    pub clock_ns: u64,
    /// The beginning of this run of the daemon, by the same clock.
    pub began_ns: u64,
    /// Readings of the counters, the oldest first.
    pub points: Vec<Point>,
    /// Changes, the oldest first.
    pub marks: Vec<Mark>,
}

/// A reading of the counters of all packets, since the maps were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// Time of the reading, in nanoseconds of the machine's monotonic clock.
    pub clock_ns: u64,
    /// Packets that passed.
    pub passed: Counts,
    /// Packets that were dropped.
    pub dropped: Counts,
}

/// A change that may explain a step in the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mark {
    /// Time when it was noticed, at most about a second later, by the clock of the points.
    pub clock_ns: u64,
    /// Kind of the change.
    pub change: MarkKind,
    /// The rule set in force since then.
    pub generation: u64,
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// The daemon started.
    Started,
    /// Another rule set is in force: by a reload, `limiter apply` or `limiter set`.
    Rules,
    /// Rules are on trial.
    Trial,
    /// The rules on trial were confirmed.
    Confirmed,
    /// The rules on trial were reverted: on request, or because nobody confirmed them.
    Reverted,
    /// `limiter off`: every packet passes.
    Off,
    /// `limiter on`.
    On,
}

impl MarkKind {
    /// Name of the change, as in the answer.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Rules => "rules",
            Self::Trial => "trial",
            Self::Confirmed => "confirmed",
            Self::Reverted => "reverted",
            Self::Off => "off",
            Self::On => "on",
        }
    }
}

/// Packets and bits a second that passed and were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Packets that passed, a second.
    pub passed_packets: f64,
    /// Bits of their frames, a second.
    pub passed_bits: f64,
    /// Packets that were dropped, a second.
    pub dropped_packets: f64,
    /// Bits of their frames, a second.
    pub dropped_bits: f64,
}

impl Rates {
    /// The rates between two readings of passed and dropped, `nanos` apart; none if a counter began
    /// anew, or no time went by.
    pub fn between(before: [Counts; 2], now: [Counts; 2], nanos: u64) -> Option<Self> {
        let rate = |before: u64, now: u64| per_second(now.checked_sub(before)?, nanos);
        let [[passed, dropped], [passed_now, dropped_now]] = [before, now];
        Some(Self {
            passed_packets: rate(passed.packets, passed_now.packets)?,
            passed_bits: 8.0 * rate(passed.bytes, passed_now.bytes)?,
            dropped_packets: rate(dropped.packets, dropped_now.packets)?,
            dropped_bits: 8.0 * rate(dropped.bytes, dropped_now.bytes)?,
        })
    }
}

impl Point {
    /// The rates since an earlier reading of the same counters.
    pub fn since(&self, before: &Self) -> Option<Rates> {
        let nanos = self.clock_ns.checked_sub(before.clock_ns)?;
        Rates::between([before.passed, before.dropped], [self.passed, self.dropped], nanos)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
fn per_second(count: u64, nanos: u64) -> Option<f64> {
    (nanos > 0).then(|| count as f64 * 1e9 / nanos as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(packets: u64, bytes: u64) -> Counts {
        Counts { packets, bytes }
    }

    #[test]
    fn rates_are_of_one_run_of_the_counters() {
        let before = Point { clock_ns: 5, passed: counts(10, 600), dropped: counts(1, 60) };
        let now =
            Point { clock_ns: 2_000_000_005, passed: counts(30, 1800), dropped: counts(1, 60) };
        let rates = now.since(&before).unwrap();
        assert_eq!(rates, Rates { passed_packets: 10.0, passed_bits: 4800.0, ..Rates::default() });
        assert_eq!(before.since(&now), None, "backwards");
        assert_eq!(now.since(&now), None, "no time");
        let anew = Point { clock_ns: 3_000_000_005, passed: counts(5, 300), ..now };
        assert_eq!(anew.since(&now), None, "a counter began anew");
    }
}
