//! Rules that drop everything: `action: drop` without a limit.

use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_common::wire::{EntryKind, TableKey, field};
use limiter_tests::packet::Frame;
use limiter_tests::program::Program;

use super::{keyed, passed, program, reason, tcp, udp, v4, v6};

/// Entries that were made for keys.
fn entries(program: &Program) -> u64 {
    program.entries(EntryKind::Keyed).unwrap().1.made
}

#[test]
fn a_blocked_port_is_dropped_for_every_source_and_no_key_gets_an_entry() {
    let program = program(
        "descriptors:
  - {key: destination_port, value: 23, descriptors: [{key: remote_address, action: drop}]}",
    );
    for last in 1..=250 {
        assert_eq!(reason(&program, &v4(last).transport(tcp(2, 23)).build()), Reason::Blocked);
    }
    assert_eq!(reason(&program, &v6(1, 1).transport(udp(23)).build()), Reason::Blocked);
    assert_eq!(entries(&program), 0);
    // Another port is in the table and has no rule there, as without the block.
    assert_eq!(reason(&program, &v4(1).transport(tcp(2, 22)).build()), Reason::NoRule);
    let records = &program.installed().tables.records;
    let number = records.values().next().unwrap().rule;
    let counted = program.rule_counters(number).unwrap();
    assert_eq!((counted.dropped.packets, counted.passed.packets), (251, 0));
}

#[test]
fn the_most_specific_rule_makes_an_exception() {
    let program = program(
        "descriptors:
  - {key: destination_port, action: drop}
  - {key: destination_port, value: 443, rate_limit: {unlimited: true}}
  - {key: destination_port, value: 22, rate_limit: {rate: 2/day}}
  - {key: remote_address, value: 192.0.2.0/24, action: drop}
  - {key: remote_address, value: 192.0.2.7, rate_limit: {rate: 3/day}}",
    );
    let from = |last, port| v4(last).transport(tcp(2, port)).build();
    let other = |port| Frame::ipv4([203, 0, 113, 5], [198, 51, 100, 1]).transport(tcp(2, port));
    assert_eq!(reason(&program, &other(80).build()), Reason::Blocked);
    assert_eq!(reason(&program, &other(443).build()), Reason::Unlimited);
    assert_eq!(passed(&program, &other(22).build(), 5), 2);
    // By source: all of the prefix but one address, which has a bucket in the source table.
    assert_eq!(reason(&program, &from(1, 443)), Reason::Blocked);
    assert_eq!(passed(&program, &from(7, 443), 5), 3);
    assert_eq!(program.bucket(Source::V4([192, 0, 2, 1])).unwrap(), None);
    assert!(program.bucket(Source::V4([192, 0, 2, 7])).unwrap().is_some());
}

#[test]
fn a_block_in_shadow_mode_counts_and_passes() {
    let program = program(
        "descriptors: [{key: destination_port, value: 23, action: drop, shadow_mode: true}]",
    );
    let frame = v4(1).transport(tcp(2, 23)).build();
    assert_eq!(passed(&program, &frame, 4), 4);
    assert_eq!(reason(&program, &frame), Reason::Shadow);
    assert_eq!(entries(&program), 0);
}

#[test]
fn a_limit_that_becomes_a_block_and_back_keeps_its_counters() {
    let limited = "descriptors: [{key: destination_port, rate_limit: {rate: 3/day}}]";
    let blocked = "descriptors: [{key: destination_port, action: drop}]";
    let mut program = program(limited);
    let frame = v4(1).transport(tcp(2, 23)).build();
    assert_eq!(passed(&program, &frame, 2), 2);
    program.apply_file(blocked).unwrap();
    assert_eq!(reason(&program, &frame), Reason::Blocked);
    program.apply_file(limited).unwrap();
    assert_eq!(passed(&program, &frame, 5), 3, "what was blocked owes nothing");
    let key = TableKey { destination_port: 23, ..TableKey::EMPTY };
    let bucket = keyed(&program, field::DESTINATION_PORT, key).unwrap();
    assert_eq!((bucket.passed, bucket.dropped), (5, 3));
}
