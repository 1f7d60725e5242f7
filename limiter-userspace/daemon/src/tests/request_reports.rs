//! Reports of `limiter serve`: what is shown of them, for how long, and how much is kept.

use std::time::{Duration, Instant};

use limiter_api::render;
use limiter_api::requests::{
    MOST_LINES, MOST_RULES, OtherRequestRules, ReportRequests, ReportedFile, ReportedRequests,
    ReportedRule, RequestCounts, RequestRates,
};
use limiter_api::rules::Document;

use crate::control::Refusal;
use crate::gauges::request_reports::{RequestReports, shown_digest};
use crate::rule_sets::rule_files::request_parts;

const SECOND: Duration = Duration::from_secs(1);

fn rule(rule: &str, within: u64, over: u64) -> ReportedRule {
    let counts = RequestCounts { within, over, ..RequestCounts::default() };
    ReportedRule { domain: "auth".to_owned(), rule: rule.to_owned(), name: None, counts }
}

fn report(pid: u32, seconds: u64, rules: Vec<ReportedRule>) -> ReportRequests {
    ReportRequests {
        pid,
        began_ms: 7,
        clock_ns: seconds * 1_000_000_000,
        listen: vec!["http://127.0.0.1:8081".to_owned()],
        keys: 1,
        max_keys: 1_000_000,
        rules,
        ..ReportRequests::default()
    }
}

#[test]
fn rates_of_requests_are_of_two_reports_of_one_process() {
    let (mut reports, now) = (RequestReports::default(), Instant::now());
    let rates = |reports: &RequestReports| {
        let processes = reports.list(now).processes;
        processes.iter().flat_map(|of| &of.rules).map(|row| row.rates).collect::<Vec<_>>()
    };
    assert!(reports.list(now).processes.is_empty());
    let shadow = |shadow| {
        let counts = RequestCounts { within: 5, shadow, full_refused: 2, ..Default::default() };
        ReportedRule { counts, ..rule("b", 0, 0) }
    };
    reports.take(report(1, 10, vec![rule("a", 100, 10), shadow(0)]), now).unwrap();
    assert_eq!(rates(&reports), [None; 2]);
    reports.take(report(1, 12, vec![shadow(6), rule("a", 140, 11), rule("c", 9, 9)]), now).unwrap();
    let rate = |passed, refused, over| Some(RequestRates { passed, refused, over });
    assert_eq!(rates(&reports), [rate(3.0, 0.0, 3.0), rate(20.0, 0.5, 0.0), None]);
    // A counter that started again, and another process with the same id.
    reports.take(report(1, 13, vec![rule("a", 3, 0)]), now).unwrap();
    assert_eq!(rates(&reports), [None]);
    let other = ReportRequests { began_ms: 8, ..report(1, 20, vec![rule("a", 500, 0)]) };
    let sum = reports.take(other, now).unwrap();
    assert_eq!(sum, ReportedRequests { processes: 2, rules: 2, ..ReportedRequests::default() });
    assert_eq!(rates(&reports), [None; 2]);
}

/// Old numbers are never shown as live: they are marked, and later forgotten; those of a process
/// that ends are forgotten at once.
#[test]
fn what_is_not_reported_any_more_is_marked_and_forgotten() {
    let (mut reports, now) = (RequestReports::default(), Instant::now());
    for seconds in [1, 2] {
        reports.take(report(1, seconds, vec![rule("a", seconds, 0)]), now).unwrap();
    }
    reports.take(report(2, 1, Vec::new()), now + 50 * SECOND).unwrap();
    let at = |reports: &RequestReports, seconds| reports.list(now + seconds * SECOND);
    let live = &at(&reports, 4).processes[0];
    assert!(!live.silent && live.rules[0].rates.is_some() && live.age_ms == 4000);
    let old = &at(&reports, 5).processes[0];
    assert!(old.silent && old.rules[0].rates.is_none());
    let words = "http://127.0.0.1:8081 (pid 1): 1 rule, 1 of 1,000,000 keys in use; no report for \
                 5 s: these numbers are old";
    assert_eq!(old.words(), words);
    assert_eq!(at(&reports, 59).processes.len(), 2);
    assert_eq!(at(&reports, 60).processes.len(), 1);
    // A killed process is not counted among the reporting ones.
    let sum = |reports: &RequestReports, seconds| reports.sum(now + seconds * SECOND);
    assert_eq!(
        sum(&reports, 50).words(),
        "0 rules of 1 process of `limiter serve`; 1 does not report any more"
    );
    let silent = ReportedRequests { silent: 1, ..ReportedRequests::default() };
    assert_eq!(sum(&reports, 60), silent);
    assert!(!silent.is_empty() && sum(&reports, 110).is_empty());
    let ends = ReportRequests { ends: true, ..report(2, 2, Vec::new()) };
    let sum = reports.take(ends, now + 51 * SECOND).unwrap();
    assert_eq!((sum.processes, sum.silent), (0, 1));
    assert_eq!(at(&reports, 51).processes[0].pid, 1);
}

#[test]
fn reports_are_bounded() {
    let (mut reports, now) = (RequestReports::default(), Instant::now());
    let many = vec![rule("a", 0, 0); MOST_RULES + 1];
    let refused = reports.take(report(1, 1, many), now);
    assert!(matches!(refused, Err(Refusal::Invalid(why)) if why.starts_with("1001 rules and 1 ")));
    for pid in 1..=16 {
        reports.take(report(pid, 1, Vec::new()), now).unwrap();
    }
    let refused = reports.take(report(17, 1, Vec::new()), now);
    assert!(matches!(refused, Err(Refusal::Conflict(why)) if why.starts_with("16 processes")));
    let sum = ReportedRequests { processes: 16, not_shown: 1, ..ReportedRequests::default() };
    assert_eq!(reports.sum(now), sum);
    let words = "0 rules of 16 processes of `limiter serve`; 1 more is not shown, for want of room";
    assert_eq!(sum.words(), words);
    // Known processes go on; the process that has been silent for longest gives way.
    for pid in 2..=16 {
        reports.take(report(pid, 2, Vec::new()), now + 3 * SECOND).unwrap();
    }
    let sum = reports.take(report(17, 1, Vec::new()), now + 6 * SECOND).unwrap();
    assert_eq!(sum, ReportedRequests { processes: 16, ..ReportedRequests::default() });
    let processes = reports.list(now + 6 * SECOND).processes;
    assert!(processes.len() == 16 && processes.iter().all(|process| process.pid != 1));
    // A process that gives up is not counted for ever.
    assert!(reports.take(report(18, 1, Vec::new()), now + 6 * SECOND).is_err());
    assert_eq!(reports.sum(now + 95 * SECOND).not_shown, 1);
    assert_eq!(reports.sum(now + 96 * SECOND).not_shown, 0);
}

/// Texts of a report are plain, and as long as a line at most.
#[test]
fn a_report_is_shown_as_plain_text() {
    let (mut reports, now) = (RequestReports::default(), Instant::now());
    let named = ReportedRule { name: Some("log\u{1b}in".to_owned()), ..rule("a", 1234, 5) };
    let long = rule(&"x".repeat(1000), 0, 0);
    let others = RequestCounts { within: 1000, over: 20, ..RequestCounts::default() };
    let others = OtherRequestRules { rules: 2, counts: others };
    let sent = ReportRequests { others, ..report(4242, 1, vec![named, long]) };
    reports.take(sent, now).unwrap();
    let list = reports.list(now);
    assert_eq!(list.processes[0].rules[1].rule.len(), 300);
    let text = render::text(&list);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.lines().map(words).collect();
    assert_eq!(
        lines[0],
        "requests at http://127.0.0.1:8081 (pid 4242): 4 rules, 1 of 1,000,000 keys in use; 2 rules \
         are not shown: 1,000 passed, 20 refused"
    );
    assert_eq!(lines[1], "RULE REFUSED/S PASSED/S OVER/S REFUSED PASSED OVER");
    assert_eq!(lines[2], "auth: log\u{fffd}in - - - 5 1,234 0");
    assert_eq!(reports.sum(now).words(), "4 rules of 1 process of `limiter serve`");
}

/// Two processes use a file for packets and requests. The daemon names processes of `limiter serve`
/// whose rules differ from those that it has read, and files that they would refuse. Another place
/// in the file, or other rules for packets, do not change the rules for requests.
#[test]
fn processes_with_other_rules_than_the_files_are_named() {
    let file = |name: &str, rate: &str| Document {
        name: name.to_owned(),
        text: format!(
            "descriptors: [{{key: remote_address, rate_limit: {{rate: 9/s}}}}]\nrequests:\n  \
             domain: auth\n  descriptors: [{{key: user, rate_limit: {{rate: {rate}}}}}]\n"
        ),
    };
    let (before, after) = (file("both.yaml", "5/min"), file("both.yaml", "500/min"));
    let moved = Document { text: before.text.replace("9/s", "8/s\n"), ..before.clone() };
    let digest = |of: &Document| match &request_parts(std::slice::from_ref(of))[0].written {
        Ok((domain, digest)) => {
            ReportedFile { domain: domain.clone(), digest: shown_digest(*digest) }
        }
        Err(error) => panic!("{error}"),
    };
    let (mut reports, now) = (RequestReports::default(), Instant::now());
    let of = |files| ReportRequests { files, ..report(7, 1, Vec::new()) };
    reports.take(of(vec![digest(&before)]), now).unwrap();
    let others = |reports: &RequestReports, of: &Document| {
        reports.others_than(&request_parts(std::slice::from_ref(of)), now)
    };
    assert_eq!(others(&reports, &before), Vec::<String>::new());
    assert_eq!(others(&reports, &moved), Vec::<String>::new());
    let line = "`limiter serve` at http://127.0.0.1:8081 (pid 7) still has other rules for requests of \
                the domain \"auth\" than both.yaml: send it SIGHUP, as `systemctl reload \
                limiter-serve` does";
    assert_eq!(others(&reports, &after), [line]);
    let refused = others(&reports, &file("both.yaml", "5/mim"));
    assert!(refused.len() == 1 && refused[0].contains("takes no `requests` of both.yaml"));
    reports.take(of(vec![digest(&after)]), now).unwrap();
    assert_eq!(others(&reports, &after), Vec::<String>::new());
    // Its other reports are shown with its name, and no longer once it is silent.
    let warning =
        ReportRequests { warnings: vec!["of 20\u{1b} requests".to_owned()], ..of(vec![]) };
    reports.take(warning, now).unwrap();
    let shown = reports.warnings(now);
    assert!(shown.len() == 1 && shown[0].contains("(pid 7): of 20"), "{shown:?}");
    assert!(!shown[0].contains('\u{1b}'), "{shown:?}");
    assert_eq!(reports.warnings(now + 6 * SECOND), Vec::<String>::new());
    let many = ReportRequests { notes: vec![String::new(); MOST_LINES + 1], ..of(vec![]) };
    assert!(matches!(reports.take(many, now), Err(Refusal::Invalid(_))));
}
