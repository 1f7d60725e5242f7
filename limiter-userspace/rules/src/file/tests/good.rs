//! Every field of a rule file, read.

use std::sync::Arc;
use std::time::Duration;

use limiter_common::header::Fragment;
use limiter_common::wire::{Evidence, FlagClass};

use super::*;
use crate::model::Martians;
use crate::model::{
    Ban, Budget, Fact, Limits, Mark, Meter, Over, Part, Quota, RateLimit, RuleLimit, SOURCE_MASKS,
    SourceMasks, Upper, Values, terms_text,
};

fn rate(count: Count, requests_per_unit: u64, unit: Unit, burst: u64) -> RateLimit {
    Quota::new(count, requests_per_unit, Period::one(unit)).with_burst(burst)
}

fn bucket(requests_per_unit: u64, burst: u64) -> RuleLimit {
    let rate = rate(Count::Packets, requests_per_unit, Unit::Second, burst);
    RuleLimit::hard(Meter::TokenBucket(rate))
}

fn limits(limits: Vec<RuleLimit>) -> Terms {
    Terms::Limits(Limits::new(limits))
}

fn over(over: Over) -> Terms {
    Terms::Limits(Limits { over, ..Limits::new(vec![bucket(1, 1)]) })
}

fn values(value: u16) -> Values {
    value.into()
}

/// The only rule of a file: its path and what it does.
fn keyed(text: &str) -> (String, Terms) {
    let rules = parse(text).unwrap().rules.rules;
    assert_eq!(rules.len(), 1, "{rules:?}");
    (rules[0].path.to_string(), rules[0].terms.clone())
}

#[test]
fn the_whole_example_is_read() {
    let file = parse(
        "domain: x
replies: {unit: second, requests_per_unit: 100, burst: 100}
bans: {unit: second, requests_per_unit: 10}
budgets:
  - name: customer-a
    rate_limit: {unit: second, requests_per_unit: 5}
    action: reject
    shadow_mode: true
descriptors:
  - key: destination_port
    value: 22
    descriptors:
      - key: remote_address
        rate_limit: {name: ssh, unit: minute, requests_per_unit: 10, burst: 5, count: syns}
        action: {ban: {first: 2min, strikes: 7, evidence: none}}
  - key: remote_address
    rate_limits:
      - {unit: second, requests_per_unit: 1000, burst: 100}
      - {unit: second, requests_per_unit: 1250000, count: bytes}
      - {unit: second, requests_per_unit: 50, count: syns}
      - {unit: second, requests_per_unit: 100, count: flows}
    aggregates:
      - {v4_prefix_mask_len: 24, v6_prefix_mask_len: 56, rate_limit: {unit: second, \
         requests_per_unit: 7}}
      - {v6_prefix_mask_len: 48, rate_limit: {unit: second, requests_per_unit: 8}}
  - key: masked_remote_address
    v4_prefix_mask_len: 24
    v6_prefix_mask_len: 48
    value: 198.51.100.0/22
    rate_limit: {unit: second, requests_per_unit: 9}
  - key: remote_address
    value: [192.0.2.0/24, \"2001:db8:7::/48\"]
    budget: customer-a
  - key: generic_key
    value: everything
    rate_limit: {unit: second, requests_per_unit: 10}
",
    )
    .unwrap();
    let set = &file.rules;
    assert_eq!(set.replies, Some(rate(Count::Packets, 100, Unit::Second, 100)));
    assert_eq!(set.bans, Some(rate(Count::Packets, 10, Unit::Second, 10)));
    let limited = Limits { over: Over::Reject, shadow: true, ..Limits::new(vec![bucket(5, 5)]) };
    assert_eq!(set.budgets, [Budget { name: "customer-a".into(), limits: limited }]);

    let (sources, keyed): (Vec<_>, Vec<_>) =
        set.rules.iter().partition(|rule| rule.path.selector().is_some());
    let paths = |rules: &[&Arc<Rule>]| -> Vec<_> {
        rules.iter().map(|rule| rule.path.to_string()).collect()
    };
    assert_eq!(paths(&sources), ["every source", "192.0.2.0/24", "2001:db8:7::/48"]);
    let four = limits(vec![
        bucket(1000, 100),
        RuleLimit::hard(Meter::TokenBucket(rate(Count::Bytes, 1_250_000, Unit::Second, 1_250_000))),
        RuleLimit::hard(Meter::TokenBucket(rate(Count::Syns, 50, Unit::Second, 50))),
        RuleLimit::hard(Meter::TokenBucket(rate(Count::Flows, 100, Unit::Second, 100))),
    ]);
    assert_eq!(sources[0].terms, four);
    assert_eq!(sources[2].terms, Terms::Budget("customer-a".into()));

    assert_eq!(
        paths(&keyed),
        [
            "destination_port=22 remote_address",
            "masked_remote_address/v4:24/v6:56",
            "masked_remote_address/v6:48",
            "masked_remote_address/v4:24/v6:48=198.51.100.0/22",
            "every packet",
        ]
    );
    let ssh = rate(Count::Syns, 10, Unit::Minute, 5);
    let ban = Ban {
        first: Duration::from_mins(2),
        strikes: 7,
        evidence: Evidence::None,
        ..Ban::default()
    };
    let limits_of_ssh = Limits::new(vec![RuleLimit::hard(Meter::TokenBucket(ssh))]);
    let ban = Limits { over: Over::Ban(Box::new(ban)), ..limits_of_ssh };
    assert_eq!(keyed[0].terms, Terms::Limits(ban));
    assert_eq!(keyed[0].name.as_deref(), Some("ssh"));
    assert_eq!(keyed[2].terms, limits(vec![bucket(8, 8)]));
    assert_eq!(keyed[4].label.as_deref(), Some("everything"));
    let place = file.places[&Subject::Rule(keyed[0].path.clone())];
    assert_eq!(place, Place { line: 13, column: 9 });
    assert_eq!(file.places[&Subject::Budget("customer-a".into())], Place { line: 5, column: 5 });
}

#[test]
fn every_key_takes_its_values() {
    let masks = SourceMasks { v4: Some(24), v6: None };
    for (key, part) in [
        ("remote_address, value: 192.0.2.0/24", {
            Part::Source(SOURCE_MASKS, Some("192.0.2.0/24".parse().unwrap()))
        }),
        ("masked_remote_address, v4_prefix_mask_len: 24", Part::Source(masks, None)),
        ("destination_address", Part::Destination(None)),
        ("destination_address, value: \"2001:db8::7\"", {
            Part::Destination(Some("2001:db8::7/128".parse().unwrap()))
        }),
        ("destination_address, value: 192.0.2.7", {
            Part::Destination(Some("192.0.2.7/32".parse().unwrap()))
        }),
        ("destination_port", Part::Fact(Fact::DestinationPort, None)),
        ("destination_port, value: 65535", Part::Fact(Fact::DestinationPort, Some(values(65_535)))),
        ("destination_port, value: 0", Part::Fact(Fact::DestinationPort, Some(values(0)))),
        ("protocol, value: udp", Part::Fact(Fact::Protocol, Some(values(17)))),
        ("protocol, value: 255", Part::Fact(Fact::Protocol, Some(values(255)))),
        (
            "tcp_flags, value: syn-ack",
            Part::Fact(Fact::TcpFlags, Some(values(FlagClass::SynAck as u16))),
        ),
        ("interface, value: eth0", Part::Interface(Some("eth0".into()))),
        ("vlan, value: 4095", Part::Fact(Fact::Vlan, Some(values(4_095)))),
        ("dscp, value: af11", Part::Fact(Fact::Dscp, Some(values(10)))),
        ("dscp, value: 63", Part::Fact(Fact::Dscp, Some(values(63)))),
        ("icmp_type, value: echo-request", Part::Fact(Fact::IcmpType, Some(values(8)))),
        ("icmp_type, value: 8", Part::Fact(Fact::IcmpType, Some(values(8)))),
        ("icmp_type, value: 128", Part::Fact(Fact::IcmpType, Some(values(8)))),
        ("icmp_type, value: 1", Part::Fact(Fact::IcmpType, Some(values(3)))),
        ("icmp_type, value: 255", Part::Fact(Fact::IcmpType, Some(values(255)))),
        ("source_port, value: 53", Part::Fact(Fact::SourcePort, Some(values(53)))),
        ("packet_length, value: 65535", Part::Fact(Fact::PacketLength, Some(values(65_535)))),
        ("ttl, value: 255", Part::Fact(Fact::Ttl, Some(values(255)))),
        ("ttl, value: 0-5", Part::Fact(Fact::Ttl, Values::range(0, 5))),
        (
            "destination_port, value: 80-90",
            Part::Fact(Fact::DestinationPort, Values::range(80, 90)),
        ),
        (
            "source_port, value: 1024 - 65535",
            Part::Fact(Fact::SourcePort, Values::range(1024, 65_535)),
        ),
        ("packet_length, value: 7-7", Part::Fact(Fact::PacketLength, Some(values(7)))),
        ("vlan, value: 100-199", Part::Fact(Fact::Vlan, Values::range(100, 199))),
        ("dscp, value: 8-14", Part::Fact(Fact::Dscp, Values::range(8, 14))),
        ("fragment", Part::Fact(Fact::Fragment, None)),
        (
            "fragment, value: later",
            Part::Fact(Fact::Fragment, Some(values(Fragment::Later as u16))),
        ),
        ("inner_remote_address", Part::Inner(None)),
        ("inner_remote_address, value: 10.0.0.0/8", {
            Part::Inner(Some("10.0.0.0/8".parse().unwrap()))
        }),
    ] {
        // Beside another key, so that it is no rule by source alone.
        let other = if key.starts_with("vlan") { "dscp" } else { "vlan" };
        let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
        let text =
            format!("descriptors: [{{key: {key}, descriptors: [{{key: {other}, {limit}}}]}}]\n");
        let rules = parse(&text).unwrap_or_else(|error| panic!("{key}: {error}")).rules.rules;
        assert_eq!(rules[0].path.parts[0], part, "{key}");
    }
}

#[test]
fn a_rate_is_for_so_many_units_of_time() {
    let text = "
replies: {unit: second, unit_multiplier: 10, requests_per_unit: 9}
budgets:
  - {name: month, rate_limit: {unit: day, unit_multiplier: 30, requests_per_unit: 1000}}
descriptors:
  - {key: vlan, rate_limit: {unit: WEEK, unit_multiplier: '2', requests_per_unit: 8, algorithm: \
                fixed_window}}
  - {key: dscp, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 8, excess: \
                {unit: hour, unit_multiplier: 7, requests_per_unit: 3}}}
  - {key: protocol, rate_limit: {unit: minute, unit_multiplier: 1, requests_per_unit: 8}}
";
    let lines: Vec<_> = parse(text).unwrap().rules.lines().into_values().collect();
    for line in [
        "9/10s burst 9",
        "1000/30day burst 1000",
        "fixed_window 8/2week",
        "8/5min burst 8, excess 3/7hour burst 3, between them counted only",
        "8/min burst 8",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} in {lines:?}");
    }
}

#[test]
fn every_algorithm_takes_its_fields() {
    let quota = Quota::new(Count::Packets, 8, Period::one(Unit::Hour));
    for (text, meter) in [
        ("", Meter::TokenBucket(quota.with_burst(8))),
        ("algorithm: token_bucket, burst: 3", Meter::TokenBucket(quota.with_burst(3))),
        ("algorithm: leaky_bucket", Meter::LeakyBucket { quota, backlog: Duration::ZERO }),
        ("algorithm: leaky_bucket, backlog: 10ms", {
            Meter::LeakyBucket { quota, backlog: Duration::from_millis(10) }
        }),
        ("algorithm: fixed_window", Meter::FixedWindow(quota)),
        ("algorithm: sliding_log", Meter::SlidingLog(quota)),
        ("algorithm: sliding_counter", Meter::SlidingCounter(quota)),
        ("algorithm: sliding_slots", Meter::SlidingSlots { quota, slots: 4, strict: false }),
        ("algorithm: sliding_slots, slots: 8, strict: true", {
            Meter::SlidingSlots { quota, slots: 8, strict: true }
        }),
    ] {
        let limit = format!("rate_limit: {{unit: hour, requests_per_unit: 8, {text}}}");
        let file = format!("descriptors: [{{key: vlan, {limit}}}]\n");
        assert_eq!(keyed(&file).1, limits(vec![RuleLimit::hard(meter)]), "{text}");
        let of_requests = requests::tests::parse(&format!("domain: d\n{file}"));
        let requests::RequestTerms::Limits(ready) = &of_requests.rules()[0].1.terms else {
            panic!("{text}");
        };
        assert_eq!(ready[0].written, requests::RequestLimit::hard(meter), "{text}");
    }
}

#[test]
fn soft_limits_say_what_is_over_them_and_how_it_is_marked() {
    let upper = rate(Count::Packets, 2, Unit::Minute, 2);
    for (text, upper, mark) in [
        ("ceiling: {unit: minute, requests_per_unit: 2}", Upper::Ceiling(upper), None),
        (
            "peak: {unit: minute, requests_per_unit: 2, burst: 2}, mark: {dscp: cs1}",
            Upper::Peak(upper),
            Some(Mark::Dscp(8)),
        ),
        (
            "excess: {unit: minute, requests_per_unit: 2}, mark: {ecn: true}",
            Upper::Excess(upper),
            Some(Mark::Ecn),
        ),
    ] {
        let limit = format!("rate_limit: {{unit: minute, requests_per_unit: 1, {text}}}");
        let lower = Meter::TokenBucket(rate(Count::Packets, 1, Unit::Minute, 1));
        let wanted = limits(vec![RuleLimit { meter: lower, upper: Some(upper), mark }]);
        assert_eq!(keyed(&format!("descriptors: [{{key: vlan, {limit}}}]\n")).1, wanted, "{text}");
    }
}

#[test]
fn every_action_is_read() {
    for (text, wanted) in [
        ("drop", Over::Drop),
        ("reject", Over::Reject),
        ("{mark: {dscp: 8}}", Over::Mark(Mark::Dscp(8))),
        ("{mark: {ecn: true}}", Over::Mark(Mark::Ecn)),
        ("{class: slow}", Over::Class("slow".into())),
        ("{interface: eth1}", Over::Interface("eth1".into())),
        ("{cpu: 1}", Over::Cpu(1)),
        ("{ban: {}}", Over::Ban(Box::default())),
    ] {
        let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
        let file = format!("descriptors: [{{key: vlan, {limit}, action: {text}}}]\n");
        assert_eq!(keyed(&file).1, over(wanted), "{text}");
    }
}

#[test]
fn lists_of_values_are_one_rule_each() {
    let file = parse(
        "descriptors:
  - key: destination_address
    value: [192.0.2.1, \"2001:db8::1\"]
    descriptors:
      - key: masked_remote_address
        v4_prefix_mask_len: 16
        v6_prefix_mask_len: 48
        value: [10.0.0.0/16, \"2001:db8:7::/48\"]
        rate_limit: {unlimited: true}
",
    )
    .unwrap();
    let paths: Vec<_> = file.rules.rules.iter().map(|rule| rule.path.to_string()).collect();
    // No packet has addresses of two families.
    assert_eq!(
        paths,
        [
            "destination_address=192.0.2.1 masked_remote_address/v4:16/v6:48=10.0.0.0/16",
            "destination_address=2001:db8::1 masked_remote_address/v4:16/v6:48=2001:db8:7::/48",
        ]
    );
}

#[test]
fn the_default_masks_are_those_of_remote_address() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let text = format!(
        "descriptors: [{{key: masked_remote_address, v4_prefix_mask_len: 32, v6_prefix_mask_len: \
         64, {limit}}}]\n"
    );
    let set = parse(&text).unwrap().rules;
    assert_eq!(set.rules.len(), 1);
    assert_eq!(set.rules[0].path.selector(), Some(Selector::Every));
}

#[test]
fn a_name_is_no_key() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let text = format!(
        "descriptors: [{{key: generic_key, value: web, descriptors: [{{key: vlan, {limit}}}]}}]\n"
    );
    let rules = parse(&text).unwrap().rules.rules;
    assert_eq!(rules[0].path, Path::of([Part::Fact(Fact::Vlan, None)]));
    assert_eq!(rules[0].label.as_deref(), Some("web"));
}

#[test]
fn martians_are_charged_unless_the_file_says_drop() {
    let said = |text| parse(text).unwrap().rules.martians;
    assert_eq!(said("descriptors: []\n"), None);
    assert_eq!(said("martians: charge\n"), Some(Martians::Charge));
    assert_eq!(said("martians: drop\n"), Some(Martians::Drop));
}

#[test]
fn a_rate_as_text_is_the_rate_as_numbers() {
    for (text, numbers) in [
        ("rate: 1000/s", "unit: second, requests_per_unit: 1000"),
        ("rate: 5/30s", "unit: second, unit_multiplier: 30, requests_per_unit: 5"),
        (
            "rate: 2mbit/s, burst: 60kB",
            "unit: second, requests_per_unit: 250000, count: bytes, burst: 60000",
        ),
        ("rate: 2mbit/s, count: bytes", "unit: second, requests_per_unit: 250000, count: bytes"),
        (
            "rate: 10/min, count: syns, burst: 5",
            "unit: minute, requests_per_unit: 10, count: syns, burst: 5",
        ),
        ("rate: 10 syns/min", "unit: minute, requests_per_unit: 10, count: syns"),
        (
            "rate: 1k/s, burst: 1.5k, algorithm: token_bucket",
            "unit: second, requests_per_unit: 1000, burst: 1500",
        ),
        (
            "rate: 8kbit/s, ceiling: {rate: 16kbit/s, burst: 3kB}",
            "unit: second, requests_per_unit: 1000, count: bytes, \
             ceiling: {unit: second, requests_per_unit: 2000, burst: 3000}",
        ),
        (
            "rate: 5/hour, algorithm: fixed_window",
            "unit: hour, requests_per_unit: 5, algorithm: fixed_window",
        ),
        ("rate: unlimited, name: x", "unlimited: true, name: x"),
    ] {
        let read = |fields: &str| parse(&fields::with(&format!("rate_limit: {{{fields}}}")));
        assert_eq!(read(text).unwrap().rules, read(numbers).unwrap().rules, "{text}");
    }
    let [text, numbers] =
        ["rate: 100/s, burst: 20", "unit: second, requests_per_unit: 100, burst: 20"]
            .map(|rate| parse(&format!("replies: {{{rate}}}\nbans: {{{rate}}}\n")).unwrap().rules);
    assert_eq!(text, numbers);
}

#[test]
fn a_drop_without_a_limit_blocks() {
    let block = |over, shadow| Terms::Limits(Limits { over, shadow, ..Limits::new(Vec::new()) });
    for (text, path, terms) in [
        (
            "key: destination_port, value: 23, action: drop",
            "destination_port=23",
            block(Over::Drop, false),
        ),
        ("key: protocol, value: udp, action: reject", "protocol=udp", block(Over::Reject, false)),
        (
            "key: remote_address, value: 192.0.2.0/24, action: drop",
            "192.0.2.0/24",
            block(Over::Drop, false),
        ),
        ("key: fragment, action: drop, shadow_mode: true", "fragment", block(Over::Drop, true)),
    ] {
        let text = format!("descriptors: [{{{text}}}]\n");
        assert_eq!(keyed(&text), (path.to_owned(), terms.clone()), "{text}");
        assert_eq!(terms_text(&terms).split(';').next(), Some(terms.limits().unwrap().over.name()));
    }
}
