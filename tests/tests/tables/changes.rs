//! The state that is left after a change of the rules, and after a restart.

use limiter_common::verdict::Verdict;
use limiter_common::wire::{KeyedBucket, TableKey, field};
use limiter_tests::packet::Transport;
use limiter_tests::pair::Pair;
use limiter_tests::program::Program;
use limiter_tests::root::require_root;

use super::{SECOND, keyed, passed, program, v4, v6};

fn frame() -> Vec<u8> {
    of_vlan(7)
}

fn of_vlan(vlan: u16) -> Vec<u8> {
    v4(1).vlan(vlan).build()
}

fn vlan(program: &Program) -> KeyedBucket {
    bucket_of(program, 7)
}

fn bucket_of(program: &Program, vlan: u16) -> KeyedBucket {
    keyed(program, field::VLAN, TableKey { vlan, ..TableKey::EMPTY }).unwrap()
}

fn rule(limits: &str) -> String {
    format!("descriptors: [{{key: vlan, rate_limits: [{limits}]}}]")
}

/// Every algorithm with room for so many packets.
fn algorithms(packets: u32) -> Vec<String> {
    let interval = 86_400 / packets;
    let quota = format!("unit: day, requests_per_unit: {packets}");
    [
        String::new(),
        format!(", algorithm: leaky_bucket, backlog: {}s", interval * (packets - 1)),
        ", algorithm: fixed_window".into(),
        ", algorithm: sliding_log".into(),
        ", algorithm: sliding_counter".into(),
        ", algorithm: sliding_slots, slots: 4".into(),
        ", algorithm: sliding_slots, slots: 8, strict: true".into(),
    ]
    .map(|algorithm| format!("{{{quota}{algorithm}}}"))
    .into()
}

#[test]
fn an_unchanged_rule_keeps_its_state_exactly() {
    let mut program = program("descriptors: []");
    // A bucket of its own for each algorithm.
    for (number, limit) in (100..).zip(algorithms(20)) {
        let frame = of_vlan(number);
        let with = |other: u32| {
            format!(
                "descriptors:
  - {{key: vlan, rate_limits: [{limit}, {{unit: second, requests_per_unit: 9}}]}}
  - {{key: protocol, rate_limit: {{unit: day, requests_per_unit: {other}}}}}
"
            )
        };
        program.apply_file(&with(300)).unwrap();
        assert_eq!(passed(&program, &frame, 5), 5, "{limit}");
        let before = bucket_of(&program, number);
        program.apply_file(&with(400)).unwrap();
        assert_eq!(passed(&program, &v4(2).build(), 1), 1, "the new rules are in force");
        assert_eq!(bucket_of(&program, number), before, "{limit}: nobody came by");
        // One more packet, and nothing else.
        assert_eq!(passed(&program, &frame, 1), 1);
        assert_eq!(bucket_of(&program, number).passed, 6);
        assert_eq!(passed(&program, &frame, 9), 3, "{limit}");
    }
}

/// True if one of [`algorithms`] goes on with what was used of another: the same windows do, and
/// buckets of a rate that are raised.
fn goes_on(one: usize, other: usize, is_raise: bool) -> bool {
    let is_rate = one.max(other) < 2;
    if is_rate { is_raise } else { one == other }
}

/// Of 10 packets 6 are used: so many are used of 20, and of 5, where the limit goes on with what
/// was used. Elsewhere the 4 that are left are left of either.
#[test]
fn a_changed_limit_keeps_what_was_used_or_what_is_left_between_all_algorithms() {
    let mut program = program("descriptors: []");
    // A bucket of its own for each pair.
    let mut number = 100;
    for packets in [5u32, 20] {
        for (one, before) in algorithms(10).into_iter().enumerate() {
            for (other, after) in algorithms(packets).into_iter().enumerate() {
                number += 1;
                let frame = of_vlan(number);
                // A rule anew, that was never cut.
                program.apply_file("descriptors: []").unwrap();
                program.apply_file(&rule(&before)).unwrap();
                assert_eq!(passed(&program, &frame, 6), 6, "{before}");
                program.apply_file(&rule(&after)).unwrap();
                let left = passed(&program, &frame, 30);
                let of_six = usize::try_from(packets.saturating_sub(6)).unwrap();
                let expected = if goes_on(one, other, packets > 10) { of_six } else { 4 };
                assert_eq!(left, expected, "{before} to {after}");
            }
        }
    }
}

/// What was used up is used up; of a larger limit that goes on with it the difference is there.
#[test]
fn an_exhausted_limit_has_the_difference_and_an_untouched_one_is_full_between_all_algorithms() {
    let mut program = program("descriptors: []");
    // Two buckets for each pair.
    let mut number = 100;
    for (one, before) in algorithms(10).into_iter().enumerate() {
        for (other_one, after) in algorithms(20).into_iter().enumerate() {
            number += 2;
            let (frame, other) = (of_vlan(number), of_vlan(number + 1));
            // A rule anew, that was never cut.
            program.apply_file("descriptors: []").unwrap();
            program.apply_file(&rule(&before)).unwrap();
            assert_eq!(passed(&program, &frame, 30), 10, "{before}");
            // A bucket of its own, of which nothing is used: its packets are over another limit.
            program.apply_file(&rule(&after)).unwrap();
            let difference = if goes_on(one, other_one, true) { 10 } else { 0 };
            assert_eq!(passed(&program, &frame, 30), difference, "{before} to {after}");
            assert_eq!(passed(&program, &other, 30), 20, "{before} to {after}");
        }
    }
}

#[test]
fn an_added_limit_begins_full_and_the_others_go_on() {
    let mut program = program("descriptors: []");
    // A bucket of its own for each algorithm.
    for (number, added) in (100..).zip(algorithms(8)) {
        let frame = of_vlan(number);
        let first = "{unit: day, requests_per_unit: 10}";
        // A rule anew, that was never cut.
        program.apply_file("descriptors: []").unwrap();
        program.apply_file(&rule(first)).unwrap();
        assert_eq!(passed(&program, &frame, 6), 6);
        let word = bucket_of(&program, number).words[0] >> 1;
        program.apply_file(&rule(&format!("{first}, {added}"))).unwrap();
        assert_eq!(passed(&program, &frame, 1), 1);
        assert!(bucket_of(&program, number).words[0] >> 1 > word, "{added}");
        assert_eq!(passed(&program, &frame, 9), 3, "{added}: four of ten were left");
        // And the added one has four left of eight.
        program
            .apply_file(&rule(&format!("{{unit: second, requests_per_unit: 99}}, {added}")))
            .unwrap();
        assert_eq!(passed(&program, &frame, 9), 4, "{added}: four of eight were left");
    }
}

#[test]
fn a_limit_that_moves_to_other_words_is_kept_as_it_is() {
    let log = "{unit: day, requests_per_unit: 9, algorithm: sliding_log}";
    let mut program = program(&rule(&format!(
        "{{unit: day, requests_per_unit: 99, algorithm: sliding_slots}}, {log}"
    )));
    assert_eq!(passed(&program, &frame(), 5), 5);
    let words: Vec<u64> = vlan(&program).words[4..14].iter().map(|word| word >> 1).collect();
    let after = rule(&format!("{{unit: day, requests_per_unit: 99}}, {log}, {log}"));
    program.apply_file(&after).unwrap();
    assert_eq!(passed(&program, &frame(), 1), 1);
    let moved: Vec<u64> = vlan(&program).words[1..11].iter().map(|word| word >> 1).collect();
    let same = words.iter().zip(&moved).filter(|(a, b)| a == b).count();
    assert_eq!(same, 8, "one entry more and the head: {words:?} {moved:?}");
    assert_eq!(passed(&program, &frame(), 9), 3);
}

#[test]
fn a_removed_table_begins_new_when_it_is_added_again() {
    let limit = rule("{unit: day, requests_per_unit: 10}");
    let mut program = program(&limit);
    let first = program.installed().tables.ids.clone();
    assert_eq!(passed(&program, &frame(), 20), 10);
    program.apply_file("descriptors: []").unwrap();
    assert_eq!(passed(&program, &frame(), 20), 20);
    program.apply_file(&limit).unwrap();
    assert_ne!(program.installed().tables.ids, first);
    assert_eq!(passed(&program, &frame(), 20), 10);
}

#[test]
fn a_more_specific_rule_takes_over_what_is_available() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 10}";
    let mut program = program(&format!("descriptors: [{{key: vlan, {limit}}}]"));
    assert_eq!(passed(&program, &frame(), 6), 6);
    let both = format!(
        "descriptors: [{{key: vlan, {limit}}}, {{key: vlan, value: 7, rate_limit: {{unit: day, \
         requests_per_unit: 20}}}}]"
    );
    program.apply_file(&both).unwrap();
    let left = passed(&program, &frame(), 20);
    assert_eq!(left, 4);
    // And back: nothing is left.
    program.apply_file(&format!("descriptors: [{{key: vlan, {limit}}}]")).unwrap();
    let left = passed(&program, &frame(), 20);
    assert_eq!(left, 0);
    program.apply_file(&both).unwrap();
    assert_eq!(passed(&program, &frame(), 20), 0, "nor of a rule that took the key over");
}

#[test]
fn a_budget_goes_on_by_its_name_alone() {
    let file = |name: &str, key: &str, packets: u32| {
        format!(
            "budgets: [{{name: {name}, rate_limit: {{unit: day, requests_per_unit: {packets}}}}}]
descriptors: [{{{key}, budget: {name}}}]"
        )
    };
    let mut program = program(&file("a", "key: vlan", 10));
    assert_eq!(passed(&program, &frame(), 6), 6);
    program.apply_file(&file("a", "key: protocol", 10)).unwrap();
    assert_eq!(passed(&program, &frame(), 1), 1);
    program.apply_file(&file("a", "key: protocol", 20)).unwrap();
    let left = passed(&program, &frame(), 20);
    assert_eq!(left, 13, "seven of ten were used");
    program.apply_file(&file("b", "key: protocol", 10)).unwrap();
    assert_eq!(passed(&program, &frame(), 20), 10);
}

/// A second handle on the same pins knows the same numbers, slots and ids, and the state goes on:
/// also over a change that only the second one makes.
#[test]
fn a_restart_adopts_tables_records_and_budgets() {
    let file = |packets: u32| {
        format!(
            "budgets: [{{name: a, rate_limit: {{unit: day, requests_per_unit: 50}}, action: \
             {{class: slow}}}}, {{name: slow, rate_limit: {{unit: day, requests_per_unit: 50}}}}]
descriptors:
  - {{key: vlan, rate_limits: [{{unit: day, requests_per_unit: 10}}, {{unit: day, \
  requests_per_unit: 9, algorithm: sliding_log}}]}}
  - {{key: remote_address, rate_limits: [{{unit: day, requests_per_unit: 40}}, {{unit: day, \
  requests_per_unit: 40, count: syns}}]}}
  - {{key: protocol, value: udp, budget: a}}
  - {{key: dscp, rate_limit: {{unit: day, requests_per_unit: {packets}}}, action: {{class: slow}}}}
  - {{key: generic_key, value: all, rate_limit: {{unit: day, requests_per_unit: 99}}}}
"
        )
    };
    let mut program = program(&file(60));
    assert_eq!(passed(&program, &frame(), 5), 5);
    let (installed, bucket, budgets) = (
        program.installed().clone(),
        vlan(&program),
        [0, 1, 2].map(|i| program.budget(i).unwrap()),
    );
    program.restart().unwrap();
    assert_eq!(program.installed().rules, installed.rules);
    assert_eq!(program.installed().tables, installed.tables);
    assert_eq!(vlan(&program), bucket);
    assert_eq!([0, 1, 2].map(|i| program.budget(i).unwrap()), budgets);
    // An unchanged file moves nothing.
    let plan = program.apply_file(&file(60)).unwrap();
    assert_eq!((plan.limits.len(), plan.tables.records.len(), plan.begun.len()), (0, 0, 0));
    assert_eq!(passed(&program, &frame(), 1), 1);
    // Nor does a change of one rule move the others.
    let plan = program.apply_file(&file(61)).unwrap();
    assert_eq!((plan.tables.records.len(), plan.begun.len()), (1, 0));
    assert_eq!(passed(&program, &frame(), 9), 3, "nine of the log, six used");
}

/// No bucket moves from one table to another: with more than a token bucket a source begins full,
/// and back at the token bucket it has what was available of that when it was left. So it is in the
/// kernel and in the model, and beside a prefix that stays in the other table.
#[test]
fn a_rule_that_changes_its_table_grants_one_burst() {
    require_root();
    let one = "{unit: day, requests_per_unit: 10, burst: 5}";
    let more = "{unit: day, requests_per_unit: 10, burst: 3}, {unit: day, requests_per_unit: 9, \
                count: syns}";
    let rules = |limits: &str, beside: &str| {
        format!(
            "descriptors:
  - {{key: remote_address, value: 192.0.2.0/24, rate_limits: [{limits}]}}
  - {{key: remote_address, rate_limits: [{beside}]}}
"
        )
    };
    for beside in [one, more] {
        let (plain, keyed) = (rules(one, beside), rules(more, beside));
        let mut pair = Pair::load(&plain).unwrap();
        let frame = v4(1).build();
        let sent = |pair: &mut Pair| {
            let passes =
                |reason: limiter_common::verdict::Reason| reason.verdict() == Verdict::Pass;
            (0..9).filter(|_| passes(pair.send(&frame).unwrap().reason)).count()
        };
        assert_eq!(sent(&mut pair), 5, "the burst of the token bucket");
        pair.apply(&keyed).unwrap();
        assert_eq!(sent(&mut pair), 3, "a new bucket, which is full");
        pair.apply(&plain).unwrap();
        assert_eq!(sent(&mut pair), 0, "the token bucket, as it was left");
        pair.apply(&keyed).unwrap();
        let again = sent(&mut pair);
        assert!(again <= 3, "{again}: at most one burst");
        pair.apply(&plain).unwrap();
        pair.after(86_400 * SECOND).unwrap();
        let back = sent(&mut pair);
        assert_eq!(back, 5, "a day fills it");
    }
}

/// The buckets of a table whose keys become compact, or cease to be, begin full, and one that is
/// compact again goes on as it was left. So it is in the kernel and in the model, with IPv6
/// sources, whose keys are never compact, in between; and a restart adopts both forms.
#[test]
fn a_table_whose_keys_become_compact_grants_one_burst() {
    require_root();
    let rules = |beside: &str| {
        format!(
            "descriptors:
  - key: destination_port
    value: 53
    descriptors: [{{key: remote_address, rate_limit: {{rate: 10/day, burst: 5}}}}]
{beside}"
        )
    };
    // Of one table with the rule before, and of two limits, which the source table has no room for.
    let beside = "  - key: destination_port
    value: 54
    descriptors: [{key: remote_address, rate_limits: [{rate: 9/day}, {rate: 8/day, count: syns}]}]
";
    let (compact, full) = (rules(""), rules(beside));
    let udp = Transport::Udp { source: 40_000, destination: 53 };
    let (of_v4, of_v6) = (v4(1).transport(udp).build(), v6(1, 1).transport(udp).build());

    let mut pair = Pair::load(&compact).unwrap();
    let sent = |pair: &mut Pair, frame: &[u8]| {
        let reasons = pair.reasons_of(frame, 9).unwrap();
        reasons.iter().filter(|reason| reason.verdict() == Verdict::Pass).count()
    };
    assert_eq!([sent(&mut pair, &of_v4), sent(&mut pair, &of_v6)], [5, 5], "a burst each");
    pair.apply(&full).unwrap();
    assert_eq!(
        [sent(&mut pair, &of_v4), sent(&mut pair, &of_v6)],
        [5, 0],
        "IPv6 had full keys before"
    );
    pair.apply(&compact).unwrap();
    assert_eq!([sent(&mut pair, &of_v4), sent(&mut pair, &of_v6)], [0, 0], "as they were left");
    pair.apply(&full).unwrap();
    assert_eq!(sent(&mut pair, &of_v4), 0, "as it was left, too");

    let mut program = program(&compact);
    let compact_tables = |program: &Program| program.installed().tables.compact.len();
    assert_eq!((compact_tables(&program), passed(&program, &of_v4, 9)), (1, 5));
    let tables = &program.installed().tables;
    let slot = tables.rules.values().next().unwrap();
    let number = tables.records[slot].rule;
    program.restart().unwrap();
    assert_eq!((compact_tables(&program), passed(&program, &of_v4, 9)), (1, 0));
    program.apply_file(&full).unwrap();
    assert_eq!((compact_tables(&program), passed(&program, &of_v4, 9)), (0, 5));
    program.restart().unwrap();
    assert_eq!((compact_tables(&program), passed(&program, &of_v4, 9)), (0, 0));
    let counters = program.rule_counters(number).unwrap();
    assert_eq!((counters.passed.packets, counters.dropped.packets), (10, 26), "{counters:?}");
}
