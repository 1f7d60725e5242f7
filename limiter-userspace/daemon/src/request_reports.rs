//! What processes of `limiter serve` report about their rules for requests: the latest of each,
//! while it reports.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use limiter_text::plain::clean;

use crate::api::bans::RequestRule;
use crate::api::requests::{
    MOST_ADDRESSES, MOST_LINES, MOST_RULES, ReportRequests, ReportedFile, ReportedRequests,
    ReportedRule, RequestCounts, RequestProcess, RequestRates, RequestRow, Requests,
};
use crate::control::Refusal;
use crate::rule_files::RequestPart;

/// Processes whose reports are kept.
const MOST_PROCESSES: usize = 16;

/// Characters of an address, and of the name of a rule.
const MOST_TEXT: usize = 300;

/// Characters of a warning or a note.
const MOST_LINE: usize = 1000;

/// Age of the latest report from which its numbers are old. There is one a second.
const SILENT: Duration = Duration::from_secs(5);

/// Age at which a process is forgotten: it was killed, or it hangs.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// Time for which a process counts that there was no room for: it tries again each minute.
const NOT_SHOWN: Duration = Duration::from_secs(90);

/// Processes without room that are counted.
const MOST_NOT_SHOWN: usize = 1000;

/// A process: its id, and when it began.
type Process = (u32, u64);

#[derive(Debug)]
struct Known {
    at: Instant,
    /// The process's own clock.
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
    /// Processes that there was no room for, and when they reported last.
    not_shown: BTreeMap<Process, Instant>,
}

impl RequestReports {
    /// Takes a report.
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

    /// Makes room: forgets the process that has been silent for longest, if one is.
    fn forget_silent(&mut self, now: Instant) -> bool {
        let silent = self.known.iter().filter(|(_, known)| known.is_silent(now));
        let longest = silent.min_by_key(|(_, known)| known.at).map(|(process, _)| *process);
        longest.is_some_and(|process| self.known.remove(&process).is_some())
    }

    /// All that report, and those that did lately.
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

    /// How many they are.
    pub(crate) fn sum(&self, now: Instant) -> ReportedRequests {
        let is_recent = |at: &&Instant| now.saturating_duration_since(**at) < NOT_SHOWN;
        let not_shown = self.not_shown.values().filter(is_recent).count();
        let none = ReportedRequests { not_shown, ..ReportedRequests::default() };
        self.known(now).fold(none, |sum, known| sum.with(&known.shown, known.is_silent(now)))
    }

    /// What processes say that is wrong with them.
    pub(crate) fn warnings(&self, now: Instant) -> Vec<String> {
        self.lines(now, |process| &process.warnings)
    }

    /// What processes say that is right if it is meant.
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

    /// Processes that answer by other rules than those for requests in files, and files that none
    /// could answer by.
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

    /// Those that are not to be forgotten.
    fn known(&self, now: Instant) -> impl Iterator<Item = &Known> {
        self.known.values().filter(move |known| known.is_recent(now))
    }
}

/// A report in plain text of bounded length, with rates since the one before.
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
        let RequestRule { domain, rule } = RequestRule::named(&domain, &rule);
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

/// A digest as reports have it.
pub(crate) fn shown_digest(digest: u64) -> String {
    format!("{digest:016x}")
}

/// What became of descriptors a second; none if a counter began anew: the rule was away meanwhile.
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
