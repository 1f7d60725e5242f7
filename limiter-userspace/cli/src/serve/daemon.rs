//! The daemon, as `limiter serve` asks it for bans and tells it what became of requests.

use std::time::{Duration, UNIX_EPOCH};

use limiter_api::bans::{
    RequestBanAnswer, RequestBanBecame, RequestBans, SetRequestBan, SetRequestBans,
};
use limiter_api::client::{Client, ClientError};
use limiter_api::requests::{
    MOST_ADDRESSES, MOST_LINES, MOST_RULES, OtherRequestRules, ReportRequests, ReportedFile,
    ReportedRequests, ReportedRule, RequestCounts,
};
use limiter_requests::{
    AskedBan, BanAnswer, Daemon, MOST_REPORTED, NotReported, Report, RequestCounts as Counts,
    RuleReport,
};

/// The longest wait for the daemon: other bans wait meanwhile, and no request does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait for a report to be taken. There is another one soon.
const PATIENCE_OF_REPORTS: Duration = Duration::from_secs(1);

const _: () = assert!(MOST_REPORTED <= MOST_RULES, "the daemon would not take such a report");

/// Bytes of the keys and values of a rule, and of its domain.
const MOST_TEXT: usize = 300;

/// The daemon, asked over its socket.
#[derive(Debug)]
pub(crate) struct OverSocket(Client);

impl OverSocket {
    pub(crate) fn new(client: &Client) -> Self {
        Self(client.within(PATIENCE))
    }
}

impl Daemon for OverSocket {
    fn ban(&self, asked: &[AskedBan]) -> Result<Vec<BanAnswer>, String> {
        let bans = asked.iter().map(set).collect();
        let done: RequestBans = self
            .0
            .put("/v1/bans/requests", &SetRequestBans { bans })
            .map_err(|error| error.to_string())?;
        let answer = |RequestBanAnswer { became, why }: RequestBanAnswer| match became {
            RequestBanBecame::Made => BanAnswer::Made,
            RequestBanBecame::InForce => BanAnswer::InForce,
            RequestBanBecame::OverBudget => BanAnswer::OverBudget,
            RequestBanBecame::Refused => BanAnswer::Refused(why.unwrap_or_default()),
        };
        Ok(done.answers.into_iter().map(answer).collect())
    }

    fn report(&self, report: &Report) -> Result<(), NotReported> {
        let client = self.0.within(PATIENCE_OF_REPORTS);
        match client.put::<ReportedRequests>("/v1/requests", &reported(report)) {
            Ok(ReportedRequests { .. }) => Ok(()),
            Err(error) if error.is_failure() => Err(NotReported::Away),
            Err(error @ (ClientError::Refused { .. } | ClientError::Permission(_))) => {
                Err(NotReported::Refused(error.to_string()))
            }
            Err(_) => Err(NotReported::Away),
        }
    }
}

fn lines(of: &[String]) -> Vec<String> {
    of.iter().take(MOST_LINES).cloned().collect()
}

/// The domain of a file, and the digest of what is written in it.
fn file((domain, digest): &(String, u64)) -> ReportedFile {
    ReportedFile { domain: domain.clone(), digest: format!("{digest:016x}") }
}

/// The first bytes of a text.
fn bounded(text: &str) -> String {
    text.get(..text.floor_char_boundary(MOST_TEXT)).unwrap_or_default().to_owned()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn set(ban: &AskedBan) -> SetRequestBan {
    SetRequestBan {
        source: ban.source.to_string(),
        domain: bounded(&ban.domain),
        rule: bounded(&ban.rule),
        first_ms: millis(ban.terms.first),
        longest_ms: millis(ban.terms.longest),
        memory_ms: millis(ban.terms.memory),
    }
}

fn reported(report: &Report) -> ReportRequests {
    let rule = |RuleReport { domain, rule, name, counts }: &RuleReport| ReportedRule {
        domain: bounded(domain),
        rule: bounded(rule),
        name: name.as_deref().map(bounded),
        counts: counted(*counts),
    };
    let (others, sum) = report.others;
    ReportRequests {
        pid: std::process::id(),
        // A clock that is before 1970 tells processes apart as well.
        began_ms: report.began.duration_since(UNIX_EPOCH).map(millis).unwrap_or_default(),
        clock_ns: u64::try_from(report.at.as_nanos()).unwrap_or(u64::MAX),
        listen: report.listen.iter().take(MOST_ADDRESSES).map(|at| bounded(at)).collect(),
        keys: report.keys,
        max_keys: report.max_keys,
        rules: report.rules.iter().map(rule).collect(),
        others: OtherRequestRules { rules: others, counts: counted(sum) },
        warnings: lines(&report.warnings),
        notes: lines(&report.notes),
        files: report.files.iter().take(MOST_LINES).map(file).collect(),
        ends: report.ends,
    }
}

fn counted(counts: Counts) -> RequestCounts {
    let Counts { within, over_soft, over, queued, shadow, unlimited, .. } = counts;
    let Counts { not_charged, full_passed, full_refused, full_shared, .. } = counts;
    RequestCounts {
        within,
        over_soft,
        over,
        queued,
        shadow,
        unlimited,
        not_charged,
        full_passed,
        full_refused,
        full_shared,
    }
}
