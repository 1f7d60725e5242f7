//! Rules for requests, which `limiter serve` answers by: what it reports, and what is shown.

use std::fmt::Write as _;

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sources::per_second;
use crate::render::{Render, counted, line, number, push, seconds, table, titled, warnings};

/// Rules of one report.
pub const MOST_RULES: usize = 1000;

/// Addresses of one report.
pub const MOST_ADDRESSES: usize = 8;

/// Warnings, notes and rule files of one report.
pub const MOST_LINES: usize = 64;

/// What became of descriptors of requests at a rule, since the rule came into force in its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestCounts {
    /// Within the limits, and charged.
    pub within: u64,
    /// Over a soft limit, and within its ceiling: passed.
    pub over_soft: u64,
    /// Over a limit: refused.
    pub over: u64,
    /// Over a limit, and kept in a queue: it goes later.
    pub queued: u64,
    /// Over a limit in shadow mode: passed.
    pub shadow: u64,
    /// Passed, for nothing limits them.
    pub unlimited: u64,
    /// Within the limits, but refused for another descriptor: not charged.
    pub not_charged: u64,
    /// Without a bucket, and passed.
    pub full_passed: u64,
    /// Without a bucket, and refused.
    pub full_refused: u64,
    /// Without a bucket of their own, charged to the shared one: counted besides.
    pub full_shared: u64,
}

/// A rule of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedRule {
    /// Its domain.
    pub domain: String,
    /// Its keys and values, in one line.
    #[schema(examples("auth_type=login remote_address"))]
    pub rule: String,
    /// The name that its author gave it.
    #[serde(default)]
    pub name: Option<String>,
    /// What became of descriptors.
    pub counts: RequestCounts,
}

/// Rules beyond those that are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OtherRequestRules {
    /// How many they are.
    pub rules: usize,
    /// What became of descriptors, of all of them together.
    pub counts: RequestCounts,
}

/// `PUT /v1/requests`: what became of requests so far, as `limiter serve` reports it each second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportRequests {
    /// Its process id.
    pub pid: u32,
    /// Milliseconds since 1970 at which it began to report: another process may have the same id.
    pub began_ms: u64,
    /// Nanoseconds from then to this report, by a clock that does not jump.
    pub clock_ns: u64,
    /// Addresses that requests come to.
    #[schema(max_items = 8)]
    pub listen: Vec<String>,
    /// Keys that have a bucket.
    pub keys: usize,
    /// Keys that there is room for.
    pub max_keys: usize,
    /// Rules with the most over their limits.
    #[schema(max_items = 1000)]
    pub rules: Vec<ReportedRule>,
    /// The other rules.
    #[serde(default)]
    pub others: OtherRequestRules,
    /// What is wrong with the process, in words.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub warnings: Vec<String>,
    /// What is right if it is meant, in words.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub notes: Vec<String>,
    /// The rule files in force.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub files: Vec<ReportedFile>,
    /// True if the process ends, and is to be forgotten.
    #[serde(default)]
    pub ends: bool,
}

/// A rule file of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedFile {
    /// Its domain.
    pub domain: String,
    /// A digest of what is written in it.
    #[schema(examples("cbf29ce484222325"))]
    pub digest: String,
}

/// The answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedRequests {
    /// Processes that report now.
    pub processes: usize,
    /// Rules of theirs.
    pub rules: usize,
    /// Processes that have missed several reports: each hangs, or was killed.
    #[serde(default)]
    pub silent: usize,
    /// Processes that report, and for which there is no room: nothing is shown of them.
    #[serde(default)]
    pub not_shown: usize,
}

/// `GET /v1/requests`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Requests {
    /// Processes of `limiter serve` that report to this daemon.
    pub processes: Vec<RequestProcess>,
}

/// A process of `limiter serve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestProcess {
    /// Its process id, as it knows it.
    pub pid: u32,
    /// Addresses that requests come to.
    pub listen: Vec<String>,
    /// Milliseconds since its latest report.
    pub age_ms: u64,
    /// True if it has missed several reports: its numbers are old.
    pub silent: bool,
    /// Keys that have a bucket.
    pub keys: usize,
    /// Keys that there is room for.
    pub max_keys: usize,
    /// Its rules; of more than 1,000 those with the most over their limits.
    pub rules: Vec<RequestRow>,
    /// The other ones.
    pub others: OtherRequestRules,
    /// What is wrong with it, in words.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What is right if it is meant, in words.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A rule for requests, in one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestRow {
    /// Its domain.
    pub domain: String,
    /// Its keys and values, in one line.
    #[schema(examples("auth_type=login remote_address"))]
    pub rule: String,
    /// The name that its author gave it.
    pub name: Option<String>,
    /// What became of descriptors.
    pub counts: RequestCounts,
    /// The same a second, between the latest two reports; none while that is not known.
    pub rates: Option<RequestRates>,
}

/// Descriptors of requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestRates {
    /// Those that passed.
    pub passed: f64,
    /// Those that were refused.
    pub refused: f64,
    /// Of what passed: over a soft limit, in shadow mode, or kept in a queue.
    pub over: f64,
}

impl RequestCounts {
    /// Descriptors that passed.
    pub const fn passed(&self) -> u64 {
        let limited = self.within.saturating_add(self.unlimited).saturating_add(self.full_passed);
        limited.saturating_add(self.passed_over())
    }

    /// Descriptors that were refused.
    pub const fn refused(&self) -> u64 {
        self.over.saturating_add(self.full_refused)
    }

    /// Of those that passed: over a soft limit, in shadow mode, or kept in a queue.
    pub const fn passed_over(&self) -> u64 {
        self.over_soft.saturating_add(self.shadow).saturating_add(self.queued)
    }
}

impl Requests {
    /// How many they are.
    pub fn sum(&self) -> ReportedRequests {
        let none = ReportedRequests::default();
        self.processes.iter().fold(none, |sum, process| sum.with(process, process.silent))
    }
}

impl ReportedRequests {
    /// The same with another process.
    #[must_use]
    pub fn with(self, process: &RequestProcess, silent: bool) -> Self {
        if silent {
            return Self { silent: self.silent + 1, ..self };
        }
        let rules = self.rules.saturating_add(process.rules_in_all());
        Self { processes: self.processes + 1, rules, ..self }
    }

    /// True if no process reports, or lately did.
    pub const fn is_empty(&self) -> bool {
        self.processes == 0 && self.silent == 0 && self.not_shown == 0
    }

    /// `3 rules of 1 process`, and processes of which nothing is known.
    pub fn words(&self) -> String {
        let rules = counted(self.rules, "rule", "rules");
        let processes = |count| counted(count, "process", "processes");
        let mut words = format!("{rules} of {} of `limiter serve`", processes(self.processes));
        if self.silent > 0 {
            let silent = counted(self.silent, "does", "do");
            let _: std::fmt::Result = write!(words, "; {silent} not report any more");
        }
        if self.not_shown > 0 {
            let more = counted(self.not_shown, "more is", "more are");
            let _: std::fmt::Result = write!(words, "; {more} not shown, for want of room");
        }
        words
    }
}

impl RequestProcess {
    /// All of its rules, with those that are not named.
    pub fn rules_in_all(&self) -> usize {
        self.rules.len().saturating_add(self.others.rules)
    }

    /// Its addresses and its process id.
    pub fn who(&self) -> String {
        clean(&format!("{} (pid {})", self.listen.join(", "), self.pid))
    }

    /// A line about it.
    pub fn words(&self) -> String {
        let count = |count: usize| number(u64::try_from(count).unwrap_or(u64::MAX));
        let mut words = format!(
            "{}: {}, {} of {} keys in use",
            self.who(),
            counted(self.rules_in_all(), "rule", "rules"),
            count(self.keys),
            count(self.max_keys),
        );
        let OtherRequestRules { rules, counts } = &self.others;
        if *rules > 0 {
            let (passed, refused) = (number(counts.passed()), number(counts.refused()));
            let rules = counted(*rules, "rule is", "rules are");
            let _: std::fmt::Result =
                write!(words, "; {rules} not shown: {passed} passed, {refused} refused");
        }
        if self.silent {
            let age = seconds(self.age_ms / 1000);
            let _: std::fmt::Result = write!(words, "; no report for {age}: these numbers are old");
        }
        clean(&words)
    }
}

impl RequestRow {
    /// Its domain, and the name that its author gave it, else its keys and values.
    pub fn title(&self) -> String {
        let rule = titled(Some(&self.rule), self.name.as_deref());
        clean(&format!("{}: {rule}", self.domain))
    }
}

impl Render for Requests {
    fn render(&self, text: &mut String) {
        for process in &self.processes {
            let _: std::fmt::Result = writeln!(text, "requests at {}", process.words());
            let mut table = table(&[
                "RULE",
                ">REFUSED/S",
                ">PASSED/S",
                ">OVER/S",
                ">REFUSED",
                ">PASSED",
                ">OVER",
            ]);
            for row in &process.rules {
                let rate = |of: fn(&RequestRates) -> f64| per_second(row.rates.as_ref().map(of));
                table.add_row([
                    row.title(),
                    rate(|rates| rates.refused),
                    rate(|rates| rates.passed),
                    rate(|rates| rates.over),
                    number(row.counts.refused()),
                    number(row.counts.passed()),
                    number(row.counts.passed_over()),
                ]);
            }
            push(text, &table);
            warnings(text, &process.warnings);
            for note in &process.notes {
                line(text, format_args!("note: {}", clean(note)));
            }
        }
    }
}
