//! Every matching table must conform, and a packet that one limit drops is charged to none.

use std::fmt::Write as _;

use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_common::wire::{KeyedBucket, TableKey, field};
use limiter_tests::packet::Frame;
use limiter_tests::program::Program;

use super::{START, at, begin_anew, mapped, passed, program, reason, udp, v4};

const SOURCE: Source = Source::V4([192, 0, 2, 1]);

fn frame() -> Vec<u8> {
    v4(1).vlan(7).transport(udp(53)).build()
}

/// The words of every bucket that the frame is charged to.
fn words(program: &Program) -> Vec<[u64; 32]> {
    let key = |fields| match fields {
        field::VLAN => TableKey { vlan: 7, ..TableKey::EMPTY },
        field::DESTINATION_PORT => TableKey { destination_port: 53, ..TableKey::EMPTY },
        field::PROTOCOL => TableKey { protocol: 17, ..TableKey::EMPTY },
        _ => TableKey { version: 4, source: mapped([192, 0, 2, 1]), ..TableKey::EMPTY },
    };
    let words = |bucket: Option<KeyedBucket>| bucket.map(|bucket| bucket.words);
    let mut all = Vec::new();
    for (form, id) in &program.installed().tables.ids {
        let fields = form.fields & !field::CONDITIONS;
        all.extend(words(program.keyed(&TableKey { table: *id, ..key(fields) }).unwrap()));
    }
    let mut source = [0; 32];
    source[0] = program.bucket(SOURCE).unwrap().map_or(0, |bucket| bucket.word);
    all.push(source);
    all.extend((0..3).map(|index| program.budget(index).unwrap().words));
    all
}

const ROOM: &str = "rate_limit: {unit: day, requests_per_unit: 9}";
const TIGHT: &str = "rate_limit: {unit: day, requests_per_unit: 3}";

/// Rules in the order of `tables`; the one at `tight` has the least room.
fn in_order(tables: &[&str], tight: usize) -> String {
    let mut file = String::from("descriptors:\n");
    for (index, table) in tables.iter().enumerate() {
        let limit = if index == tight { TIGHT } else { ROOM };
        let _ = writeln!(file, "  - {{{table}, {limit}}}");
    }
    file
}

/// Whichever of four tables has the least room, wherever it stands.
#[test]
fn what_one_table_drops_is_charged_to_none() {
    let tables =
        ["key: remote_address", "key: vlan", "key: destination_port", "key: protocol, value: udp"];
    let (mut program, mut days) = (program("descriptors: []"), 0);
    for rotation in 0..tables.len() {
        let mut tables = tables;
        tables.rotate_left(rotation);
        for tight in 0..tables.len() {
            days += 1;
            begin_anew(&mut program, &in_order(&tables, tight), days);
            assert_eq!(passed(&program, &frame(), 3), 3, "{tables:?} {tight}");
            let before = words(&program);
            assert_eq!(before.len(), 7);
            for _ in 0..5 {
                assert_eq!(reason(&program, &frame()), Reason::OverLimit, "{tables:?} {tight}");
            }
            assert_eq!(words(&program), before, "{tables:?} {tight}");
        }
    }
}

/// The drop counts for the rule that dropped, and the pass for every rule.
#[test]
fn every_rule_counts_its_own_packets() {
    let program = program(
        "descriptors:
  - {key: vlan, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: destination_port, rate_limit: {unit: day, requests_per_unit: 3}}
",
    );
    assert_eq!(passed(&program, &frame(), 8), 3);
    let tables = &program.installed().tables;
    let mut counted = Vec::new();
    for (id, slot) in &tables.rules {
        let counters = program.rule_counters(tables.records[slot].rule).unwrap();
        counted.push((id.form.fields & field::VLAN != 0, counters));
    }
    for (vlan, counters) in counted {
        let dropped = if vlan { 0 } else { 5 };
        assert_eq!((counters.passed.packets, counters.dropped.packets), (3, dropped), "{vlan}");
    }
}

#[test]
fn several_limits_in_a_rule_any_of_them_trips_and_none_is_charged() {
    let limits = [
        "{unit: day, requests_per_unit: 3, algorithm: ALGORITHM}",
        "{unit: day, requests_per_unit: 900000, count: bytes}",
        "{unit: day, requests_per_unit: 20, algorithm: sliding_log}",
    ];
    let (mut program, mut days) = (program("descriptors: []"), 0);
    for algorithm in [
        "token_bucket",
        "fixed_window",
        "sliding_log",
        "sliding_counter",
        "sliding_slots, slots: 2",
    ] {
        for rotation in 0..3 {
            let mut limits = limits;
            limits.rotate_left(rotation);
            let limits = limits.join(", ").replace("ALGORITHM", algorithm);
            let rules = format!(
                "descriptors: [{{key: vlan, rate_limits: [{limits}]}}, {{key: protocol, {ROOM}}}]"
            );
            days += 1;
            begin_anew(&mut program, &rules, days);
            assert_eq!(passed(&program, &frame(), 3), 3, "{limits}");
            let before = words(&program);
            assert_eq!(reason(&program, &frame()), Reason::OverLimit, "{limits}");
            assert_eq!(words(&program), before, "{limits}");
        }
    }
}

/// Over the limit of its table, and over the class that this sends it to.
#[test]
fn a_class_that_is_full_drops_and_nobody_is_charged() {
    let rule = "budgets: [{name: slow, rate_limit: {unit: day, requests_per_unit: 2}}]\n";
    for key in ["vlan", "remote_address"] {
        let program = program(&format!(
            "{rule}descriptors: [{{key: {key}, {TIGHT}, action: {{class: slow}}}}, {{key: \
             protocol, {ROOM}}}]"
        ));
        for expected in [Reason::Conforming; 3] {
            assert_eq!(reason(&program, &frame()), expected, "{key}");
        }
        for expected in [Reason::Class; 2] {
            assert_eq!(reason(&program, &frame()), expected, "{key}");
        }
        let before = words(&program);
        assert_eq!(reason(&program, &frame()), Reason::OverLimit, "{key}");
        assert_eq!(words(&program), before, "{key}");
    }
}

/// The class has room, and another table has none: the class is not charged.
#[test]
fn a_class_is_not_charged_for_what_another_table_drops() {
    for tables in [
        ["key: vlan, LIMIT", "key: protocol, TIGHT"],
        ["key: protocol, TIGHT", "key: vlan, LIMIT"],
        ["key: protocol, TIGHT", "key: remote_address, LIMIT"],
    ] {
        let rules = tables.map(|table| {
            let class = "rate_limit: {unit: day, requests_per_unit: 1}, action: {class: slow}";
            format!("  - {{{}}}\n", table.replace("TIGHT", TIGHT).replace("LIMIT", class))
        });
        let program = program(&format!(
            "budgets: [{{name: slow, rate_limit: {{unit: day, requests_per_unit: \
             9}}}}]\ndescriptors:\n{}",
            rules.concat()
        ));
        let reasons = [(); 3].map(|()| reason(&program, &frame()));
        assert_eq!(reasons, [Reason::Conforming, Reason::Class, Reason::Class], "{tables:?}");
        let before = words(&program);
        assert_eq!(reason(&program, &frame()), Reason::OverLimit, "{tables:?}");
        assert_eq!(words(&program), before, "{tables:?}");
    }
}

/// A packet that falls under one budget by two tables is charged twice, or not at all.
#[test]
fn a_budget_named_by_two_tables_of_a_packet_is_charged_by_both_or_by_none() {
    let program = program(
        "budgets: [{name: b, rate_limit: {unit: day, requests_per_unit: 5}}]
descriptors:
  - {key: vlan, budget: b}
  - {key: protocol, budget: b}
",
    );
    assert_eq!(passed(&program, &frame(), 2), 2);
    let before = words(&program);
    assert_eq!(reason(&program, &frame()), Reason::OverLimit);
    assert_eq!(words(&program), before, "one of five is left, and two are needed");
    // Without a tag it falls under it once.
    assert_eq!(passed(&program, &v4(1).transport(udp(53)).build(), 3), 1);
}

/// A budget that keeps a log is given back what was charged, and the head of the log is not moved
/// back.
#[test]
fn a_log_that_is_given_back_loses_nothing_for_longer_than_its_window() {
    let program = program(
        "budgets: [{name: b, rate_limit: {unit: second, requests_per_unit: 5, algorithm: \
         sliding_log}}]
descriptors:
  - {key: vlan, budget: b}
  - {key: protocol, budget: b}
",
    );
    assert_eq!(passed(&program, &frame(), 9), 2);
    at(&program, START + 2_000_000_000);
    let untagged = v4(1).transport(udp(53)).build();
    assert_eq!(passed(&program, &untagged, 9), 5);
}

#[test]
fn shadow_counts_what_it_would_drop_and_is_not_charged_for_it() {
    let program = program(
        "descriptors:
  - {key: vlan, rate_limit: {unit: day, requests_per_unit: 2}, shadow_mode: true}
  - {key: protocol, rate_limit: {unit: day, requests_per_unit: 4}}
",
    );
    let reasons = [(); 5].map(|()| reason(&program, &frame()));
    assert_eq!(
        reasons,
        [Reason::Conforming, Reason::Conforming, Reason::Shadow, Reason::Shadow, Reason::OverLimit]
    );
    let other: Frame = v4(1).transport(udp(53));
    assert_eq!(reason(&program, &other.build()), Reason::OverLimit);
}
