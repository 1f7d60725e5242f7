//! Units that limits count, and soft limits.

use limiter_common::verdict::Reason::{Conforming, Marked, OverLimit};
use limiter_common::wire::RuleCounters;
use limiter_tests::packet::Transport;
use limiter_tests::program::Program;

use super::{SECOND, START, at, passed, program, reason, tcp, udp, v4};

/// The counters of the only rule.
fn counters(program: &Program) -> RuleCounters {
    let tables = &program.installed().tables;
    let slot = tables.rules.values().next().unwrap();
    program.rule_counters(tables.records[slot].rule).unwrap()
}

#[test]
fn syns_alone_are_charged_to_a_limit_on_syns() {
    let program = program(
        "descriptors: [{key: vlan, rate_limit: {unit: day, requests_per_unit: 3, count: syns}}]",
    );
    let send = |transport| passed(&program, &v4(1).vlan(7).transport(transport).build(), 5);
    assert_eq!(send(tcp(16, 80)), 5);
    assert_eq!(send(tcp(2, 80)), 3);
    assert_eq!(send(tcp(18, 80)), 5, "SYN and ACK opens nothing");
    assert_eq!(send(udp(80)), 5);
    assert_eq!(send(tcp(2 | 64, 81)), 0, "SYN with ECN");
}

#[test]
fn the_first_packet_of_a_flow_alone_is_charged_to_a_limit_on_flows() {
    let program = program(
        "descriptors: [{key: vlan, rate_limit: {unit: day, requests_per_unit: 3, count: flows}}]",
    );
    let flow = |source| v4(1).vlan(7).transport(Transport::Udp { source, destination: 53 }).build();
    for source in 1..=3 {
        assert_eq!(passed(&program, &flow(source), 10), 10, "flow {source}");
    }
    assert_eq!(passed(&program, &flow(4), 10), 0, "a fourth flow, every time");
    assert_eq!(passed(&program, &flow(1), 10), 10, "a known one");
    // A minute and a bit of silence make it new.
    at(&program, START + 61 * SECOND);
    assert_eq!(passed(&program, &flow(1), 10), 0);
}

#[test]
fn any_of_four_limits_trips() {
    let program = program(
        "descriptors:
  - key: vlan
    rate_limits:
      - {unit: day, requests_per_unit: 20}
      - {unit: day, requests_per_unit: 5000, count: bytes, burst: 5000}
      - {unit: day, requests_per_unit: 4, count: syns}
      - {unit: day, requests_per_unit: 6, count: flows}
",
    );
    let frame = |vlan, transport, size: usize| {
        v4(1).vlan(vlan).transport(transport).payload(&vec![0; size]).build()
    };
    assert_eq!(passed(&program, &frame(1, udp(53), 0), 30), 20, "packets");
    // 46 bytes of headers.
    assert_eq!(passed(&program, &frame(2, udp(53), 954), 30), 5, "bytes");
    assert_eq!(passed(&program, &frame(3, tcp(2, 80), 0), 30), 4, "syns");
    let flows = (0..30).filter(|port| passed(&program, &frame(4, udp(1000 + port), 0), 1) == 1);
    assert_eq!(flows.count(), 6, "flows");
}

/// A soft limit of 3 and what is over it, up to 5 packets at once.
fn soft(limits: &str) -> Program {
    program(&format!("descriptors: [{{key: vlan, rate_limits: [{limits}]}}]"))
}

fn reasons(program: &Program, count: usize) -> Vec<limiter_common::verdict::Reason> {
    let frame = v4(1).vlan(7).build();
    (0..count).map(|_| reason(program, &frame)).collect()
}

/// RFC 2698: the peak bounds all that passes.
#[test]
fn a_peak_bounds_all_that_passes_and_yellow_counts_as_marked() {
    let program = soft(
        "{unit: day, requests_per_unit: 3, peak: {unit: day, requests_per_unit: 5}, mark: {ecn: \
         true}}",
    );
    let expected = [Conforming, Conforming, Conforming, Marked, Marked, OverLimit, OverLimit];
    assert_eq!(reasons(&program, 7), expected);
    let counters = counters(&program);
    assert_eq!((counters.passed.packets, counters.marked.packets), (5, 2));
    assert_eq!(counters.dropped.packets, 2);
}

/// RFC 4115: the excess bucket bounds what passes beside the limit.
#[test]
fn an_excess_bounds_what_passes_beside_the_limit() {
    let program = soft(
        "{unit: second, requests_per_unit: 3, excess: {unit: day, requests_per_unit: 2}, mark: \
         {dscp: cs1}}",
    );
    assert_eq!(
        reasons(&program, 6),
        [Conforming, Conforming, Conforming, Marked, Marked, OverLimit]
    );
    // The limit itself comes back in a second; the excess in a day.
    at(&program, START + SECOND + 1);
    assert_eq!(reasons(&program, 4), [Conforming, Conforming, Conforming, OverLimit]);
    assert_eq!(counters(&program).marked.packets, 2);
}

#[test]
fn a_ceiling_stands_over_every_algorithm() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_counter", "sliding_slots"] {
        let program = soft(&format!(
            "{{unit: day, requests_per_unit: 4, algorithm: {algorithm}, \
             ceiling: {{unit: day, requests_per_unit: 6}}}}"
        ));
        let expected =
            [Conforming, Conforming, Conforming, Conforming, Marked, Marked, OverLimit, OverLimit];
        assert_eq!(reasons(&program, 8), expected, "{algorithm}");
    }
}

/// A packet that another limit of the rule drops is charged to neither bucket of a soft one.
#[test]
fn a_soft_limit_is_not_charged_for_what_a_hard_one_drops() {
    let program = soft(
        "{unit: day, requests_per_unit: 3, peak: {unit: day, requests_per_unit: 9}}, \
         {unit: second, requests_per_unit: 2}",
    );
    assert_eq!(reasons(&program, 4), [Conforming, Conforming, OverLimit, OverLimit]);
    at(&program, START + SECOND);
    assert_eq!(reasons(&program, 3), [Conforming, Marked, OverLimit]);
    // Four of nine are used.
    for second in 2..=3 {
        at(&program, START + second * SECOND);
        assert_eq!(reasons(&program, 3), [Marked, Marked, OverLimit]);
    }
    at(&program, START + 4 * SECOND);
    assert_eq!(reasons(&program, 3), [Marked, OverLimit, OverLimit]);
}
