//! The report of a run: frames offered, delivered and expected by source, and the verdict.

use anyhow::Result;
use serde::Serialize;

use crate::receiver::Counts;
use crate::sandbox::daemon::{Counted, Totals};
use crate::sandbox::expect::Expectation;
use crate::sandbox::format::{error_percent, percent, table, thousands};
use crate::sandbox::plan::{Role, Sender};

/// The largest error of a delivered count, in percent of the expected one.
pub const TOLERANCE_PERCENT: f64 = 1.0;

/// [`Report::mode`] of a limiter for outgoing packets.
pub const TC_OUT: &str = "tc out";

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of limiter, as `limiter status` reports it.
    pub version: String,
    /// Release of the running kernel.
    pub kernel: String,
    /// Where the program is attached: `native`, `generic` or `offloaded` at XDP, or `tc out`.
    pub mode: String,
    /// Time for which frames were sent, in seconds.
    pub duration_seconds: f64,
    /// The largest error allowed, in percent.
    pub tolerance_percent: f64,
    /// True if every count is within the tolerance and conforming sources lost nothing.
    pub pass: bool,
    /// Reasons for a failure, one sentence each.
    pub failures: Vec<String>,
    /// Losses in the measurement itself; there must be none.
    pub receiver: Clean,
    /// One entry for each row of the table.
    pub sources: Vec<Row>,
    /// Totals that limiter counted on the whole interface.
    pub limiter: Totals,
}

/// Frames lost outside of limiter; any such loss makes the measurement invalid.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Clean {
    /// True if no frame was lost.
    pub clean: bool,
    /// Frames lost between the interface and the receiver's socket.
    pub lost_at_socket: u64,
    /// Frames lost between the sender and the interface.
    pub lost_on_link: u64,
}

/// One sender.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The source, or the prefix of the flood.
    pub source: String,
    /// Behaviour of the sender: `conforming`, `over`, `bursting` or `flood`.
    pub role: &'static str,
    /// Limit of the sender.
    pub limit: String,
    /// Number of sources in the row.
    pub count: usize,
    /// Frames sent.
    pub offered: u64,
    /// Frames that arrived, as counted by the receiver.
    pub delivered: u64,
    /// Frames that an exact limiter delivers at the recorded times.
    pub expected: u64,
    /// Error of `delivered` against `expected`, in percent.
    pub error_percent: f64,
    /// Sources whose `delivered` is not exactly `expected`.
    pub inexact: usize,
    /// Counts by limiter itself.
    pub limiter: Counted,
    /// True if the row is as it should be.
    pub pass: bool,
}

impl Row {
    /// Compares the arrivals with the expectation.
    ///
    /// # Errors
    ///
    /// When a count is out of range.
    pub fn new(
        sender: &Sender,
        expectation: &Expectation,
        counts: &Counts,
        limiter: Counted,
    ) -> Result<Self> {
        let offered = u64::try_from(expectation.offered())?;
        let expected = expectation.delivered();
        let delivered = sender.sources.iter().map(|source| counts.of(*source)).sum();
        let inexact = sender
            .sources
            .iter()
            .zip(expectation.by_source())
            .filter(|(source, expected)| counts.of(**source) != *expected)
            .count();
        let error_percent = error_percent(delivered, expected);
        let lost = sender.role == Role::Conforming && delivered != offered;
        Ok(Self {
            source: sender.text.clone(),
            role: sender.role.name(),
            limit: sender.rule.text.clone(),
            count: sender.sources.len(),
            offered,
            delivered,
            expected,
            error_percent,
            inexact,
            limiter,
            pass: error_percent.abs() <= TOLERANCE_PERCENT && !lost && offered > 0,
        })
    }

    /// Reason why the row fails.
    fn failure(&self) -> Option<String> {
        let Self { source, offered, delivered, expected, .. } = self;
        if self.pass {
            None
        } else if *offered == 0 {
            Some(format!("{source} sent nothing"))
        } else if self.role == Role::Conforming.name() {
            Some(format!("{source} stayed within its limit, but {delivered} of {offered} arrived"))
        } else {
            Some(format!(
                "{source}: {delivered} arrived, {expected} were expected, more than \
                 {TOLERANCE_PERCENT} % off"
            ))
        }
    }
}

impl Report {
    /// Judges the rows.
    pub fn judge(&mut self) {
        self.failures = self.sources.iter().filter_map(Row::failure).collect();
        if !["native", TC_OUT].contains(&self.mode.as_str()) {
            self.failures
                .push(format!("the program is attached in {} mode, not native", self.mode));
        }
        let Clean { clean, lost_at_socket, lost_on_link } = self.receiver;
        if !clean {
            self.failures.push(format!(
                "the measurement is invalid: {lost_on_link} frames were lost on the link and \
                 {lost_at_socket} at the receiver; try again on a less busy machine"
            ));
        }
        let Totals { seen, passed, dropped } = self.limiter;
        if seen != passed + dropped {
            self.failures.push(format!(
                "limiter saw {seen} packets, but passed {passed} and dropped {dropped}"
            ));
        }
        self.pass = self.failures.is_empty();
    }

    /// The last table and the verdict.
    pub fn text(&self) -> String {
        let header = ["source", "limit", "offered", "delivered", "expected", "error", ""];
        let rows = self.sources.iter().map(|row| {
            vec![
                row.source.clone(),
                row.limit.clone(),
                thousands(row.offered),
                thousands(row.delivered),
                thousands(row.expected),
                percent(row.error_percent),
                if row.pass { "ok" } else { "FAIL" }.to_owned(),
            ]
        });
        let Self { version, kernel, mode, duration_seconds, .. } = self;
        let hook = if mode == TC_OUT { mode.clone() } else { format!("{mode} XDP") };
        let mut lines = vec![
            table(&header, &[2, 3, 4, 5], rows),
            format!(" limiter {version}, {hook}, Linux {kernel}, {duration_seconds:.1} s"),
            " delivered: counted behind the limiter; expected: what an exact limiter passes of the \
             frames as sent"
                .to_owned(),
        ];
        lines.extend(self.failures.iter().map(|failure| format!(" FAIL: {failure}")));
        if self.pass {
            lines.push(format!(
                " PASS: every source is within {TOLERANCE_PERCENT} % of its limit, conforming \
                 sources \
                 lost nothing"
            ));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}
