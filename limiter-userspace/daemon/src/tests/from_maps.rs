//! The daemon's answers, compared with those from the maps without it.

use std::path::Path;

use limiter_api::explain::ExplainLimit;
use limiter_api::limits::{LimitEntry, Limits};
use limiter_api::sources::source::SourceView;
use limiter_api::sources::{RuleDrops, SourceRow};
use limiter_api::stats::Stats;
use limiter_common::source::Source;
use limiter_common::wire::{Ban, RuleCounters, Tally};
use limiter_datapath::{Backend as _, DatapathError, Observed};

use super::*;
use crate::control::Refusal;
use crate::views::from_maps;

const RULES: &str = "budgets:
  - {name: customer, rate_limit: {unit: second, requests_per_unit: 5}}
  - {name: slow, rate_limit: {unit: minute, requests_per_unit: 9, count: syns}}
replies: {rate: 10/s}
martians: drop
descriptors:
  - key: remote_address
    rate_limit: {name: all, unit: second, requests_per_unit: 100, burst: 20}
  - {key: remote_address, value: 192.0.2.0/24, budget: customer}
  - key: remote_address
    value: 198.51.100.0/24
    rate_limits:
      - {name: two, unit: second, requests_per_unit: 50, burst: 5}
      - {unit: minute, requests_per_unit: 60, algorithm: sliding_slots, strict: true}
    action: reject
  - key: destination_port
    value: 22
    descriptors:
      - key: remote_address
        rate_limit: {name: ssh, unit: minute, requests_per_unit: 10, burst: 5, count: syns}
        action: {class: slow}
  - key: interface
    value: fake0
    rate_limit: {unit: hour, requests_per_unit: 36}
";

const SOURCES: [&str; 4] = ["203.0.113.1", "192.0.2.7", "198.51.100.9", "203.0.113.200"];

fn started() -> Daemon {
    let mut daemon = Daemon::start(&["203.0.113.200"]);
    daemon.write(RULES);
    daemon.service.reload().unwrap();
    daemon.set("203.0.113.77", "5/day", None).unwrap();
    for source in [[203, 0, 113, 1], [192, 0, 2, 7], [198, 51, 100, 9]] {
        daemon.fake.send(Source::V4(source), 30, 60);
    }
    let ban = Ban { until: u64::MAX / 4, ..Ban::default() };
    daemon
        .service
        .datapath
        .get_mut()
        .unwrap()
        .put_ban(&Source::V4([198, 51, 100, 9]), ban)
        .unwrap();
    // Counters of removed rules, and of every possible rule.
    for number in 1..12 {
        let dropped = Tally { packets: u64::from(number), bytes: 60 };
        let counters = RuleCounters { dropped, ..RuleCounters::default() };
        daemon.fake.state().rules.insert(number, counters);
    }
    daemon
}

fn maps(daemon: &Daemon) -> Box<dyn Observed> {
    daemon.fake.read(Path::new("pinned")).unwrap()
}

/// Entry of the daemon, without what no map holds.
fn without_names(mut entry: LimitEntry) -> LimitEntry {
    let shown = |text: &str| text.replace("customer", "(unknown 1)").replace("slow", "(unknown 2)");
    if entry.origin != Origin::Management {
        entry.origin = Origin::Unknown;
    }
    entry.name = None;
    entry.source = shown(&entry.source);
    entry.limit = shown(&entry.limit);
    entry.budget = entry.budget.as_deref().map(shown);
    entry.action = entry.action.as_deref().map(shown);
    entry
}

/// Rules and budgets, each changed by `change`.
fn entries(limits: &Limits, change: fn(LimitEntry) -> LimitEntry) -> [Vec<LimitEntry>; 2] {
    let sorted = |entries: &[LimitEntry]| {
        let mut entries: Vec<_> = entries.iter().cloned().map(change).collect();
        entries.sort_by(|one, other| one.source.cmp(&other.source));
        entries
    };
    [sorted(&limits.limits), sorted(&limits.budgets)]
}

#[test]
fn the_maps_say_what_the_daemon_says_of_the_rules() {
    let daemon = started();
    let (reported, read) =
        (daemon.service.limits().unwrap(), from_maps::limits(&*maps(&daemon)).unwrap());
    assert_eq!(read.generation, reported.generation);
    assert_eq!(entries(&read, |entry| entry), entries(&reported, without_names));
    assert!(reported.limits.len() == 7 && reported.budgets.len() == 3, "{reported:?}");
    assert!(reported.unknown.is_empty() && read.unknown.join(" ").contains("names of budgets"));
    let text = limiter_api::render::text(&read);
    assert!(text.contains("budget (unknown 1)") && text.contains("management"), "{text}");
    assert_eq!(text.matches(" (unknown)\n").count(), 6 + 3, "{text}");
}

#[test]
fn the_maps_say_what_the_daemon_counts() {
    let daemon = started();
    let mut reported: Stats = daemon.service.stats().unwrap();
    let mut read = from_maps::stats(&*maps(&daemon)).unwrap();
    for stats in [&mut reported, &mut read] {
        let rename =
            |name: &str| name.replace("customer", "(unknown 1)").replace("slow", "(unknown 2)");
        stats.budgets.iter_mut().for_each(|budget| budget.rule = rename(&budget.rule));
        stats.rules.iter_mut().for_each(|rule| rule.rule_name = None);
        stats.rules.sort_by(|one, other| one.rule.cmp(&other.rule));
        stats.budgets.sort_by(|one, other| one.rule.cmp(&other.rule));
    }
    assert_eq!(read, reported);
    assert!(reported.dropped.packets > 0 && reported.removed.dropped.packets == 1);
}

#[test]
fn the_maps_say_what_the_daemon_says_of_a_source() {
    let daemon = started();
    for address in SOURCES {
        let reported: SourceView = daemon.service.source(address).unwrap();
        let read = from_maps::source(&*maps(&daemon), address.parse().unwrap()).unwrap();
        let shown = |text: String| text.replace("customer", "(unknown 1)");
        let keys = |rule: &String| {
            let keys = rule.split_once(" (").and_then(|(_, keys)| keys.strip_suffix(')'));
            keys.unwrap_or(rule).to_owned()
        };
        let mut others: Vec<String> = reported.other_rules.iter().map(keys).collect();
        others.sort();
        let mut read_others = read.other_rules.clone();
        read_others.sort();
        assert_eq!(read_others, others);
        // Nobody reported drops by what keeps no count of sources.
        assert!(read.dropped_at_least || !reported.dropped_at_least);
        let by_rule = reported.by_rule.into_iter().map(|by| RuleDrops {
            rule: by.rule.map(shown),
            rule_name: None,
            // Only a daemon compares two readings and has events.
            dropped_per_second: None,
            since: None,
            ..by
        });
        // The rows are built from the values that are compared here.
        let rows: Vec<SourceRow> = read.rows.clone();
        let reported = SourceView {
            by_rule: by_rule.collect(),
            rows,
            dropped_at_least: read.dropped_at_least,
            limit: reported.limit.map(shown),
            budget: reported.budget.map(shown),
            other_rules: read.other_rules.clone(),
            rule_name: None,
            left: reported
                .left
                .into_iter()
                .map(|left| ExplainLimit { limit: shown(left.limit), ..left })
                .collect(),
            ..reported
        };
        assert_eq!(read, reported, "{address}");
    }
    let of = |address: &str| from_maps::source(&*maps(&daemon), address.parse().unwrap()).unwrap();
    assert!(of("198.51.100.9").banned_seconds.is_some());
    assert_eq!(of("203.0.113.1").passed, 20);
    assert!(of("127.0.0.1").martian);
}

/// Without maps there is an error, as for any command on maps.
#[test]
fn without_maps_there_is_no_answer() {
    let daemon = Daemon::start(&[]);
    let nothing = daemon.fake.read(Path::new("elsewhere")).err();
    assert!(matches!(nothing, Some(DatapathError::NothingPinned(_))), "{nothing:?}");
    let read: Result<Limits, Refusal> = from_maps::limits(&*maps(&daemon));
    assert_eq!(read.unwrap().limits.len(), 2);
}
