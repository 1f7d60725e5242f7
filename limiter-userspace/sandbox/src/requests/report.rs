//! The report of a run: requests sent, allowed, refused and expected by sender, and packets at the
//! card.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use super::bounds;
use super::plan::{Path, Role, Sender};
use super::traffic::Answers;
use crate::sandbox::format::{range, table, thousands};

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of limiter, as `limiter status` reports it.
    pub version: String,
    /// Release of the running kernel.
    pub kernel: String,
    /// Time for which requests were sent, in seconds.
    pub duration_seconds: f64,
    /// True if everything was as it should be.
    pub pass: bool,
    /// Reasons for a failure, one sentence each.
    pub failures: Vec<String>,
    /// One entry for each row of the table.
    pub senders: Vec<Row>,
    /// The sources that the daemon has banned.
    pub banned: Vec<String>,
    /// Packets that the kernel counted as banned, of those sent after the requests.
    pub packets_banned: u64,
    /// Further packets that the senders' kernel sent by itself: ends of connections that the ban
    /// had cut off.
    pub packets_beside: u64,
}

/// One sender.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The source.
    pub source: String,
    /// Behaviour of the sender: `within`, `over`, `bursting` or `banned`.
    pub role: &'static str,
    /// Path that the sender asks for.
    pub path: &'static str,
    /// Limit of the source.
    pub limit: String,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered with 200.
    pub allowed: u64,
    /// Requests answered with 429.
    pub refused: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Requests answered after the first one without an answer.
    pub answered_later: u64,
    /// Requests that reached the server behind nginx.
    pub reached: u64,
    /// Fewest of the answered requests that an exact limiter allows.
    pub expected_least: u64,
    /// Most of the answered requests that an exact limiter allows.
    pub expected_most: u64,
    /// Packets that the source sent after the requests.
    pub packets: u64,
    /// Packets among these that passed the card.
    pub packets_arrived: u64,
    /// True if the row is as it should be.
    pub pass: bool,
}

impl Row {
    /// Compares the answers with the expectation. `packets` are the packets sent and those that
    /// arrived.
    pub fn new(sender: &Sender, answers: &Answers, reached: u64, packets: [u64; 2]) -> Self {
        let expected = bounds::allowed(&answers.asked, &sender.path.limit(), Duration::ZERO);
        let mut row = Self {
            source: sender.text(),
            role: sender.role.name(),
            path: sender.path.text(),
            limit: sender.path.limit_text(),
            sent: answers.sent(),
            allowed: answers.allowed,
            refused: answers.refused,
            unanswered: answers.unanswered,
            answered_later: answers.answered_later,
            reached,
            expected_least: *expected.start(),
            expected_most: *expected.end(),
            packets: packets[0],
            packets_arrived: packets[1],
            pass: false,
        };
        row.pass = row.failures().is_empty();
        row
    }

    fn expected(&self) -> RangeInclusive<u64> {
        self.expected_least..=self.expected_most
    }

    fn is_banned(&self) -> bool {
        self.role == Role::Banned.name()
    }

    /// Reasons why the row fails.
    fn failures(&self) -> Vec<String> {
        let Self { source, sent, allowed, refused, unanswered, reached, .. } = self;
        let Self { packets, packets_arrived, answered_later, .. } = self;
        let mut failures = Vec::new();
        let mut check = |is_good: bool, text: String| {
            if !is_good {
                failures.push(format!("{source} {text}"));
            }
        };
        check(*sent > 0, "sent nothing".to_owned());
        check(
            self.expected().contains(allowed),
            format!("was allowed {allowed} requests, {} were expected", self.expected_text()),
        );
        check(
            allowed == reached,
            format!("was allowed {allowed} requests, and {reached} came to the server"),
        );
        if self.role == Role::Within.name() {
            check(allowed == sent, format!("stayed within its limit, but {refused} were refused"));
        } else {
            check(*refused > 0, "was over its limit, and none of its requests was refused".into());
        }
        if self.is_banned() {
            check(
                *unanswered > 0,
                "was over its limit until the end, and all its requests were answered: no ban"
                    .into(),
            );
            check(*answered_later == 0, format!("got {answered_later} answers after its ban"));
            check(
                *packets_arrived == 0,
                format!("is banned, but {packets_arrived} of {packets} packets came past the card"),
            );
        } else {
            check(*unanswered == 0, format!("got no answer to {unanswered} requests"));
            check(
                packets_arrived == packets,
                format!("is not banned, but {packets_arrived} of {packets} packets arrived"),
            );
        }
        failures
    }

    fn expected_text(&self) -> String {
        range(self.expected_least, self.expected_most)
    }
}

impl Report {
    /// Judges the rows and the whole run.
    pub fn judge(&mut self) {
        let mut failures: Vec<String> = self.senders.iter().flat_map(Row::failures).collect();
        let to_ban: Vec<&str> =
            self.senders.iter().filter(|row| row.is_banned()).map(|row| &*row.source).collect();
        if self.banned != to_ban {
            failures.push(format!(
                "the daemon has banned {:?}, and should have banned {to_ban:?}",
                self.banned
            ));
        }
        let least: u64 =
            self.senders.iter().filter(|row| row.is_banned()).map(|row| row.packets).sum();
        let counted = self.packets_banned;
        if !(least..=least + self.packets_beside).contains(&counted) {
            failures.push(format!(
                "the kernel counted {counted} packets as banned, of {least} that were sent"
            ));
        }
        self.pass = failures.is_empty();
        self.failures = failures;
    }

    /// The table and the verdict.
    pub fn text(&self) -> String {
        let header = [
            "source",
            "asks for",
            "sends",
            "sent",
            "allowed",
            "refused",
            "no answer",
            "expected",
            "packets",
            "",
        ];
        let rows = self.senders.iter().map(|row| {
            let role = [Role::Within, Role::Over, Role::Bursting, Role::Banned];
            let role = role.into_iter().find(|role| role.name() == row.role);
            vec![
                row.source.clone(),
                row.path.to_owned(),
                role.map_or("", Role::text).to_owned(),
                thousands(row.sent),
                thousands(row.allowed),
                thousands(row.refused),
                thousands(row.unanswered),
                row.expected_text(),
                format!("{} of {}", thousands(row.packets_arrived), thousands(row.packets)),
                if row.pass { "ok" } else { "FAIL" }.to_owned(),
            ]
        });
        let Self { version, kernel, duration_seconds, .. } = self;
        let limits = [Path::Search, Path::Login];
        let limits = limits.map(|path| format!("{} {}", path.text(), path.limit_text()));
        let mut lines = vec![
            table(&header, &[3, 4, 5, 6, 7, 8], rows),
            format!(" limiter {version}, Linux {kernel}, {duration_seconds:.1} s"),
            format!(" limits of each source: {}", limits.join("; ")),
            " allowed: answered by the server behind nginx; expected: what an exact limiter allows \
             of the requests that were answered"
                .to_owned(),
            format!(
                " packets: those that came past the card, sent afterwards; the kernel counted {} \
                 as banned",
                thousands(self.packets_banned)
            ),
        ];
        lines.extend(self.failures.iter().map(|failure| format!(" FAIL: {failure}")));
        if self.pass {
            lines.push(format!(
                " PASS: every source was held to its limit, and {} was dropped at the card",
                self.banned.join(", ")
            ));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounds::Asked;
    use super::super::plan::senders;
    use super::*;

    type Change = fn(&mut Report, usize);

    /// A report in which every sender sent 30 requests in 300 ms, and limits were held.
    fn report() -> Report {
        let rows = senders().into_iter().map(|sender| {
            let is_banned = sender.role == Role::Banned;
            let (sent, every) =
                if sender.role == Role::Within { (30, 1_000_000_000) } else { (30, 10_000_000) };
            let at =
                |n| Asked { sent: 1_000_000_000 + n * every, answered: 1_000_000_000 + n * every };
            let asked: Vec<Asked> = (0..sent).map(at).collect();
            let allowed = match (sender.role, sender.path) {
                (Role::Within, _) => 30,
                // 10 at once and one every 50 ms; 5 at once and one every 200 ms.
                (_, Path::Search) => 15,
                (_, Path::Login) => 6,
            };
            let answers = Answers {
                asked,
                allowed,
                refused: sent - allowed,
                unanswered: u64::from(is_banned),
                answered_later: 0,
            };
            let arrived = if is_banned { 0 } else { 100 };
            Row::new(&sender, &answers, allowed, [100, arrived])
        });
        let mut report = Report {
            version: String::new(),
            kernel: String::new(),
            duration_seconds: 1.0,
            pass: false,
            failures: Vec::new(),
            senders: rows.collect(),
            banned: vec!["203.0.113.50".to_owned()],
            packets_banned: 100,
            packets_beside: 0,
        };
        report.judge();
        report
    }

    #[test]
    fn a_run_in_which_all_limits_held_passes() {
        let report = report();
        assert!(report.pass, "{:#?}", report.failures);
        assert!(report.text().contains("PASS"), "{}", report.text());
    }

    #[test]
    fn whatever_is_off_fails_alone() {
        let last = senders().len() - 1;
        let cases: [(Change, &str); 9] = [
            (|report, _| report.senders[1].allowed += 1, "15 were expected"),
            (|report, _| report.senders[1].reached -= 1, "14 came to the server"),
            (|report, _| report.senders[0].unanswered = 1, "no answer to 1 requests"),
            (|report, _| report.senders[2].refused = 0, "none of its requests was refused"),
            (|report, _| report.senders[3].packets_arrived = 99, "99 of 100 packets arrived"),
            (|report, last| report.senders[last].unanswered = 0, "no ban"),
            (|report, last| report.senders[last].packets_arrived = 1, "came past the card"),
            (|report, _| report.banned.push("203.0.113.20".to_owned()), "should have banned"),
            (|report, _| report.packets_banned -= 1, "counted 99 packets"),
        ];
        for (change, why) in cases {
            let mut report = report();
            change(&mut report, last);
            report.judge();
            assert!(!report.pass && report.text().contains("FAIL"), "{why}");
            assert!(
                report.failures.iter().any(|failure| failure.contains(why)),
                "{why}: {report:?}"
            );
        }
    }
}
