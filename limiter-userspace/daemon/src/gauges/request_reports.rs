//! Reports by processes of `limiter serve` about their rules for requests: the latest report of
//! each process that keeps reporting.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use limiter_api::bans::RequestRule;
use limiter_api::requests::{
    MOST_ADDRESSES, MOST_LINES, MOST_RULES, ReportRequests, ReportedFile, ReportedRequests,
    ReportedRule, RequestCounts, RequestProcess, RequestRates, RequestRow, Requests,
};
use limiter_text::plain::clean;

use crate::control::Refusal;
use crate::lists::request_bans;
use crate::rule_sets::rule_files::RequestPart;

/// Most processes whose reports are kept.
const MOST_PROCESSES: usize = 16;

/// Most characters of an address, and of the name of a rule.
const MOST_TEXT: usize = 300;

/// Most characters of a warning or a note.
const MOST_LINE: usize = 1000;

/// Age from which the numbers of a report are outdated. Reports come once a second.
const SILENT: Duration = Duration::from_secs(5);

/// Age at which a process is forgotten, because it was killed or hangs.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// Time for which a process without room is counted: it tries again each minute.
const NOT_SHOWN: Duration = Duration::from_secs(90);

/// Most processes without room that are counted.
const MOST_NOT_SHOWN: usize = 1000;

/// A process: its id and its start time.
type Process = (u32, u64);

#[derive(Debug)]
struct Known {
    at: Instant,
    /// Time by the process's own clock.
    clock_ns: u64,
    files: Vec<ReportedFile>,
    shown: RequestProcess,
}

impl Known {
    fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= SILENT
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < FORGOTTEN
    }
}

/// The latest report of each process.
#[derive(Debug, Default)]
pub(crate) struct RequestReports {
    known: BTreeMap<Process, Known>,
    /// Processes without room, with the time of their last report.
    not_shown: BTreeMap<Process, Instant>,
}

impl RequestReports {
    pub(crate) fn take(
        &mut self,
        report: ReportRequests,
        now: Instant,
    ) -> Result<ReportedRequests, Refusal> {
        let lines = [report.warnings.len(), report.notes.len(), report.files.len()];
        if lines.into_iter().any(|lines| lines > MOST_LINES) {
            return Err(Refusal::Invalid(format!(
                "a report has {MOST_LINES} warnings, notes and rule files at most: give fewer"
            )));
        }
        if report.rules.len() > MOST_RULES || report.listen.len() > MOST_ADDRESSES {
            return Err(Refusal::Invalid(format!(
                "{} rules and {} addresses are too many for a report: give {MOST_RULES} rules and \
                 {MOST_ADDRESSES} addresses at most, and the sum of the other rules in `others`",
                report.rules.len(),
                report.listen.len(),
            )));
        }
        self.known.retain(|_, known| known.is_recent(now));
        self.not_shown.retain(|_, at| now.saturating_duration_since(*at) < NOT_SHOWN);
        let process = (report.pid, report.began_ms);
        let before = self.known.remove(&process);
        self.not_shown.remove(&process);
        if report.ends {
            return Ok(self.sum(now));
        }
        if self.known.len() >= MOST_PROCESSES && !self.forget_silent(now) {
            if self.not_shown.len() < MOST_NOT_SHOWN {
                self.not_shown.insert(process, now);
            }
            return Err(Refusal::Conflict(format!(
                "{MOST_PROCESSES} processes of `limiter serve` report already, and no more are \
                 shown: end one, or read the metrics of this one at its own `/metrics`"
            )));
        }
        let clock_ns = report.clock_ns;
        let mut report = report;
        let files = std::mem::take(&mut report.files);
        let shown = shown(report, before.as_ref());
        self.known.insert(process, Known { at: now, clock_ns, files, shown });
        Ok(self.sum(now))
    }

    /// Makes room by forgetting the process that has been silent for longest; returns false if none
    /// is silent.
    fn forget_silent(&mut self, now: Instant) -> bool {
        let silent = self.known.iter().filter(|(_, known)| known.is_silent(now));
        let longest = silent.min_by_key(|(_, known)| known.at).map(|(process, _)| *process);
        longest.is_some_and(|process| self.known.remove(&process).is_some())
    }

    /// The latest reports of all processes not forgotten yet.
    pub(crate) fn list(&self, now: Instant) -> Requests {
        let with_age = |known: &Known| {
            let age = now.saturating_duration_since(known.at);
            let mut process = RequestProcess {
                age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
                silent: known.is_silent(now),
                ..known.shown.clone()
            };
            if process.silent {
                process.rules.iter_mut().for_each(|row| row.rates = None);
            }
            process
        };
        Requests { processes: self.known(now).map(with_age).collect() }
    }

    /// Sums over the processes.
    pub(crate) fn sum(&self, now: Instant) -> ReportedRequests {
        let is_recent = |at: &&Instant| now.saturating_duration_since(**at) < NOT_SHOWN;
        let not_shown = self.not_shown.values().filter(is_recent).count();
        let none = ReportedRequests { not_shown, ..ReportedRequests::default() };
        self.known(now).fold(none, |sum, known| sum.with(&known.shown, known.is_silent(now)))
    }

    /// Warnings by the processes.
    pub(crate) fn warnings(&self, now: Instant) -> Vec<String> {
        self.lines(now, |process| &process.warnings)
    }

    /// Notes by the processes: facts that are fine if they are intended.
    pub(crate) fn notes(&self, now: Instant) -> Vec<String> {
        self.lines(now, |process| &process.notes)
    }

    fn lines(&self, now: Instant, of: fn(&RequestProcess) -> &[String]) -> Vec<String> {
        let live = self.known(now).filter(|known| !known.is_silent(now));
        let lines = live.flat_map(|Known { shown, .. }| {
            of(shown).iter().map(|line| format!("`limiter serve` at {}: {line}", shown.who()))
        });
        lines.collect()
    }

    /// Lines about processes whose rules differ from the rules for requests in the files, and about
    /// files that no process could use.
    pub(crate) fn others_than(&self, parts: &[RequestPart], now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        for RequestPart { file, written } in parts {
            let (domain, digest) = match written {
                Ok(written) => written,
                Err(error) => {
                    lines.push(format!("`limiter serve` takes no `requests` of {file}: {error}"));
                    continue;
                }
            };
            let digest = shown_digest(*digest);
            let others = self.known(now).filter(|known| {
                let mut files = known.files.iter();
                !known.is_silent(now) && files.any(|of| of.domain == *domain && of.digest != digest)
            });
            lines.extend(others.map(|known| {
                format!(
                    "`limiter serve` at {} still has other rules for requests of the domain {domain:?} \
                     than {file}: send it SIGHUP, as `systemctl reload limiter-serve` does",
                    known.shown.who()
                )
            }));
        }
        lines
    }

    /// Processes not to be forgotten yet.
    fn known(&self, now: Instant) -> impl Iterator<Item = &Known> {
        self.known.values().filter(move |known| known.is_recent(now))
    }
}

/// A report in plain text of bounded length, with rates since the previous report.
fn shown(report: ReportRequests, before: Option<&Known>) -> RequestProcess {
    let bounded = |text: &str| clean(&text.chars().take(MOST_TEXT).collect::<String>());
    let long = |text: &str| clean(&text.chars().take(MOST_LINE).collect::<String>());
    let counts_before: HashMap<(&str, &str), &RequestCounts> = before
        .iter()
        .flat_map(|known| &known.shown.rules)
        .map(|row| ((row.domain.as_str(), row.rule.as_str()), &row.counts))
        .collect();
    let nanos = before.and_then(|known| report.clock_ns.checked_sub(known.clock_ns));
    let row = |ReportedRule { domain, rule, name, counts }: ReportedRule| {
        let RequestRule { domain, rule } = request_bans::named(&domain, &rule);
        let then = counts_before.get(&(domain.as_str(), rule.as_str()));
        let rates = then.zip(nanos).and_then(|(then, nanos)| rates(then, &counts, nanos));
        RequestRow { name: name.as_deref().map(bounded), domain, rule, counts, rates }
    };
    RequestProcess {
        pid: report.pid,
        listen: report.listen.iter().map(|at| bounded(at)).collect(),
        age_ms: 0,
        silent: false,
        keys: report.keys,
        max_keys: report.max_keys,
        rules: report.rules.into_iter().map(row).collect(),
        others: report.others,
        warnings: report.warnings.iter().map(|line| long(line)).collect(),
        notes: report.notes.iter().map(|line| long(line)).collect(),
    }
}

/// A digest in the form of the reports.
pub(crate) fn shown_digest(digest: u64) -> String {
    format!("{digest:016x}")
}

/// Results of descriptors a second; `None` if a counter started again, because the rule was away in
/// between.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
fn rates(then: &RequestCounts, now: &RequestCounts, nanos: u64) -> Option<RequestRates> {
    let rate = |of: fn(&RequestCounts) -> u64| {
        let more = of(now).checked_sub(of(then))?;
        (nanos > 0).then(|| more as f64 * 1e9 / nanos as f64)
    };
    Some(RequestRates {
        passed: rate(RequestCounts::passed)?,
        refused: rate(RequestCounts::refused)?,
        over: rate(RequestCounts::passed_over)?,
    })
}
