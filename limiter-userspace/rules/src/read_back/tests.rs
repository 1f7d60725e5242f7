use limiter_common::bucket::Slot;
use limiter_common::wire::{Limit, Record};
use proptest::prelude::*;

use super::*;
use crate::model::{Period, Quota, Unit, terms_text};
use crate::place::InstalledTables;
use crate::rate_text::{RateText, burst};
use crate::{Environment, Plan, RuleFile, RuleSet, Selector};

const INTERFACES: [(&str, u32); 2] = [("eth0", 2), ("eth1", 3)];

fn plan(set: &RuleSet, cluster: Option<u64>) -> Plan {
    let index = |name: &str| INTERFACES.iter().find(|(known, _)| *known == name).map(|(_, at)| *at);
    let environment =
        Environment { max_frame: 1522, interface_index: &index, cpus: 4, cluster, in_at_tc: None };
    Installed::default().plan(set, 1, 1024, &environment).unwrap()
}

/// The rule set of a plan, from what the maps hold of it.
fn read(plan: &Plan) -> ReadSet {
    let tables: Vec<Table> = plan.tables.tables.iter().map(|(table, _)| *table).collect();
    let name =
        |index| INTERFACES.iter().find(|(_, at)| *at == index).map(|(name, _)| (*name).into());
    let header = plan.tables.header;
    read_back(&plan.installed, Beside { header, tables: &tables, interface_name: &name })
}

fn rules(read: &ReadSet) -> Vec<&ReadRule> {
    read.sources.iter().map(|(_, rule)| rule).chain(&read.others).collect()
}

/// The one rule, by its text.
fn only(set: &RuleSet) -> (String, Known) {
    let read = read(&plan(set, None));
    let [rule] = rules(&read)[..] else { panic!("{read:?}") };
    (terms_text(&rule.rule.terms), rule.known)
}

fn plain(rate: &str, of: Option<&str>) -> RuleSet {
    let text = RateText::parse(rate).unwrap();
    let count = match text {
        RateText::Rate { count, .. } => count,
        RateText::Unlimited => panic!("no rate"),
    };
    let burst = of.map(|of| burst(of, count).unwrap());
    let terms = text.terms(burst, 1522).unwrap();
    RuleSet::of([Rule::new(Path::of_source(&Selector::Every), terms)])
}

/// Most rates come back as somebody wrote them; of several with the same numbers the shortest does.
#[test]
fn a_rate_comes_back_as_it_was_written() {
    for (rate, of, reported) in [
        ("100/s", None, "100/s burst 100"),
        ("10k/s", Some("1"), "10000/s burst 1"),
        ("1M/s", Some("64"), "1000000/s burst 64"),
        ("100/min", Some("20"), "100/min burst 20"),
        ("7/min", None, "7/min burst 7"),
        ("5/day", None, "5/day burst 5"),
        ("3/week", Some("2"), "3/week burst 2"),
        ("1/7s", None, "1/7s burst 1"),
        ("90/min", None, "90/min burst 90"),
        ("7/97s", Some("5"), "7/97s burst 5"),
        ("11/10007s", Some("5"), "11/10007s burst 5"),
        ("10mbit/s", None, "10mbit/s burst 1.25 MB"),
        ("64kbit/s", Some("9000"), "8kB/s burst 9 kB"),
        ("1gbit/s", Some("1MB"), "1gbit/s burst 1 MB"),
        ("1MiB/s", Some("60kB"), "1MiB/s burst 60 kB"),
        ("10MB/hour", Some("2000"), "10MB/hour burst 2 kB"),
        // Shorter, with the same numbers.
        ("600/min", Some("20"), "10/s burst 20"),
        ("100/5min", None, "20/min burst 100"),
    ] {
        assert_eq!(only(&plain(rate, of)), (reported.to_owned(), Known::Exactly), "{rate} {of:?}");
    }
}

/// All numbers of a limit that say what the program does, but for the places of other things.
fn numbers(limit: &Limit) -> (u64, u64, u8, u8, u8, u8) {
    let Limit { increment, tolerance, shift, count, kind, full, .. } = *limit;
    (increment, tolerance, shift, count, kind, full)
}

fn any_rate() -> impl Strategy<Value = RateLimit> {
    use limiter_common::wire::Count;
    let unit = prop::sample::select(Unit::ALL.to_vec());
    let multiplier = prop_oneof![3 => Just(1u32), 1 => 2u32..=60, 1 => 61u32..=366];
    let units = prop_oneof![1u64..200, 1u64..100_000, 1u64..200_000_000];
    let count = prop_oneof![Just(Count::Packets), Just(Count::Bytes)];
    (count, units, unit, multiplier, 0u64..100_000).prop_map(
        |(count, requests_per_unit, unit, multiplier, burst)| {
            let least = if count == Count::Bytes { 1522 } else { 1 };
            // No longer than anybody can write.
            let most = u32::try_from(Period::most(unit)).unwrap_or(u32::MAX);
            let period = Period { unit, multiplier: multiplier.min(most) };
            Quota::new(count, requests_per_unit, period).with_burst(least + burst)
        },
    )
}

proptest! {
    /// Words that are said to be exact: compiling them gives the same numbers; and of a rate that
    /// somebody can write there are such words.
    #[test]
    fn words_give_the_numbers_again(rate in any_rate()) {
        let set = RuleSet::of([Rule::new(Path::of_source(&Selector::Every), rate)]);
        let index = |_: &str| None;
        let environment =
            Environment { interface_index: &index, cpus: 1, ..Environment::of_frame(1522) };
        // Too slow for its burst, or so.
        let Ok(plan) = Installed::default().plan(&set, 1, 64, &environment) else { return Ok(()) };
        let read = read(&plan);
        let [rule] = rules(&read)[..] else { return Err(TestCaseError::fail("one rule")) };
        prop_assert_eq!(rule.known, Known::Exactly, "{:?}", rate);
        let again = RuleSet::of([Rule::clone(&rule.rule)]);
        let again = Installed::default().plan(&again, 1, 64, &environment).unwrap();
        let limit = |plan: &Plan| numbers(&plan.limits[0].1);
        let reported = terms_text(&rule.rule.terms);
        prop_assert_eq!(limit(&again), limit(&plan), "{} of {:?}", reported, rate);
    }
}

/// Every kind of rule, limit and action. The order of the keys is the one that is reported.
const EVERYTHING_THERE_IS: &str = r#"
domain: all
replies: {rate: 100/s, burst: 7}
bans: {rate: 5/s, burst: 6}
martians: drop
budgets:
  - name: customer
    rate_limit: {rate: 1mbit/s, burst: 60kB}
  - name: slow
    rate_limit: {rate: 50/s, burst: 10}
descriptors:
  - key: remote_address
    rate_limit: {rate: 1000/s, burst: 200}
  - key: remote_address
    value: 203.0.113.5
    rate_limit: {unlimited: true}
  - key: remote_address
    value: [198.51.100.0/24, "2001:db8:7::/48"]
    budget: customer
  - key: remote_address
    value: 192.0.2.0/24
    rate_limits:
      - {rate: 100/s, burst: 20}
      - {rate: 10 syns/min, burst: 5}
    action: {class: slow}
  - key: remote_address
    value: 192.0.2.128/25
    shadow_mode: true
    rate_limit: {rate: 100/s, burst: 20}
  - key: masked_remote_address
    v4_prefix_mask_len: 24
    v6_prefix_mask_len: 48
    rate_limit: {rate: 2000/s, burst: 100}
  - key: destination_port
    value: 22
    descriptors:
      - key: remote_address
        rate_limit: {rate: 10 syns/min, burst: 5}
        action: {ban: {first: 1min, longest: 1day, evidence: none}}
  - key: destination_port
    value: 1000-1999
    descriptors:
      - key: remote_address
        rate_limit: {rate: 30/s, burst: 5}
        action: reject
  - key: protocol
    value: udp
    rate_limit: {rate: 300/s, burst: 30}
    action: {mark: {dscp: 8}}
  - key: interface
    value: eth0
    descriptors:
      - key: remote_address
        rate_limit: {rate: 70/s, burst: 7}
        action: {interface: eth1}
  - key: vlan
    rate_limit:
      {rate: 100/s, burst: 10, ceiling: {rate: 200/s, burst: 20}, mark: {ecn: true}}
  - key: dscp
    value: 1
    rate_limit: {unit: minute, requests_per_unit: 50, algorithm: sliding_slots, slots: 4}
  - key: dscp
    value: 2
    rate_limit: {unit: minute, requests_per_unit: 50, algorithm: fixed_window}
  - key: dscp
    value: 3
    rate_limit: {unit: second, requests_per_unit: 20, algorithm: sliding_log}
  - key: dscp
    value: 4
    rate_limit: {unit: hour, requests_per_unit: 50, algorithm: sliding_counter}
  - key: dscp
    value: 5
    rate_limit: {unit: second, requests_per_unit: 50, algorithm: leaky_bucket, backlog: 20ms}
  - key: dscp
    value: 6
    action: drop
  - key: generic_key
    value: whole
    rate_limit: {rate: 900/s, burst: 90}
"#;

/// The same of outgoing packets, and of both directions: other tables.
const GOING_OUT: &str = r"
budgets:
  - {name: customer, rate_limit: {rate: 1mbit/s, burst: 60kB}}
descriptors:
  - {key: remote_address, direction: out, rate_limit: {rate: 100/s, burst: 20}}
  - {key: remote_address, value: 192.0.2.0/24, direction: out, budget: customer}
  - key: remote_address
    value: 198.51.100.0/24
    direction: out
    rate_limit: {rate: 10mbit/s, burst: 60kB}
    action: {delay: {longest: 200ms}}
  - key: remote_address
    value: 203.0.113.0/24
    direction: out
    rate_limit: {unit: second, requests_per_unit: 5, algorithm: leaky_bucket, backlog: 20ms}
    action: {delay: {longest: 1999ms, ecn: true}}
  - {key: remote_address, direction: both, rate_limit: {rate: 300/s, burst: 20}}
  - key: destination_port
    value: 53-60
    direction: out
    descriptors:
      - {key: source_address, rate_limit: {rate: 30/s, burst: 5}}
  - key: source_port
    value: 22
    direction: out
    descriptors:
      - {key: remote_address, rate_limit: {rate: 40/s, burst: 5}, action: {mark: {dscp: 8}}}
  - key: destination_port
    value: 27015
    direction: both
    descriptors:
      - {key: remote_address, rate_limit: {rate: 50/s, burst: 5}}
  - {key: generic_key, value: a, direction: out, rate_limit: {rate: 900/s, burst: 90}}
  - {key: generic_key, value: b, direction: both, rate_limit: {rate: 950/s, burst: 95}}
";

/// Names of budgets as they are reported.
fn renamed(text: &str, names: &[(&str, &str)]) -> String {
    names.iter().fold(text.to_owned(), |text, (name, reported)| text.replace(name, reported))
}

#[test]
fn rules_of_every_kind_come_back() {
    come_back(EVERYTHING_THERE_IS, Martians::Drop);
}

/// The bits of a table say which way its packets go.
#[test]
fn rules_of_outgoing_packets_come_back() {
    come_back(GOING_OUT, Martians::Charge);
}

fn come_back(text: &str, martians: Martians) {
    let file = RuleFile::parse("all.yaml", text.as_bytes(), 1522).unwrap();
    let plan = plan(&file.rules, None);
    let read = read(&plan);
    assert!(rules(&read).iter().all(|rule| rule.known == Known::Exactly), "{read:?}");
    let names = [("\"customer\"", "\"(unknown 1)\""), ("\"slow\"", "\"(unknown 2)\"")];
    let line =
        |rule: &Rule| format!("{}: {}", rule.path, renamed(&terms_text(&rule.terms), &names));
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let reported = sorted(rules(&read).iter().map(|read| line(&read.rule)).collect());
    assert_eq!(reported, sorted(file.rules.rules.iter().map(|rule| line(rule)).collect()));
    let reported: Vec<_> = read.budgets.iter().map(|read| &read.budget.limits).collect();
    assert_eq!(
        reported,
        file.rules.budgets.iter().map(|budget| &budget.limits).collect::<Vec<_>>()
    );
    let exactly = |rate: Option<RateLimit>| rate.map(|rate| (rate, Known::Exactly));
    let bounds = (exactly(file.rules.replies), exactly(file.rules.bans));
    assert_eq!((read.replies, read.bans), bounds);
    assert_eq!(read.martians, martians);
    // The counters are those of the rules.
    for rule in rules(&read) {
        let index = |name: &str| INTERFACES.iter().find(|(at, _)| *at == name).map(|(_, at)| *at);
        let number = plan.installed.number(&rule.rule.path, &index);
        assert_eq!(Some(rule.number), number, "{}", rule.rule.path);
    }
}

/// A window of strict slots and a longer one of others may be the same to the program: one of them
/// is reported.
#[test]
fn slots_come_back_as_the_rounder_window() {
    let of = |algorithm: &str| {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: dscp\n    \
             rate_limit: {{unit: minute, requests_per_unit: 6, {algorithm}}}\n"
        );
        let (reported, known) = only(&RuleFile::parse("r", text.as_bytes(), 1522).unwrap().rules);
        assert_eq!(known, Known::Exactly);
        reported
    };
    for (slots, strict) in [(2, true), (4, true), (8, true), (2, false), (4, false), (8, false)] {
        let reported = of(&format!("algorithm: sliding_slots, slots: {slots}, strict: {strict}"));
        let end = if strict { " strict" } else { "" };
        // Two slots of a minute in all are one of a minute, whichever.
        if (slots, strict) != (2, true) {
            assert_eq!(reported, format!("sliding_slots 6/min slots {slots}{end}"));
        }
    }
}

/// Of a limit that nodes share, a node's maps have its part: no words say the whole.
#[test]
fn the_part_of_a_node_is_no_whole() {
    let text = "domain: d\n\
                budgets: [{name: b, scope: cluster, rate_limit: {rate: 1000/s, burst: 500}}]\n\
                descriptors: [{key: vlan, value: 7, budget: b}]";
    let file = RuleFile::parse("r", text.as_bytes(), 1522).unwrap();
    let read = read(&plan(&file.rules, Some(3)));
    let [ReadBudget { known, .. }] = read.budgets[..] else { panic!("{read:?}") };
    assert_eq!(known, Known::Part);
}

/// Numbers that no version wrote are reported as about something, and divide by nothing.
#[test]
fn any_numbers_are_reported() {
    let odd = Limit { increment: 0, rule: 2, ..Limit::default() };
    let limits = [odd, Limit { increment: 12_345_678_901, tolerance: 77, ..odd }];
    for limit in limits {
        let slot = 0;
        let mut installed = Installed::default();
        installed.rules.insert(Selector::Every, crate::place::InstalledRule { slot, limit });
        let record = Record { rule: 3, action: 9, ..Record::default() };
        installed.tables = InstalledTables {
            rules: [(
                RuleId::of_source(&Selector::address([192, 0, 2, 1].into())),
                Slot::new(4).index(),
            )]
            .into(),
            records: [(4, record)].into(),
            ..InstalledTables::default()
        };
        let name = |_| None;
        let beside =
            Beside { header: RuleSetHeader::default(), tables: &[], interface_name: &name };
        let read = read_back(&installed, beside);
        let known: Vec<_> = rules(&read).iter().map(|rule| rule.known).collect();
        assert_eq!(known, [Known::About, Known::Exactly], "{limit:?}");
    }
}
