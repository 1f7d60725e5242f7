//! Reports to the daemon, which shows them beside its own rules: what became of requests, by rule.
//!
//! A thread of its own reports, so no answer waits for the daemon. Without one it looks for it from
//! time to time.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::daemon::{Daemon, NotReported, Report, RequestCounts, RuleReport};
use crate::reports::counters::{Became, Counts};
use crate::reports::health::Health;
use crate::rules::Rule;
use crate::service::Service;

/// Rules of a report: those with the most over their limits.
pub const MOST_REPORTED: usize = 1000;

const EVERY: Duration = Duration::from_secs(1);

/// Time until the next attempt where there is no daemon.
const AWAY: Duration = Duration::from_secs(5);

/// Time until the next attempt where the daemon takes no reports of this process.
const REFUSED: Duration = Duration::from_mins(1);

impl RequestCounts {
    fn of(counts: Counts) -> Self {
        let count = |became: Became| counts.get(became as usize).copied().unwrap_or_default();
        Self {
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

    fn add(&mut self, other: &Self) {
        self.within += other.within;
        self.over_soft += other.over_soft;
        self.over += other.over;
        self.queued += other.queued;
        self.shadow += other.shadow;
        self.unlimited += other.unlimited;
        self.not_charged += other.not_charged;
        self.full_passed += other.full_passed;
        self.full_refused += other.full_refused;
        self.full_shared += other.full_shared;
    }

    /// The order of rules in a report: by what was over a limit, then by what was within.
    const fn weight(&self) -> (u64, u64) {
        let over = self.over + self.full_refused + self.queued + self.over_soft + self.shadow;
        (over, self.within)
    }
}

/// The `most` rules with the most over their limits, in this order; how many others there are, and
/// their sum.
fn first(rules: &[&Arc<Rule>], most: usize) -> (Vec<RuleReport>, (usize, RequestCounts)) {
    // Requests go on meanwhile, so the counters of a rule are read once.
    let mut all: Vec<(RequestCounts, &Arc<Rule>)> =
        rules.iter().map(|rule| (RequestCounts::of(rule.counters.all()), *rule)).collect();
    all.sort_by_key(|(counts, rule)| (Reverse(counts.weight()), &rule.domain, &rule.path));
    let others = all.split_off(most.min(all.len()));
    let mut sum = RequestCounts::default();
    for (counts, _) in &others {
        sum.add(counts);
    }
    let report = |(counts, rule): (RequestCounts, &Arc<Rule>)| RuleReport {
        domain: rule.domain.clone(),
        rule: rule.path.clone(),
        name: rule.name.clone(),
        counts,
    };
    (all.into_iter().map(report).collect(), (others.len(), sum))
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
        listen: Vec<String>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let begins = Begins {
            service: Arc::clone(service),
            listen,
            began: SystemTime::now(),
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
    began: SystemTime,
    since: Instant,
}

impl Begins {
    fn report(&self, ends: bool) -> Report {
        let limiter = &self.service.limiter;
        let rules = limiter.rules();
        let rules: Vec<_> =
            rules.domains().into_iter().flat_map(|(_, domain)| domain.counted()).collect();
        let at = self.since.elapsed();
        let (rules, others) = first(&rules, MOST_REPORTED);
        let Health { wrong, notes } = self.service.health();
        Report {
            began: self.began,
            at,
            listen: self.listen.clone(),
            keys: limiter.keys(),
            max_keys: limiter.most_keys(),
            rules,
            others,
            warnings: wrong,
            notes,
            files: self.service.files.written(),
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
        let all: Vec<&Arc<Rule>> = domain.rules().iter().collect();
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
        let (first, (others, sum)) = first(&all, 3);
        let shown: Vec<_> = first.iter().map(|rule| (&*rule.rule, rule.counts.over)).collect();
        assert_eq!(shown, [("k=v02", 0), ("k=v03", 0), ("k=v01", 5)]);
        let expected =
            RequestCounts { full_refused: 6, not_charged: 3, ..RequestCounts::default() };
        assert_eq!(first[1].counts, expected);
        assert_eq!((others, sum), (2, RequestCounts { within: 1008, ..RequestCounts::default() }));
        let (first, others) = super::first(&all, MOST_REPORTED);
        assert_eq!((first.len(), others), (5, (0, RequestCounts::default())));
    }
}
