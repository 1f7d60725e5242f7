//! Rules of every table, as the daemon shows them.

use limiter_api::limits::LimitEntry;
use limiter_api::sources::top::AskTop;
use limiter_api::sources::{AskSources, DroppedBy};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Ban, RULE_RETIRED, RuleCounters, Tally};
use limiter_rules::compile::RuleId;
use limiter_rules::place::budget_tag;

use super::sources::listed;
use super::*;

const TABLES: &str = "budgets:
  - name: customer
    rate_limits:
      - {unit: second, requests_per_unit: 5}
      - {unit: minute, requests_per_unit: 9, count: syns}
descriptors:
  - key: destination_port
    value: 22
    descriptors:
      - key: remote_address
        rate_limit: {name: ssh, unit: minute, requests_per_unit: 10, burst: 5, count: syns}
        action: {ban: {evidence: none}}
  - key: remote_address
    rate_limits:
      - {unit: second, requests_per_unit: 100, burst: 20}
      - {unit: minute, requests_per_unit: 60, algorithm: sliding_slots, strict: true}
    action: reject
  - {key: remote_address, value: 192.0.2.0/24, budget: customer}
  - key: vlan
    rate_limit: {unit: second, requests_per_unit: 10, ceiling: {unit: second, requests_per_unit: \
                      20}, mark: {dscp: af11}}
";

fn started(rules: &str, management: &[&str]) -> Daemon {
    let mut daemon = Daemon::start(management);
    daemon.write(rules);
    daemon.service.reload().unwrap();
    daemon
}

fn find<'a>(entries: &'a [LimitEntry], source: &str) -> &'a LimitEntry {
    entries.iter().find(|entry| entry.source == source).unwrap_or_else(|| panic!("no {source}"))
}

/// A tag that the card removed is not in the frame, so a rule for it is reported to have no effect:
/// as long as this holds, and only for rules that match tags.
#[test]
fn a_rule_for_a_vlan_is_reported_where_tags_are_taken_off() {
    const BY_TAG: &str = "descriptors:
  - {key: vlan, value: 5, rate_limit: {unit: second, requests_per_unit: 10}}\n";
    const PLAIN: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 10}}\n";
    let warnings = |daemon: &Daemon| daemon.service.status().unwrap().warnings;
    let mut daemon = started(BY_TAG, &["203.0.113.9"]);
    assert_eq!(warnings(&daemon), [""; 0]);
    daemon.fake.state().strips_tags = Some(true);
    daemon.service.reload().unwrap();
    let output = warnings(&daemon).join("\n");
    for words in ["fake0", "the rule for vlan=5", "ethtool -K fake0 rxvlan off"] {
        assert!(output.contains(words), "{output}");
    }
    daemon.fake.state().strips_tags = None;
    daemon.service.reload().unwrap();
    let output = warnings(&daemon).join("\n");
    assert!(output.contains("the fake refuses") && output.contains("ethtool -k fake0"), "{output}");
    daemon.write(PLAIN);
    daemon.service.reload().unwrap();
    assert_eq!(warnings(&daemon), [""; 0]);
}

/// A rule for an existing interface without limiter is reported to meet nothing, when it is put in
/// force and in the status; other rules are not.
#[test]
fn a_rule_for_an_interface_without_limiter_is_reported() {
    let rule = |name: &str| {
        format!(
            "descriptors: [{{key: interface, value: {name}, descriptors: [{{key: remote_address, \
             rate_limit: {{rate: 100/s}}}}]}}]\n"
        )
    };
    let warnings = |daemon: &Daemon| daemon.service.status().unwrap().warnings;
    let mut daemon = started(&rule("fake0"), &["203.0.113.9"]);
    assert_eq!(warnings(&daemon), [""; 0]);
    daemon.write(&rule("fake1"));
    let output = daemon.service.reload().unwrap().warnings;
    assert_eq!(output, warnings(&daemon));
    assert_eq!(
        output,
        [
            "the rule for interface=fake1 remote_address limits nothing: limiter is not on fake1, and \
          no packet comes by it; write the interface that packets come in by (limited: fake0), or \
          start the daemon with --iface fake1 as well"
        ]
    );
    daemon.write(&rule("fake0"));
    daemon.service.reload().unwrap();
    assert_eq!(warnings(&daemon), [""; 0]);
}

#[test]
fn every_limit_is_listed() {
    let daemon = started(TABLES, &[]);
    let limits = daemon.service.limits().unwrap();
    let texts = |source: &str| -> Vec<String> {
        find(&limits.limits, source).limits.iter().map(|limit| limit.text.clone()).collect()
    };
    assert_eq!(texts("destination_port=22 remote_address"), ["10 syns/min burst 5"]);
    assert_eq!(texts("every source"), ["100/s burst 20", "sliding_slots 60/min slots 4 strict"]);
    assert_eq!(texts("vlan"), ["10/s burst 10, ceiling 20/s burst 20, between them mark dscp 10"]);
    let every = find(&limits.limits, "every source");
    assert_eq!((every.limit.as_str(), every.burst), ("100/s", Some(20)));
    assert_eq!(every.action.as_deref(), Some("reject"));
    // Three of the four slots are whole at any time.
    assert_eq!(every.limits[1].effective_per_second, Some(0.75));
    let ssh = find(&limits.limits, "destination_port=22 remote_address");
    assert_eq!(ssh.name.as_deref(), Some("ssh"));
    assert_eq!(ssh.action.as_deref(), Some("ban 1 min to 1 d"));
    assert_eq!(ssh.count.as_deref(), Some("syns"));
    let shared = find(&limits.limits, "192.0.2.0/24");
    assert_eq!(
        (shared.limit.as_str(), shared.budget.as_deref()),
        ("budget customer", Some("customer"))
    );
    let names: Vec<_> = limits.budgets.iter().map(|budget| budget.source.as_str()).collect();
    assert_eq!(names, ["customer", "(bans)"]);
    assert_eq!(limits.budgets[0].limits.len(), 2);
    assert_eq!(
        limits.warnings,
        [
            "the rule for every source rejects, but there is no `replies`: packets over it are \
             dropped, and nobody is notified; add replies to the rule file",
            "the rule for every source carries no TCP session: it counts packets, and after 60 \
             packets in 1 min no more pass, so an open one hangs; to limit connections, write \
             `rate: 60 syns/min` (`limiter set`: --count syns); to limit packets, at least 10/s",
            "the rule for destination_port=22 remote_address bans without evidence, \
             because its packets carry none, so whoever forges an address gets it banned: write \
             `action: drop`, or keep the ban short",
        ]
    );
    assert_eq!(daemon.service.status().unwrap().rules, 4);
}

#[test]
fn counters_are_found_by_rule_and_budget() {
    let daemon = started(TABLES, &[]);
    let (vlan, budget) = {
        let state = daemon.fake.state();
        let tables = &state.installed().tables;
        let vlan = limiter_rules::model::Part::Fact(limiter_rules::model::Fact::Vlan, None);
        let path = limiter_rules::Path::of([vlan]);
        let vlan = tables.record(&RuleId::new(&path, &|_| None).unwrap()).unwrap().rule;
        (vlan, tables.budget(budget_tag("customer")).unwrap().1.rule)
    };
    let tally = |packets| Tally { packets, bytes: 60 * packets };
    let counters = RuleCounters { passed: tally(7), marked: tally(3), ..RuleCounters::default() };
    daemon.fake.state().rules.insert(vlan, counters);
    let counters = RuleCounters { dropped: tally(5), ..RuleCounters::default() };
    daemon.fake.state().rules.insert(budget, counters);

    let limits = daemon.service.limits().unwrap();
    let entry = find(&limits.limits, "vlan");
    assert_eq!((entry.passed.packets, entry.marked.packets), (7, 3));
    assert_eq!(find(&limits.budgets, "customer").dropped.packets, 5);
    assert_eq!(find(&limits.limits, "192.0.2.0/24").dropped.packets, 0);
    let stats = daemon.service.stats().unwrap();
    let rule = stats.rules.iter().find(|rule| rule.rule == "vlan").unwrap();
    assert_eq!((rule.passed.packets, rule.marked.packets), (7, 3));
    let rule = stats.budgets.iter().find(|rule| rule.rule == "customer").unwrap();
    assert_eq!(rule.dropped.packets, 5);
}

#[test]
fn a_source_is_shown_with_all_of_its_limits() {
    let daemon = started(TABLES, &[]);
    let view = daemon.service.source("198.51.100.1").unwrap();
    assert_eq!((view.limits.len(), view.action.as_deref()), (2, Some("reject")));
    assert_eq!((view.burst, view.remaining), (Some(20), Some(20)));
    let view = daemon.service.source("192.0.2.1").unwrap();
    // The remainder is that of the budget.
    assert_eq!((view.limit.as_deref(), view.of), (Some("budget customer"), Some(5)));
}

#[test]
fn what_cannot_be_installed_names_its_line() {
    let mut daemon = Daemon::start(&[]);
    let path = daemon.directory.path().join("r.yaml").display().to_string();
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    for (text, message) in [
        (
            "descriptors:\n  - {key: vlan, budget: nobody}\n".to_owned(),
            "2:5: rule for vlan: there is no budget \"nobody\": add it under budgets, or name \
             another",
        ),
        (
            format!(
                "descriptors:\n  - {{key: vlan, {limit}}}\n  - {{key: interface, value: fake9, \
                 {limit}}}\n"
            ),
            "3:5: rule for interface=fake9: there is no interface \"fake9\": `ip link` shows all; \
             create it first",
        ),
        (
            format!("descriptors:\n  - {{key: vlan, {limit}, action: {{cpu: 2}}}}\n"),
            "2:5: rule for vlan: there is no CPU 2: this machine has 2, and the first is 0",
        ),
        (
            format!(
                "replies: {{unit: second, requests_per_unit: 400000000}}\ndescriptors:\n  - \
                 {{key: vlan, {limit}}}\n"
            ),
            "1:10: replies: 400000000/s is faster than can be held to 1 %: the fastest is 320M/s",
        ),
    ] {
        daemon.write(&text);
        let refusal = daemon.service.reload().unwrap_err();
        assert_eq!(refusal.to_string(), format!("{path}:{message}"));
    }
    assert_eq!(daemon.rules().len(), 2);
}

#[test]
fn rules_inside_management_prefixes_are_not_in_force() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let daemon = started(
        &format!(
            "descriptors:
  - {{key: vlan, descriptors: [{{key: remote_address, value: 203.0.113.9, {limit}}}]}}
  - {{key: vlan, descriptors: [{{key: remote_address, value: 198.51.100.9, {limit}}}]}}
"
        ),
        &["203.0.113.0/24"],
    );
    let limits = daemon.service.limits().unwrap();
    assert_eq!(
        limits.warnings,
        ["the rule for vlan remote_address=203.0.113.9 (file) is not in force: it is inside the \
             management prefix 203.0.113.0/24"]
    );
    assert!(limits.limits.iter().any(|entry| entry.source == "vlan remote_address=198.51.100.9"));
    assert!(!limits.limits.iter().any(|entry| entry.source.contains("203.0.113.9")));
}

#[test]
fn a_set_limit_may_reject_and_survives_a_restart() {
    let mut daemon = Daemon::start(&[]);
    let set = |source: &str, rate: &str| SetLimit {
        source: Some(source.into()),
        rate: rate.into(),
        reject: true,
        ..SetLimit::default()
    };
    let changed = daemon.service.set(&set("198.51.100.7", "5/s")).unwrap();
    assert_eq!(changed.warnings.len(), 1);
    let daemon = daemon.restart(&[]);
    let limits = daemon.service.limits().unwrap();
    assert_eq!(find(&limits.limits, "198.51.100.7").action.as_deref(), Some("reject"));
    let mut daemon = daemon;
    let refusal = daemon.service.set(&set("198.51.100.7", "unlimited")).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "unlimited drops nothing that could be reported: leave --reject out"
    );
}

#[test]
fn an_edit_takes_the_place_of_a_rule_with_several_limits() {
    let mut daemon = started(TABLES, &[]);
    daemon.set("192.0.2.0/24", "7/s", None).unwrap();
    let limits = daemon.service.limits().unwrap();
    let entry = find(&limits.limits, "192.0.2.0/24");
    assert_eq!((entry.limit.as_str(), entry.budget.as_deref()), ("7/s", None));
    daemon.unset("192.0.2.0/24").unwrap();
    let limits = daemon.service.limits().unwrap();
    assert_eq!(find(&limits.limits, "192.0.2.0/24").limit, "budget customer");
}

/// Drops are reported by what dropped them, each from its own counters.
#[test]
fn drops_are_reported_by_what_drops_them() {
    let mut daemon = started(TABLES, &[]);
    let tally = |packets| Tally { packets, bytes: 60 * packets };
    let (every, ssh, budget) = {
        let state = daemon.fake.state();
        let tables = &state.installed().tables;
        let every = limiter_rules::Path::of_source(&Selector::Every);
        let every = state.installed().number(&every, &|_| None).unwrap();
        let port = limiter_rules::model::Part::Fact(
            limiter_rules::model::Fact::DestinationPort,
            Some(22.into()),
        );
        let source = limiter_rules::model::Part::Source(limiter_rules::model::SOURCE_MASKS, None);
        let path = limiter_rules::Path::of([port, source]);
        let ssh = tables.record(&RuleId::new(&path, &|_| None).unwrap()).unwrap().rule;
        (every, ssh, tables.budget(budget_tag("customer")).unwrap().1.rule)
    };
    for (rule, packets) in [(every, 3), (ssh, 40), (budget, 500)] {
        let counters = RuleCounters { dropped: tally(packets), ..RuleCounters::default() };
        daemon.fake.state().rules.insert(rule, counters);
    }
    for (reason, packets) in [(Reason::OverLimit, 543), (Reason::Denied, 6), (Reason::Banned, 7)] {
        let index = usize::try_from(reason.index()).unwrap();
        daemon.fake.state().reasons[index] = tally(packets);
    }
    let removed = RuleCounters { dropped: tally(4), ..RuleCounters::default() };
    daemon.fake.state().rules.insert(RULE_RETIRED, removed);
    daemon.fake.state().reasons[Reason::OverLimit.index() as usize] = tally(547);
    // The budget counts as a rule of sources, whose buckets count as well.
    let by = DroppedBy { sources: Some(543), others: Some(0), lists: 13, removed: 4 };
    let top = daemon.service.top(&AskTop::default()).unwrap();
    assert_eq!((top.dropped, top.dropped_by), (560, by));
    let list = listed(&daemon, &AskSources::default(), || {}).unwrap();
    assert_eq!(list.dropped_by, by);

    // A packet that finds no room in a class is dropped by the rule that sends it there: it is not
    // reported twice.
    let class = "budgets: [{name: slow, rate_limit: {unit: second, requests_per_unit: 5}}]
descriptors:
  - {key: vlan, rate_limit: {unit: second, requests_per_unit: 5}, action: {class: slow}}
";
    let others = |rules: &str| {
        let mut daemon = started(rules, &[]);
        let slow = {
            let state = daemon.fake.state();
            state.installed().tables.budget(budget_tag("slow")).unwrap().1.rule
        };
        let counters = RuleCounters { dropped: tally(9), ..RuleCounters::default() };
        daemon.fake.state().rules.insert(slow, counters);
        daemon.service.top(&AskTop::default()).unwrap().dropped_by.others
    };
    assert_eq!(others(class), Some(0));
    assert_eq!(others(&format!("{class}  - {{key: dscp, budget: slow}}\n")), None);
}

/// A source is not reported as unlimited if a rule on other keys, a ban or the rule on martians may
/// drop its packets.
#[test]
fn what_else_may_drop_a_source_is_named() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 5}";
    let rules = format!(
        "martians: drop
descriptors:
  - {{key: destination_port, value: 53, descriptors: [{{key: remote_address, {limit}}}]}}
  - {{key: masked_remote_address, v4_prefix_mask_len: 24, value: 198.51.100.0/24, {limit}}}
  - {{key: destination_address, value: \"2001:db8::1\", {limit}}}
  - {{key: vlan, rate_limit: {{unlimited: true}}}}
  - {{key: dscp, {limit}, shadow_mode: true}}
"
    );
    let daemon = started(&rules, &[]);
    let others = |address: &str| daemon.service.source(address).unwrap().other_rules;
    assert_eq!(others("192.0.2.7"), ["destination_port=53 remote_address"]);
    assert_eq!(others("198.51.100.7").len(), 2);
    assert_eq!(others("::ffff:198.51.100.7").len(), 2);
    let v6 = others("2001:db8:9::7");
    assert!(v6.len() == 2 && v6[1].starts_with("destination_address="), "{v6:?}");
    let view = daemon.service.source("192.0.2.7").unwrap();
    assert_eq!((view.rule, view.other_rules_in_all, view.martian), (None, 1, false));
    assert!(daemon.service.source("127.0.0.1").unwrap().martian);
    let ban = Ban { until: Ticks::from_nanos(u64::MAX >> 8).get(), history: 0, rule: 0 };
    let source = Source::V4([192, 0, 2, 7]);
    daemon.fake.state().model.put_ban(&source, &ban);
    assert!(daemon.service.source("192.0.2.7").unwrap().banned_seconds.is_some());
}
