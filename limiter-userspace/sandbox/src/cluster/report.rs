//! The report of a run: delivered packets against the bound, by phase and over all windows.

use serde::Serialize;

use super::bound::{Packet, Span, busiest};
use super::phase::Phase;
use super::{LIMIT, SYNC};
use crate::sandbox::format::{table, thousands};

/// Length of the windows of which the busiest is shown, in nanoseconds.
const WINDOW: u64 = 1_000_000_000;

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Release of the running kernel.
    pub kernel: String,
    /// Packets a second over all nodes.
    pub rate: u64,
    /// Packets at once over all nodes.
    pub burst: u64,
    /// Sync period in seconds.
    pub sync_seconds: f64,
    /// Packets that each node has seen.
    pub seen: Vec<u64>,
    /// One row for each phase, in their order.
    pub phases: Vec<Row>,
    /// Packets by which the worst window of any length exceeds the bound; negative if below it.
    pub over: Option<i64>,
    /// True if the bound was held and the rate reached.
    pub pass: bool,
    /// Reasons for a failure, one sentence each.
    pub failures: Vec<String>,
}

/// A phase.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the phase, as in [`super::phase::Phase`].
    pub phase: &'static str,
    /// Length of the phase.
    pub seconds: f64,
    /// Packets sent in the part that is judged.
    pub offered: u64,
    /// Packets that arrived, of the offered ones.
    pub delivered: u64,
    /// Fewest packets that must arrive.
    pub at_least: u64,
    /// Most packets that may arrive.
    pub at_most: u64,
    /// Most packets in any window of a second.
    pub busiest_second: u64,
    /// Most packets that may be in such a window.
    pub second_at_most: u64,
    /// True if the row is as it should be.
    pub pass: bool,
}

impl Row {
    fn new(phase: &Phase, sent: &[u64], packets: &[Packet]) -> Self {
        let span = phase.span;
        let delivered = phase.delivered(sent, packets);
        let inside = packets.iter().filter(|p| p.sent >= span.from && p.arrived <= span.to);
        let busiest_second = busiest(&inside.copied().collect::<Vec<_>>(), WINDOW);
        let second_at_most = LIMIT.of(&Span { from: 0, to: WINDOW, ..span });
        Self {
            phase: phase.name,
            seconds: seconds(span.to - span.from),
            offered: delivered.offered,
            delivered: delivered.delivered,
            at_least: delivered.least,
            at_most: delivered.most,
            busiest_second,
            second_at_most,
            pass: delivered.is_good() && busiest_second <= second_at_most,
        }
    }

    fn failure(&self) -> Option<String> {
        let Self { phase, delivered, at_least, at_most, .. } = self;
        let Self { busiest_second, second_at_most, pass, .. } = self;
        (!pass).then(|| {
            format!(
                "{phase}: {delivered} arrived, which should be {at_least} to {at_most}, and \
                 {busiest_second} in a second, which should be at most {second_at_most}"
            )
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a run is far under 2^52 ns")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Report {
    /// Judges a run.
    pub fn new(phases: &[Phase], sent: &[u64], packets: &[Packet], seen: Vec<u64>) -> Self {
        let spans: Vec<Span> = phases.iter().map(|phase| phase.span).collect();
        let over = LIMIT.over(&spans, packets);
        let phases: Vec<Row> = phases.iter().map(|phase| Row::new(phase, sent, packets)).collect();
        let mut failures: Vec<String> = phases.iter().filter_map(Row::failure).collect();
        match over {
            None => failures.push("nothing arrived".to_owned()),
            Some(over) if over > 0 => {
                failures.push(format!("a window passed {over} packets more than the bound"));
            }
            Some(_) => {}
        }
        let idle = seen.iter().filter(|seen| **seen == 0).count();
        if idle > 0 {
            failures.push(format!("{idle} nodes saw no packet: the source was not spread"));
        }
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            rate: LIMIT.rate,
            burst: LIMIT.burst,
            sync_seconds: SYNC.as_secs_f64(),
            seen,
            phases,
            over,
            pass: failures.is_empty(),
            failures,
        }
    }

    /// The table and the verdict.
    pub fn text(&self) -> String {
        let header =
            ["phase", "s", "offered", "delivered", "at least", "at most", "in 1 s", "at most", ""];
        let rows = self.phases.iter().map(|row| {
            vec![
                row.phase.to_owned(),
                format!("{:.1}", row.seconds),
                thousands(row.offered),
                thousands(row.delivered),
                thousands(row.at_least),
                thousands(row.at_most),
                thousands(row.busiest_second),
                thousands(row.second_at_most),
                if row.pass { "ok" } else { "FAIL" }.to_owned(),
            ]
        });
        let seen: Vec<String> = self.seen.iter().map(|seen| thousands(*seen)).collect();
        let mut lines = vec![
            table(&header, &[1, 2, 3, 4, 5, 6, 7], rows),
            format!(
                " limit over all nodes {}/s, burst {}, sync {} ms; Linux {}",
                thousands(self.rate),
                thousands(self.burst),
                self.sync_seconds * 1e3,
                self.kernel
            ),
            format!(" packets seen by each node: {}", seen.join(", ")),
        ];
        if let Some(over) = self.over {
            let side = if over > 0 { "over" } else { "below" };
            let packets = thousands(over.unsigned_abs());
            lines.push(format!(
                " the worst window of any length: {packets} packets {side} the bound"
            ));
        }
        lines.extend(self.failures.iter().map(|failure| format!(" FAIL: {failure}")));
        if self.pass {
            lines.push(
                " PASS: every window within the bound, the rate reached, nothing lost below it"
                    .to_owned(),
            );
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::phase::Expected;
    use super::*;

    /// A run of two seconds with packets at `every` microseconds, of which one in `passed` arrives.
    fn report(expected: Expected, every: u64, passed: usize) -> Report {
        let sent: Vec<u64> = (0..2_000_000 / every).map(|n| n * every * 1000).collect();
        let arrived = sent.iter().step_by(passed);
        let packets: Vec<Packet> =
            arrived.map(|time| Packet { sent: *time, arrived: *time + 1000 }).collect();
        let span = Span { from: 0, to: 2 * WINDOW, rate: 0, burst: 0 };
        let phase = Phase { name: "the phase", span, expected };
        Report::new(&[phase], &sent, &packets, vec![1, 1])
    }

    #[test]
    fn a_limit_that_holds_passes() {
        for (expected, every, passed) in [(Expected::All, 1100, 1), (Expected::Rate, 250, 4)] {
            let report = report(expected, every, passed);
            assert!(report.pass, "{expected:?}: {:?}", report.failures);
            assert!(report.text().contains("PASS"));
        }
    }

    #[test]
    fn more_than_the_bound_fails() {
        let report = report(Expected::Bound, 500, 1);
        assert_eq!((report.pass, report.over), (false, Some(1000)), "{:?}", report.failures);
        assert!(report.text().contains("FAIL: a window passed 1000 packets more than the bound"));
    }

    #[test]
    fn less_than_the_rate_or_than_all_fails() {
        assert!(!report(Expected::Rate, 250, 5).pass);
        assert!(!report(Expected::All, 1100, 2).pass);
    }

    #[test]
    fn shares_that_are_not_held_or_not_there_fail() {
        assert!(report(Expected::Shares, 1000, 4).pass);
        assert!(!report(Expected::Shares, 1000, 2).pass);
        assert!(!report(Expected::Shares, 1000, 8).pass);
    }

    #[test]
    fn a_node_that_saw_nothing_fails() {
        let Report { pass, failures, .. } = Report::new(&[], &[], &[], vec![0, 5]);
        assert!(!pass && failures.len() == 2, "{failures:?}");
    }
}
