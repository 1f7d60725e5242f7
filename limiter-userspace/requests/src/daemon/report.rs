//! Reports to the daemon, which shows them beside its own rules: what became of requests, by rule.
//!
//! A thread of its own reports, so no answer waits for the daemon. Without one it looks for it from
//! time to time.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_api::requests::{
    MOST_ADDRESSES, MOST_LINES, MOST_RULES, OtherRequestRules, ReportRequests, ReportedFile,
    ReportedRule, RequestCounts,
};

use crate::daemon::{Daemon, NotReported, bounded, millis};
use crate::reports::counters::{Became, Counts};
use crate::reports::health::Health;
use crate::rules::Rule;
use crate::service::Service;

const EVERY: Duration = Duration::from_secs(1);

/// Time until the next attempt where there is no daemon.
const AWAY: Duration = Duration::from_secs(5);

/// Time until the next attempt where the daemon takes no reports of this process.
const REFUSED: Duration = Duration::from_mins(1);

fn counted(counts: &Counts) -> RequestCounts {
    let count = |became: Became| counts.get(became as usize).copied().unwrap_or_default();
    RequestCounts {
        within: count(Became::Within),
        over_soft: count(Became::OverSoft),
        over: count(Became::Over),
        queued: count(Became::Queued),
        shadow: count(Became::Shadow),
        unlimited: count(Became::Unlimited),
        not_charged: count(Became::NotCharged),
        full_passed: count(Became::FullPassed),
        full_refused: count(Became::FullRefused),
        full_shared: count(Became::FullShared),
    }
}

/// The order of rules in a report: by what was over a limit, then by what was within.
const fn weight(counts: &RequestCounts) -> (u64, u64) {
    (counts.refused().saturating_add(counts.passed_over()), counts.within)
}

/// The `most` rules with the most over their limits, in this order, and the sum of the others.
fn first(rules: &[Arc<Rule>], most: usize) -> (Vec<ReportedRule>, OtherRequestRules) {
    // Requests go on meanwhile, so the counters of a rule are read once.
    let mut all: Vec<(Counts, &Arc<Rule>)> =
        rules.iter().map(|rule| (rule.counters.all(), rule)).collect();
    all.sort_by_key(|(counts, rule)| (Reverse(weight(&counted(counts))), &rule.domain, &rule.path));
    let others = all.split_off(most.min(all.len()));
    let mut sum = Counts::default();
    for (sum, index) in sum.iter_mut().zip(0..) {
        let counts = others.iter().filter_map(|(counts, _)| counts.get::<usize>(index));
        *sum = counts.sum();
    }
    let report = |(counts, rule): (Counts, &Arc<Rule>)| ReportedRule {
        domain: bounded(&rule.domain),
        rule: bounded(&rule.path),
        name: rule.written.name.as_deref().map(bounded),
        counts: counted(&counts),
    };
    let others = OtherRequestRules { rules: others.len(), counts: counted(&sum) };
    (all.into_iter().map(report).collect(), others)
}

#[derive(Debug)]
pub(crate) struct Reporter {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Reporter {
    /// Starts it. `listen` names the addresses that requests come to.
    pub(crate) fn start(
        service: &Arc<Service>,
        daemon: Arc<dyn Daemon>,
        listen: &[String],
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let begins = Begins {
            service: Arc::clone(service),
            listen: listen.iter().take(MOST_ADDRESSES).map(|at| bounded(at)).collect(),
            // A clock that is before 1970 tells processes apart as well.
            began_ms: SystemTime::now().duration_since(UNIX_EPOCH).map(millis).unwrap_or_default(),
            since: Instant::now(),
        };
        let report = move || begins.run(&*daemon, &stopped);
        let thread = thread::Builder::new().name("request-report".to_owned()).spawn(report)?;
        Ok(Self { stop, thread })
    }

    /// Reports for the last time, if there is a daemon.
    pub(crate) fn stop(self) -> thread::Result<()> {
        drop(self.stop);
        self.thread.join()
    }
}

/// What all reports of this process have in common.
struct Begins {
    service: Arc<Service>,
    listen: Vec<String>,
    began_ms: u64,
    since: Instant,
}

impl Begins {
    fn report(&self, ends: bool) -> ReportRequests {
        let limiter = &self.service.limiter;
        let rules = limiter.counted();
        let at = self.since.elapsed();
        let (rules, others) = first(&rules, MOST_RULES);
        let Health { mut wrong, mut notes } = self.service.health();
        wrong.truncate(MOST_LINES);
        notes.truncate(MOST_LINES);
        let files = self.service.files.written().into_iter().take(MOST_LINES);
        ReportRequests {
            pid: std::process::id(),
            began_ms: self.began_ms,
            clock_ns: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
            listen: self.listen.clone(),
            keys: limiter.keys(),
            max_keys: limiter.most_keys(),
            rules,
            others,
            warnings: wrong,
            notes,
            files: files
                .map(|(domain, digest)| ReportedFile { domain, digest: format!("{digest:016x}") })
                .collect(),
            ends,
        }
    }

    fn run(&self, daemon: &dyn Daemon, stop: &Receiver<()>) {
        let mut wait = Duration::ZERO;
        let mut is_known = false;
        let mut said = None;
        while stop.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            match daemon.report(&self.report(false)) {
                Ok(()) => {
                    (wait, is_known, said) = (EVERY, true, None);
                }
                Err(NotReported::Away) => wait = AWAY,
                Err(NotReported::Refused(why)) => {
                    (wait, is_known) = (REFUSED, false);
                    if said.as_ref() != Some(&why) {
                        tracing::warn!("the daemon does not show the rules for requests: {why}");
                        said = Some(why);
                    }
                }
            }
        }
        if is_known && let Err(why) = daemon.report(&self.report(true)) {
            tracing::debug!(?why, "the daemon does not know that this process ends");
        }
    }
}

#[cfg(test)]
mod tests {
    use limiter_rules::file::requests::RequestFile;

    use super::*;
    use crate::limiter::Limiter;

    fn limiter(values: usize) -> Limiter {
        let rules: Vec<String> = (0..values)
            .map(|value| {
                format!(
                    "  - {{key: k, value: v{value:02}, rate_limit: {{unit: hour, \
                     requests_per_unit: 1}}}}\n"
                )
            })
            .collect();
        let text = format!("domain: d\ndescriptors:\n{}", rules.concat());
        let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
        assert!(errors.is_empty(), "{errors:?}");
        let limiter = Limiter::new(100).unwrap();
        limiter.apply(&[("r.yaml".to_owned(), file)], &crate::clock::Moment::now()).unwrap();
        limiter
    }

    /// A report is bounded: the rules with the most over their limits are in it, and the sum of the
    /// others.
    #[test]
    fn a_report_has_the_rules_with_the_most_over_and_the_sum_of_the_others() {
        let limiter = limiter(5);
        let rules = limiter.rules();
        let (_, domain) = rules.domains().pop().unwrap();
        let all = domain.rules().to_vec();
        let count = |path: &str, became, count| {
            let rule = all.iter().find(|rule| &*rule.path == path).unwrap();
            rule.counters.count_many(became, count);
        };
        count("k=v00", Became::Within, 1000);
        count("k=v01", Became::Over, 5);
        count("k=v02", Became::Shadow, 7);
        count("k=v03", Became::FullRefused, 6);
        count("k=v03", Became::NotCharged, 3);
        count("k=v04", Became::Within, 8);
        let (first, others) = first(&all, 3);
        let shown: Vec<_> =
            first.iter().map(|rule| (rule.rule.as_str(), rule.counts.over)).collect();
        assert_eq!(shown, [("k=v02", 0), ("k=v03", 0), ("k=v01", 5)]);
        let expected =
            RequestCounts { full_refused: 6, not_charged: 3, ..RequestCounts::default() };
        assert_eq!(first[1].counts, expected);
        let counts = RequestCounts { within: 1008, ..RequestCounts::default() };
        assert_eq!(others, OtherRequestRules { rules: 2, counts });
        let (first, others) = super::first(&all, MOST_RULES);
        assert_eq!((first.len(), others), (5, OtherRequestRules::default()));
    }
}
