//! `GET /v1/check` over the data path in memory.

use limiter_api::check::{CheckSource, Checked};
use limiter_api::lists::{ListName, SetList};
use limiter_common::wire::{Admission, Ban, EntryKind};
use limiter_datapath::fake::SOURCES;

use super::*;

const SOURCE: Source = Source::V4([192, 0, 2, 1]);

fn ask(daemon: &mut Daemon, address: &str, length: Option<u64>) -> Checked {
    let asked = CheckSource { address: address.into(), length, ..CheckSource::default() };
    daemon.service.check(&asked).unwrap()
}

fn check(daemon: &mut Daemon) -> Checked {
    ask(daemon, "192.0.2.1", None)
}

fn at(daemon: &Daemon, millis: u64) {
    daemon.fake.state().now = Ticks::from_nanos(millis * 1_000_000);
}

/// Limit, remaining, reset and retry.
fn numbers(checked: &Checked) -> [Option<u64>; 4] {
    let Checked { limit, remaining, reset_in_seconds, retry_after_seconds, .. } = checked;
    [*limit, *remaining, *reset_in_seconds, *retry_after_seconds]
}

fn reported(checked: &Checked) -> (&str, bool, bool) {
    (&checked.reason, checked.passes, checked.exact)
}

fn reload(daemon: &mut Daemon, rules: &str) {
    daemon.write(rules);
    daemon.service.reload().unwrap();
}

fn deny(daemon: &mut Daemon, source: &str, seconds: Option<u64>) {
    let sources = vec![source.into()];
    daemon
        .service
        .list(&SetList { list: ListName::Deny, sources, seconds, ..SetList::default() })
        .unwrap();
}

/// A limit for each source treats all neighbours on a link as one source; a note says so unless the
/// rules mention them.
#[test]
fn neighbours_that_are_one_source_are_noted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.yaml");
    let notes = |rules: &str| {
        fs::write(&file, rules).unwrap();
        let checked = crate::rule_sets::check::check(
            std::slice::from_ref(&file),
            &mut std::io::empty(),
            1522,
            64,
        );
        assert_eq!(checked.errors, []);
        let text = limiter_api::render::text(&checked);
        assert_eq!(text.contains("note: to the rule"), !checked.notes.is_empty(), "{text}");
        checked.notes.len()
    };
    let each = "{key: remote_address, rate_limit: {rate: 5/hour, burst: 5}}";
    let fe80 = |terms: &str| format!("{{key: remote_address, value: \"fe80::/64\", {terms}}}");
    assert_eq!(notes(&format!("descriptors: [{each}]\n")), 1);
    let unlimited = fe80("rate_limit: {unlimited: true}");
    assert_eq!(notes(&format!("descriptors: [{each}, {unlimited}]\n")), 0);
    let own = fe80("rate_limit: {rate: 9/s}");
    assert_eq!(notes(&format!("descriptors: [{each}, {own}]\n")), 0);
    let allow = "allow: [{address: \"fe80::/64\", reason: neighbours}]";
    assert_eq!(notes(&format!("descriptors: [{each}]\n{allow}\n")), 0);
    assert_eq!(notes(&format!("descriptors: [{unlimited}]\n")), 0);
    let by_port = format!("{{key: destination_port, value: 53, descriptors: [{each}]}}");
    assert_eq!(notes(&format!("descriptors: [{by_port}]\n")), 0);
}

#[test]
fn a_source_over_its_limit_learns_when_to_come_again() {
    let mut daemon = Daemon::start(&[]);
    reload(
        &mut daemon,
        "descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 6, \
         burst: 3}}]\n",
    );
    at(&daemon, 1_000);
    assert_eq!(numbers(&check(&mut daemon)), [Some(3), Some(3), Some(0), None]);
    daemon.fake.send(SOURCE, 2, 60);
    let checked = check(&mut daemon);
    assert_eq!(reported(&checked), ("conforming", true, true));
    assert_eq!(numbers(&checked), [Some(3), Some(1), Some(20), None]);
    daemon.fake.send(SOURCE, 2, 60);
    let checked = check(&mut daemon);
    assert_eq!(reported(&checked), ("over-limit", false, true));
    assert_eq!(checked.rule.as_deref(), Some("every source"));
    assert_eq!(numbers(&checked), [Some(3), Some(0), Some(30), Some(10)]);
    // The time in the answer holds: a second before it is too early, and then it passes.
    at(&daemon, 10_001);
    assert_eq!(numbers(&check(&mut daemon)), [Some(3), Some(0), Some(21), Some(1)]);
    at(&daemon, 11_001);
    assert!(check(&mut daemon).passes);
    assert_eq!(numbers(&ask(&mut daemon, "192.0.2.2", None)), [Some(3), Some(3), Some(0), None]);
}

#[test]
fn with_bytes_the_length_counts() {
    let mut daemon = Daemon::start(&[]);
    daemon.set("192.0.2.1", "8kbit/s", Some(2000)).unwrap();
    at(&daemon, 1_000);
    daemon.fake.send(SOURCE, 1, 1500);
    assert!(check(&mut daemon).passes);
    let checked = ask(&mut daemon, "192.0.2.1", Some(1514));
    assert_eq!(reported(&checked), ("over-limit", false, true));
    assert_eq!(numbers(&checked), [Some(2000), Some(500), Some(2), Some(2)]);
    // No bucket of that size ever holds it.
    assert_eq!(ask(&mut daemon, "192.0.2.1", Some(2001)).retry_after_seconds, None);
    for length in [0, 1 << 17] {
        let asked = CheckSource {
            address: "192.0.2.1".into(),
            length: Some(length),
            ..CheckSource::default()
        };
        assert!(matches!(daemon.service.check(&asked), Err(Refusal::Invalid(_))), "{length}");
    }
}

#[test]
fn the_order_is_the_program_s() {
    let mut daemon = Daemon::start(&["192.0.2.8/30"]);
    at(&daemon, 5_000);
    daemon.fake.send(SOURCE, 101, 60);
    assert_eq!(reported(&check(&mut daemon)).0, "over-limit");
    let until = Ticks::from_nanos(9_500_000_000).get();
    daemon.fake.state().model.put_ban(&SOURCE, &Ban { until, history: 0, rule: 0 });
    let checked = check(&mut daemon);
    assert_eq!(reported(&checked), ("banned", false, true));
    assert_eq!(numbers(&checked), [Some(0), Some(0), Some(5), Some(5)]);
    deny(&mut daemon, "192.0.2.0/24", Some(60));
    let checked = check(&mut daemon);
    assert_eq!(reported(&checked), ("denied", false, true));
    assert_eq!((checked.listed, checked.retry_after_seconds), (Some(ListName::Deny), Some(60)));
    deny(&mut daemon, "192.0.2.0/25", None);
    assert_eq!(numbers(&check(&mut daemon)), [Some(0), Some(0), None, None]);
    // Management prefixes are the longer ones.
    assert_eq!(reported(&ask(&mut daemon, "192.0.2.9", None)), ("allowed", true, true));
    let sources = vec!["192.0.2.1".into()];
    let request =
        SetList { list: ListName::Allow, sources, seconds: Some(2), ..SetList::default() };
    daemon.service.list(&request).unwrap();
    assert_eq!(reported(&check(&mut daemon)), ("allowed", true, true));
    at(&daemon, 7_000);
    assert_eq!(reported(&check(&mut daemon)).0, "denied", "the entry has expired");
    daemon.service.bypass(Bypass { engaged: true, ..Bypass::default() }).unwrap();
    assert_eq!(reported(&check(&mut daemon)), ("bypass", true, true));
}

#[test]
fn what_is_over_a_limit_may_pass() {
    let limit = "rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}";
    for (more, reason, passes, exact) in [
        ("shadow_mode: true", "shadow", true, true),
        ("action: {mark: {dscp: 8}}", "marked", true, true),
        ("action: reject", "over-limit", false, true),
        ("action: {class: slow}", "class", true, true),
    ] {
        let mut daemon = Daemon::start(&[]);
        reload(
            &mut daemon,
            &format!(
                "descriptors: [{{key: remote_address, {limit}, {more}}}]\n\
                 budgets: [{{name: slow, rate_limit: {{unit: second, requests_per_unit: 1}}}}]\n"
            ),
        );
        at(&daemon, 1_000);
        daemon.fake.send(SOURCE, 1, 60);
        let checked = check(&mut daemon);
        assert_eq!(reported(&checked), (reason, passes, exact), "{checked:?}");
        assert_eq!(checked.retry_after_seconds.is_some(), !passes);
        assert_eq!(checked.remaining, Some(0));
    }
}

#[test]
fn what_was_not_looked_at_is_said() {
    let rate = "{unit: second, requests_per_unit: 5}";
    for (rules, reason, missing) in [
        (
            format!(
                "descriptors: [{{key: remote_address, rate_limit: {rate}}}, {{key: \
                 destination_port, value: '22', rate_limit: {rate}}}]"
            ),
            "conforming",
            vec!["rule for destination_port=22"],
        ),
        (
            // A shadow, and a destination of the other family: neither drops packets of it.
            format!(
                "descriptors: [{{key: remote_address, rate_limit: {rate}}}, {{key: \
                 destination_port, value: '22', budget: b}}, {{key: destination_address, value: \
                 '2001:db8::1', rate_limit: {rate}}}]\nbudgets: [{{name: b, shadow_mode: true, \
                 rate_limit: {rate}}}]"
            ),
            "conforming",
            vec![],
        ),
        (
            format!(
                "descriptors: [{{key: remote_address, rate_limits: [{rate}, {{unit: hour, \
                 requests_per_unit: 9}}]}}]"
            ),
            "conforming",
            vec![],
        ),
        (
            "descriptors: [{key: remote_address, rate_limit: {unit: second, requests_per_unit: 5, \
             algorithm: fixed_window}}]"
                .to_owned(),
            "conforming",
            vec![],
        ),
        (
            format!(
                "descriptors: [{{key: remote_address, budget: b}}]\nbudgets: [{{name: b, \
                 rate_limit: {rate}}}]"
            ),
            "conforming",
            vec![],
        ),
        (
            "descriptors: [{key: remote_address, rate_limit: {unit: second, requests_per_unit: 5, \
             count: syns}}]"
                .to_owned(),
            "conforming",
            vec!["limits on SYNs"],
        ),
    ] {
        let mut daemon = Daemon::start(&[]);
        reload(&mut daemon, &rules);
        let checked = check(&mut daemon);
        assert_eq!(reported(&checked), (reason, true, missing.is_empty()), "{rules}");
        assert_eq!(checked.not_looked_at, missing, "{rules}");
    }
    let mut daemon = Daemon::start(&[]);
    // After a flood, a source without a bucket may have used up part of a shared one.
    let admission = Admission { full: 1, made: u64::from(SOURCES), ..Admission::default() };
    daemon.fake.state().admission.insert(EntryKind::V4, admission);
    let checked = check(&mut daemon);
    assert_eq!(reported(&checked), ("conforming", true, false));
    assert_eq!(checked.not_looked_at, ["the bucket that new sources share in a flood"]);
    assert!(ask(&mut daemon, "2001:db8::1", None).exact, "another family's table");
    daemon.fake.send(SOURCE, 1, 60);
    assert!(check(&mut daemon).exact, "it has a bucket of its own");
    daemon.write("descriptors: []\n");
    daemon.service.reload_rules(ReloadRules { force: true, ..ReloadRules::default() }).unwrap();
    assert_eq!(reported(&check(&mut daemon)), ("no-rule", true, true));
    reload(&mut daemon, "martians: drop\ndescriptors: []\n");
    assert_eq!(reported(&ask(&mut daemon, "127.0.0.1", None)), ("martian", false, true));
}

/// The program must find the management prefix again; otherwise a wider denial would be the longest
/// match.
#[test]
fn a_management_prefix_outlives_its_time_on_a_list() {
    use limiter_common::wire::Listed;
    let mut daemon = Daemon::start(&["192.0.2.9"]);
    let sources = vec!["192.0.2.9".into()];
    let request =
        SetList { list: ListName::Allow, sources, seconds: Some(2), ..SetList::default() };
    daemon.service.list(&request).unwrap();
    deny(&mut daemon, "192.0.2.0/24", None);
    at(&daemon, 3_000);
    daemon.service.housekeep().unwrap();
    let now = daemon.fake.state().now;
    let entry = daemon.fake.state().lists[&select("192.0.2.9")];
    assert_eq!(entry.at(now), Some(Listed::Management));
    assert_eq!(reported(&ask(&mut daemon, "192.0.2.9", None)), ("allowed", true, true));
}

/// A file does not say at which hook it will be in force: what a start at XDP refuses, a check
/// names.
#[test]
fn a_check_names_rules_that_take_tc() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.yaml");
    let warned = |text: &str| {
        fs::write(&file, text).unwrap();
        let files = [file.clone()];
        let checked = crate::rule_sets::check::check(&files, &mut std::io::empty(), 1522, 64);
        assert_eq!(checked.errors, []);
        checked.warnings
    };
    let rule = |direction: &str, terms: &str| {
        format!("  - {{key: remote_address, direction: {direction}, {terms}}}\n")
    };
    let limit = "rate_limit: {rate: 1000/s, burst: 9}";
    let waits = format!("{limit}, action: {{delay: {{longest: 200ms}}}}");
    let class = format!("{limit}, action: {{class: slow}}");
    let budgets = format!("budgets: [{{name: slow, {waits}}}]\n");
    let needs = "takes `limiter run --hook tc` and Linux 6.6, and a start without it is refused";
    for (text, who) in [
        (format!("descriptors:\n{}", rule("in", &waits)), "the rule for every source lets"),
        (
            format!("descriptors:\n{}{}", rule("both", &waits), rule("out", limit)),
            "the rule for direction=both remote_address lets",
        ),
        (format!("{budgets}descriptors:\n{}", rule("in", &class)), "the rule for every source"),
    ] {
        let warned = warned(&text);
        let named = |line: &String| line.contains(needs) && line.starts_with(who);
        assert_eq!(warned.iter().filter(|line| named(line)).count(), 1, "{warned:?}");
    }
    for text in [
        format!("descriptors:\n{}", rule("out", &waits)),
        format!("descriptors:\n{}", rule("in", limit)),
    ] {
        assert_eq!(warned(&text), [""; 0]);
    }
}
