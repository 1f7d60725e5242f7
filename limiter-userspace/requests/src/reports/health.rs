//! What is wrong with this process, and what its owner may have meant otherwise: for
//! `/healthcheck`, the log and the daemon.

use std::fmt::Write as _;
use std::time::Instant;

use crate::reports::unmet::{Counted, requests};
use crate::rules::{Domain, Rule};
use crate::service::Service;

/// Requests for a domain after which a rule that none of them met is reported.
const MANY: u64 = 100;

/// Rules and domains that are named one by one.
const MOST_NAMED: usize = 3;

/// What to report about a process.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// What is wrong: something is not limited, or not answered.
    pub(crate) wrong: Vec<String>,
    /// What is fine if it is intended.
    pub(crate) notes: Vec<String>,
}

impl Health {
    fn add(&mut self, is_wrong: bool, line: String) {
        if is_wrong { &mut self.wrong } else { &mut self.notes }.push(line);
    }
}

impl Service {
    pub(crate) fn health(&self) -> Health {
        let mut health = Health::default();
        if let Some(error) = self.node.cut_off() {
            health.wrong.push(format!(
                "no contact to the other nodes: {error}; rules with scope: cluster do what \
                 on_partition says"
            ));
        }
        if let Some(error) = self.queues.cut_off() {
            health.wrong.push(format!("{error}; nothing can wait in it"));
        }
        health.wrong.extend(self.wrongly_kept());
        health.wrong.extend(self.queues.troubles());
        let rules = self.limiter.rules();
        for queue in rules.queues().iter().filter(|queue| queue.counters.turned().unread) {
            let name = &queue.settings.name;
            health.wrong.push(format!("the workers of the queue {name} read nothing"));
        }
        if self.lateness.is_late() {
            let line = "requests wait: more is asked than is answered in time";
            health.wrong.push(line.to_owned());
        }
        health.wrong.extend(self.limiter.many_brought());
        health.wrong.extend(self.files.not_in_force());
        let mut known = 0;
        for (name, domain) in rules.domains() {
            let (lately, _) = domain.met.lately();
            known += lately.asked;
            if let Some(line) = unmet(name, domain) {
                health.add(lately.none == lately.asked, line);
            }
            health.notes.extend(idle(name, domain));
        }
        // Anybody who may ask may name anything, so it is wrong only if nobody asks correctly.
        if known == 0 {
            health.wrong.extend(self.unknown());
        }
        let (checks, _) = self.stats.checks.lately();
        if let Some(line) = self.refused_checks() {
            health.add(checks.none == checks.asked, line);
        }
        let (empty, _) = self.stats.empty_checks.lately();
        if let Some(line) = self.empty_checks() {
            health.add(empty.none == empty.asked, line);
        }
        health.notes.extend(self.checked_by_custom());
        health
    }

    /// Logs what the owner should fix: at once, and then more and more rarely.
    pub(crate) fn log(&self) {
        self.limiter.log();
        let now = Instant::now();
        let rules = self.limiter.rules();
        let of_domains = rules.domains().into_iter().filter_map(|(name, domain)| {
            domain.met.is_due(now).then(|| unmet(name, domain)).flatten()
        });
        let unknown = &self.limiter.unknown;
        let due = [
            unknown.is_due(now).then(|| self.unknown()),
            self.stats.checks.is_due(now).then(|| self.refused_checks()),
            self.stats.empty_checks.is_due(now).then(|| self.empty_checks()),
            self.stats.no_waits.is_due(now).then(|| self.no_waits()),
        ];
        for line in of_domains.chain(due.into_iter().flatten().flatten()) {
            tracing::warn!("{line}");
        }
    }

    /// Requests for domains that no file has.
    fn unknown(&self) -> Option<String> {
        let (Counted { asked, .. }, latest) = self.limiter.unknown.lately();
        let rules = self.limiter.rules();
        let names: Vec<String> =
            rules.domains().iter().map(|(name, _)| format!("{name:?}")).collect();
        let known = if names.is_empty() {
            "there are no rules: --rules names their files".to_owned()
        } else {
            format!("the rule files have {}", first(&names))
        };
        (asked > 0).then(|| {
            format!(
                "{} named a domain without rules, and passed; the latest: {latest}; {known}",
                requests(asked),
            )
        })
    }

    /// Checks that were refused undecided.
    fn refused_checks(&self) -> Option<String> {
        let (Counted { asked, none, .. }, latest) = self.stats.checks.lately();
        (none > 0).then(|| {
            format!(
                "of {} to /check {none} could not be decided, of which a proxy makes an error or \
                 lets it pass; the latest: {latest}",
                requests(asked)
            )
        })
    }

    /// Checks of which no descriptor could be made.
    fn empty_checks(&self) -> Option<String> {
        let (Counted { asked, some, none }, latest) = self.stats.empty_checks.lately();
        let remedy = "let the proxy send them; the latest";
        let asked_all = requests(asked);
        if none > 0 {
            return Some(format!(
                "of {asked_all} to /check {none} had none of the headers that `check` in the rule \
                 file names, and passed: {remedy}: {latest}"
            ));
        }
        // Some clients may have no key; that none has one is strange.
        (some == asked && asked >= MANY).then(|| {
            format!(
                "of {asked_all} to /check none had all headers that `check` in the rule file names, \
                 so a part of its descriptors is left out: {remedy}: {latest}"
            )
        })
    }

    /// Checks that asked for a wait where there is none.
    fn no_waits(&self) -> Option<String> {
        let (Counted { some, .. }, latest) = self.stats.no_waits.lately();
        (some > 0).then(|| {
            format!("{} with ?wait were answered at once: the latest: {latest}", requests(some))
        })
    }

    /// The domain of checks that name none, where several have `check`.
    pub(crate) fn checked_by_custom(&self) -> Option<String> {
        let rules = self.limiter.rules();
        let several = rules.with_check();
        if several.len() < 2 {
            return None;
        }
        let names: Vec<String> = several.iter().map(|name| format!("/check/{name}")).collect();
        let until = match rules.checked() {
            Some(checked) => format!(
                "/check without a domain stays that of {checked:?} until this process ends, and is \
                 refused after it"
            ),
            None => "/check without a domain is refused".to_owned(),
        };
        Some(format!(
            "{} rule files have `check`, so {until}: ask {}",
            several.len(),
            first(&names)
        ))
    }
}

/// Requests for a domain that match no rule.
fn unmet(name: &str, domain: &Domain) -> Option<String> {
    let (Counted { asked, some, none }, latest) = domain.met.lately();
    let mut line = format!("of {} for the domain {name:?} ", requests(asked));
    // Writing to a string cannot fail.
    let _: std::fmt::Result = match some - none {
        _ if some == 0 => return None,
        0 => write!(line, "{none} met no rule, and passed"),
        more => {
            write!(line, "{none} met no rule and {more} only in part: what met none limits nothing")
        }
    };
    Some(format!("{line}; the latest: {latest}"))
}

/// Rules of a domain that no request has met.
fn idle(name: &str, domain: &Domain) -> Option<String> {
    let asked = domain.met.all().asked;
    let is_idle = |rule: &&std::sync::Arc<Rule>| {
        let since = asked.saturating_sub(rule.counters.asked_before);
        since >= MANY && rule.counters.all().iter().all(|count| *count == 0)
    };
    let idle: Vec<String> =
        domain.rules().iter().filter(is_idle).map(|rule| rule.path.to_string()).collect();
    (!idle.is_empty()).then(|| {
        format!(
            "of {} for the domain {name:?} none met {} of {} rules: {}",
            requests(asked),
            idle.len(),
            domain.rules().len(),
            first(&idle)
        )
    })
}

fn first(names: &[String]) -> String {
    let shown = names.get(..names.len().min(MOST_NAMED)).unwrap_or_default().join(", ");
    match names.len() - names.len().min(MOST_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
