//! The report of a run: what was sent, what arrived and how long it waited.

use std::time::Duration;

use serde::Serialize;

use super::plan::{self, Role, STREAM};
use super::traffic::Sent;
use crate::oracle::Limit;
use crate::requests::bounds::{self, Asked};
use crate::sandbox::format::{range, table, thousands};

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of limiter, as `limiter status` reports it.
    pub version: String,
    /// Release of the running kernel.
    pub kernel: String,
    /// Length of each part, in seconds.
    pub duration_seconds: f64,
    /// True if the interface has `fq`, which holds packets until they depart.
    pub holds: bool,
    /// True if everything was as it should be.
    pub pass: bool,
    /// Reasons for a failure, one sentence each.
    pub failures: Vec<String>,
    /// The senders of datagrams.
    pub datagrams: Vec<Row>,
    /// The TCP streams.
    pub streams: Vec<Stream>,
}

/// One sender of datagrams.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Address that it sends to.
    pub target: String,
    /// Behaviour of the sender: `within`, `bursting` or `over`.
    pub role: &'static str,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that arrived.
    pub delivered: u64,
    /// Fewest datagrams that an exact limiter lets depart.
    pub expected_least: u64,
    /// Most datagrams that an exact limiter lets depart.
    pub expected_most: u64,
    /// Longest wait of a datagram that arrived, in milliseconds.
    pub waited_longest_ms: f64,
    /// Median delay of the arrivals after their departure by the bucket, in milliseconds.
    pub late_median_ms: f64,
    /// The 99th percentile of that delay, in milliseconds.
    pub late_p99_ms: f64,
    /// Datagrams that arrived before the bucket lets them depart.
    pub early: u64,
    /// Datagrams that arrived after one that was sent later.
    pub out_of_order: u64,
}

/// One TCP stream.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// What the rule does with packets over the limit: `drop` or `delay`.
    pub action: &'static str,
    /// Bits of payload that arrived a second.
    pub bits_per_second: u64,
    /// The same, in percent of the limit.
    pub percent_of_limit: f64,
}

impl Stream {
    /// Result for `bytes` that arrived within a time.
    pub fn new(action: &'static str, bytes: u64, lasted: Duration) -> Self {
        let rate = u128::from(bytes) * 8 * 1_000_000_000 / lasted.as_nanos().max(1);
        let bits_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
        Self { action, bits_per_second, percent_of_limit: percent_of(bits_per_second, STREAM) }
    }
}

/// `part` of `whole`, in percent.
#[expect(clippy::cast_precision_loss, reason = "far under 2^52")]
pub fn percent_of(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64 * 100.0
}

#[expect(clippy::cast_precision_loss, reason = "far under 2^52")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Smallest value that `of_100` of 100 values do not exceed; 0 if there are none.
pub fn percentile(sorted: &[u64], of_100: usize) -> u64 {
    let rank = (sorted.len() * of_100).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Departure by the bucket and arrival of each datagram that arrived, in nanoseconds.
pub fn departures(sent: &Sent, limit: &Limit) -> Vec<(u64, u64)> {
    let mut arrived = sent.arrivals.clone();
    arrived.sort_unstable();
    let asked: Vec<Asked> =
        arrived.iter().filter_map(|(number, _)| sent.times.get(*number).copied()).collect();
    let departures = bounds::departures(&asked, limit);
    departures.into_iter().zip(arrived.into_iter().map(|(_, at)| at)).collect()
}

/// Delays of the arrivals after their departures, ascending, and the number of early arrivals.
pub fn late(departures: &[(u64, u64)]) -> (Vec<u64>, u64) {
    let early = departures.iter().filter(|(departure, at)| at < departure).count();
    let mut late: Vec<u64> =
        departures.iter().map(|(departure, at)| at.saturating_sub(*departure)).collect();
    late.sort_unstable();
    (late, early as u64)
}

impl Row {
    /// Compares the arrivals with the expectation.
    pub fn new(role: Role, sent: &Sent) -> Self {
        let expected = bounds::allowed(&sent.times, &plan::limit(), plan::kept());
        let (late, early) = late(&departures(sent, &plan::limit()));
        let waited = sent
            .arrivals
            .iter()
            .filter_map(|(number, at)| Some(at.saturating_sub(sent.times.get(*number)?.sent)));
        let behind = sent.arrivals.iter().zip(sent.arrivals.iter().skip(1));
        Self {
            target: role.target().to_string(),
            role: role.name(),
            sent: sent.times.len() as u64,
            delivered: sent.arrivals.len() as u64,
            expected_least: *expected.start(),
            expected_most: *expected.end(),
            waited_longest_ms: millis(waited.max().unwrap_or(0)),
            late_median_ms: millis(percentile(&late, 50)),
            late_p99_ms: millis(percentile(&late, 99)),
            early,
            out_of_order: behind.filter(|((one, _), (next, _))| one > next).count() as u64,
        }
    }

    fn expected_text(&self) -> String {
        range(self.expected_least, self.expected_most)
    }

    /// Reasons why the row fails; `holds` says whether the interface holds packets.
    fn failures(&self, holds: bool) -> Vec<String> {
        let Self { target, sent, delivered, early, out_of_order, .. } = self;
        let mut failures = Vec::new();
        let mut check = |is_good: bool, text: String| {
            if !is_good {
                failures.push(format!("{target}: {text}"));
            }
        };
        check(*sent > 0, "nothing was sent".to_owned());
        check(
            (self.expected_least..=self.expected_most).contains(delivered),
            format!("{delivered} arrived, {} were expected", self.expected_text()),
        );
        // A cable between two CPUs reorders some packets by itself.
        check(out_of_order * 50 <= *delivered, format!("{out_of_order} arrived out of order"));
        if holds {
            check(*early == 0, format!("{early} departed before the bucket let them"));
        }
        if self.role == Role::Over.name() {
            check(delivered < sent, "it was over its limit, and nothing was dropped".to_owned());
        } else {
            check(delivered == sent, format!("{} were lost", sent.saturating_sub(*delivered)));
        }
        failures
    }
}

impl Report {
    /// Judges the rows.
    pub fn judge(&mut self) {
        let rows = self.datagrams.iter();
        let mut failures: Vec<String> = rows.flat_map(|row| row.failures(self.holds)).collect();
        let of = |action| {
            let stream = self.streams.iter().find(|stream| stream.action == action);
            stream.map_or(0, |stream| stream.bits_per_second)
        };
        let (waiting, dropping) = (of("delay"), of("drop"));
        if self.holds && waiting <= dropping {
            failures.push(format!(
                "the TCP stream that waits got {waiting} bits a second, and the other {dropping}"
            ));
        }
        self.pass = failures.is_empty();
        self.failures = failures;
    }

    /// The tables and the verdict.
    pub fn text(&self) -> String {
        let header = [
            "datagrams to",
            "sends",
            "sent",
            "delivered",
            "expected",
            "longest wait",
            "late p50",
            "late p99",
            "early",
        ];
        let ms = |value: f64| format!("{value:.1} ms");
        let rows = self.datagrams.iter().map(|row| {
            let role = Role::ALL.into_iter().find(|role| role.name() == row.role);
            vec![
                row.target.clone(),
                role.map_or("", Role::text).to_owned(),
                thousands(row.sent),
                thousands(row.delivered),
                row.expected_text(),
                ms(row.waited_longest_ms),
                ms(row.late_median_ms),
                ms(row.late_p99_ms),
                thousands(row.early),
            ]
        });
        let streams = self.streams.iter().map(|stream| {
            vec![
                format!("one TCP stream, action: {}", stream.action),
                format!("{} kbit/s", thousands(stream.bits_per_second / 1_000)),
                format!("{:.1} %", stream.percent_of_limit),
            ]
        });
        let Self { version, kernel, duration_seconds, .. } = self;
        let limit = plan::limit();
        let mut lines = vec![
            table(&header, &[2, 3, 4, 5, 6, 7, 8], rows),
            table(&["20 Mbit/s, burst 20 kB", "payload", "of the limit"], &[1, 2], streams),
            format!(" limiter {version}, Linux {kernel}, {duration_seconds:.1} s each"),
            format!(
                " limit of each address: {}/s, burst {}, {} ms of waiting; 0.8 times the limit \
                 never waits",
                limit.units,
                limit.burst,
                plan::LONGEST.as_millis()
            ),
            " late: after the bucket lets it depart; expected: what an exact limiter lets depart"
                .to_owned(),
        ];
        if !self.holds {
            lines.push(
                " This kernel has no fq: what should wait went out at once, no more than may wait. \
                 Packets that wait:\n `cargo xtask vm --filter delay_kernels 6.12`, in an emulated \
                 kernel"
                    .to_owned(),
            );
        }
        lines.extend(self.failures.iter().map(|failure| format!(" FAIL: {failure}")));
        if self.pass {
            let what = if self.holds {
                "everything that may wait arrived, and nothing early"
            } else {
                "everything that may wait arrived, and no more"
            };
            lines.push(format!(" PASS: {what}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}
