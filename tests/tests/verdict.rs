//! Verdicts, reasons and buckets of the program in the kernel, by rules, lists, times and sizes.

// Also on other kernels: 120 s each.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Count, ListEntry, Listed};
use limiter_datapath::Datapath as _;
use limiter_rules::model::Limits;
use limiter_rules::model::Quota;
use limiter_rules::{Path, Period, Rule, RuleSet, Selector, Terms, Unit};
use limiter_tests::frames::{V4, V4_TO, V6, V6_TO, v4, v6};
use limiter_tests::packet::Frame;
use limiter_tests::program::{Program, SOURCE_STORES};
use limiter_tests::root::require_root;

fn rate(count: Count, requests_per_unit: u64, unit: Unit, burst: u64) -> Terms {
    Quota::new(count, requests_per_unit, Period::one(unit)).with_burst(burst).into()
}

fn rule(selector: &str, terms: impl Into<Terms>) -> Rule {
    let selector = match selector {
        "*" => Selector::Every,
        text => Selector::prefix(text.parse().unwrap()).unwrap(),
    };
    Rule::new(Path::of_source(&selector), terms)
}

fn set(rules: impl IntoIterator<Item = Rule>) -> RuleSet {
    RuleSet::of(rules)
}

/// Without a rule, and with the bypass, everything passes and no bucket is made or charged.
#[test]
fn no_rule_and_bypass_pass() {
    require_root();
    for source_store in SOURCE_STORES {
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        let frame = v4().build();
        assert_eq!(program.judge(&frame).unwrap(), Reason::NoRule);
        assert_eq!(program.bucket(Source::V4(V4)).unwrap(), None);
        program.apply(&set([rule("*", rate(Count::Packets, 1, Unit::Hour, 1))])).unwrap();
        program.kernel().set_bypass(true).unwrap();
        for _ in 0..3 {
            assert_eq!(program.judge(&frame).unwrap(), Reason::Bypass);
        }
        program.kernel().set_bypass(false).unwrap();
        assert_eq!(program.judge(&frame).unwrap(), Reason::Conforming);
        assert_eq!(program.judge(&frame).unwrap(), Reason::OverLimit);
    }
}

/// In native mode the driver of a member of a bond runs the program of the bond. Its packets are
/// the bond's in rules by interface, in the key of each interface and in the counters, as long as
/// it is a member.
#[test]
fn packets_of_a_member_are_those_of_its_bond() {
    require_root();
    // Test runs come by `lo`, which is 1; `other` is 2.
    let bonds = [(7, 8), (1, 2)];
    let rules = |value: &str| {
        format!("descriptors: [{{key: interface{value}, rate_limit: {{rate: 2/hour, burst: 2}}}}]")
    };
    for source_store in SOURCE_STORES {
        for value in [", value: other", ""] {
            let mut program = Program::load_in(source_store, 256, 16).unwrap();
            program.kernel().set_members(&bonds).unwrap();
            program.apply_file(&rules(value)).unwrap();
            let frame = v4().build();
            for expected in [Reason::Conforming, Reason::Conforming, Reason::OverLimit] {
                assert_eq!(program.judge(&frame).unwrap(), expected, "{value}");
            }
            let counted = |program: &Program, index| {
                let counters = program.interface_counters(index, Direction::In).unwrap();
                [counters.passed.packets, counters.dropped.packets]
            };
            assert_eq!([1, 2].map(|index| counted(&program, index)), [[0, 0], [2, 1]]);
            // Another interface than before: no rule names it, or it is one of its own.
            program.kernel().set_members(&bonds[..1]).unwrap();
            let alone = if value.is_empty() { Reason::Conforming } else { Reason::NoRule };
            assert_eq!(program.judge(&frame).unwrap(), alone, "{value}");
            assert_eq!([1, 2].map(|index| counted(&program, index)), [[1, 0], [2, 1]]);
        }
    }
}

/// Past the range of the clock there is no time to count by: everything passes, and no bucket is
/// touched.
#[test]
fn past_the_range_of_the_clock_everything_passes() {
    require_root();
    for source_store in SOURCE_STORES {
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        program.apply(&set([rule("*", rate(Count::Packets, 1, Unit::Hour, 1))])).unwrap();
        program.set_time(Ticks::from_nanos(1 << 57)).unwrap();
        let frame = v4().build();
        assert_eq!(program.judge(&frame).unwrap(), Reason::Conforming);
        assert_eq!(program.judge(&frame).unwrap(), Reason::OverLimit);
        let before = program.bucket(Source::V4(V4)).unwrap();
        program.set_time(Ticks::new(MAX_TICKS)).unwrap();
        for _ in 0..3 {
            assert_eq!(program.judge(&frame).unwrap(), Reason::Untracked);
        }
        assert_eq!(program.bucket(Source::V4(V4)).unwrap(), before);
    }
}

/// A rule in shadow mode lets everything pass, counts what it would have dropped, and begins to
/// drop where it stands when the mode is left.
#[test]
fn shadow_mode_counts_and_passes() {
    require_root();
    for source_store in SOURCE_STORES {
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        let frame = v4().build();
        let limit = Quota::new(Count::Packets, 1, Period::one(Unit::Hour)).with_burst(2);
        program.set_time(Ticks::from_nanos(1_000)).unwrap();
        program.apply(&set([rule("*", Limits { shadow: true, ..Limits::new(limit) })])).unwrap();
        let judged: Vec<Reason> = (0..5).map(|_| program.judge(&frame).unwrap()).collect();
        let (pass, over) = (Reason::Conforming, Reason::Shadow);
        assert_eq!(judged, [pass, pass, over, over, over]);
        let number = program.installed().rules[&Selector::Every].limit.rule;
        let counters = program.rule_counters(number).unwrap();
        assert_eq!(counters.passed.packets, 5);
        assert_eq!(counters.dropped.packets, 0);
        assert_eq!(counters.shadowed.packets, 3);
        let bucket = program.bucket(Source::V4(V4)).unwrap().unwrap();
        assert_eq!((bucket.passed, bucket.dropped), (5, 0));
        program.apply(&set([rule("*", limit)])).unwrap();
        assert_eq!(program.judge(&frame).unwrap(), Reason::OverLimit);
    }
}

/// Lists come before every rule, the source's own entry before a prefix's, a longer prefix before a
/// shorter one; an entry is over at its instant; and a denied packet makes no bucket.
#[test]
fn lists_come_before_rules() {
    require_root();
    for source_store in SOURCE_STORES {
        let prefix = |text: &str| Selector::prefix(text.parse().unwrap()).unwrap();
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        program.apply(&set([rule("*", rate(Count::Packets, 1, Unit::Hour, 1))])).unwrap();
        let at = |nanos| Ticks::from_nanos(nanos);
        program.set_time(at(1_000)).unwrap();
        let frame = v4().build();
        program.list(&prefix("192.0.2.0/24"), ListEntry::new(Listed::Deny, None)).unwrap();
        assert_eq!(program.judge(&frame).unwrap(), Reason::Denied);
        assert_eq!(program.bucket(Source::V4(V4)).unwrap(), None);
        let other = Frame::ipv4([198, 51, 100, 1], V4_TO).build();
        assert_eq!(program.judge(&other).unwrap(), Reason::Conforming);
        program.list(&prefix("192.0.2.0/28"), ListEntry::new(Listed::Management, None)).unwrap();
        assert_eq!(program.judge(&frame).unwrap(), Reason::Allowed);
        let own = prefix("192.0.2.1/32");
        program.list(&own, ListEntry::new(Listed::Deny, Some(at(2_000)))).unwrap();
        assert_eq!(program.judge(&frame).unwrap(), Reason::Denied);
        program.set_time(at(1_999)).unwrap();
        assert_eq!(program.judge(&frame).unwrap(), Reason::Denied);
        program.set_time(at(2_000)).unwrap();
        assert_eq!(program.judge(&frame).unwrap(), Reason::Allowed);
        for selector in ["192.0.2.0/28", "192.0.2.0/24"] {
            assert!(program.unlist(&prefix(selector)).unwrap());
        }
        assert!(program.unlist(&own).unwrap());
        assert!(!program.unlist(&own).unwrap());
        // Back to the rules.
        assert_eq!(program.judge(&frame).unwrap(), Reason::Conforming);
        assert_eq!(program.judge(&frame).unwrap(), Reason::OverLimit);
        program.list(&prefix("2001:db8:1:2::/64"), ListEntry::new(Listed::Allow, None)).unwrap();
        for _ in 0..3 {
            assert_eq!(program.judge(&v6().build()).unwrap(), Reason::Allowed);
        }
    }
}

/// The longest prefix wins, each source has a bucket of its own, and an unlimited one none to
/// empty.
#[test]
fn the_longest_prefix_wins() {
    require_root();
    for source_store in SOURCE_STORES {
        let hour = |burst| rate(Count::Packets, 1, Unit::Hour, burst);
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        program
            .apply(&set([
                rule("*", hour(1)),
                rule("192.0.2.0/24", hour(2)),
                rule("192.0.2.128/25", hour(3)),
                rule("192.0.2.200/32", Terms::Unlimited),
                rule("2001:db8::/32", hour(4)),
                rule("2001:db8:1:2::/64", hour(5)),
            ]))
            .unwrap();
        program.set_time(Ticks::from_nanos(1_000)).unwrap();
        let passes = |frame: Vec<u8>| {
            (0..50).take_while(|_| program.run(&frame, 1).unwrap() == Verdict::Pass).count()
        };
        let v4 = |last| Frame::ipv4([192, 0, 2, last], V4_TO).build();
        assert_eq!(passes(Frame::ipv4([198, 51, 100, 1], V4_TO).build()), 1);
        assert_eq!(passes(Frame::ipv4([198, 51, 100, 2], V4_TO).build()), 1);
        assert_eq!(passes(v4(1)), 2);
        assert_eq!(passes(v4(2)), 2);
        assert_eq!(passes(v4(129)), 3);
        assert_eq!(passes(v4(200)), 50);
        let v6 = |subnet: u8, host: u8| {
            let mut from = V6;
            from[7] = subnet;
            from[15] = host;
            Frame::ipv6(from, V6_TO).build()
        };
        assert_eq!(passes(v6(3, 1)), 4);
        assert_eq!(passes(v6(2, 1)), 5);
        // Another address of that /64: one bucket, drained.
        assert_eq!(passes(v6(2, 2)), 0);
    }
}

/// IPv4 stands inside IPv6 in the trie; a short IPv6 prefix must not reach it.
#[test]
fn a_rule_for_all_of_ipv6_is_not_for_ipv4() {
    require_root();
    for source_store in SOURCE_STORES {
        let mut program = Program::load_in(source_store, 16, 16).unwrap();
        for prefix in ["::/0", "::/8"] {
            let one = rate(Count::Packets, 1, Unit::Week, 1);
            program.apply(&set([rule(prefix, one)])).unwrap();
            for _ in 0..3 {
                assert_eq!(program.judge(&v4().build()).unwrap(), Reason::NoRule, "{prefix}");
            }
            let low = Frame::ipv6(9u128.to_be_bytes(), [0xfd; 16]);
            program.judge(&low.build()).unwrap();
            assert_eq!(program.judge(&low.build()).unwrap(), Reason::OverLimit, "{prefix}");
        }
    }
}

/// Bytes are those of the whole frame, fragments of a multi-buffer frame included.
#[test]
fn bytes_count_the_whole_frame() {
    require_root();
    for source_store in SOURCE_STORES {
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        program
            .apply(&set([rule("*", rate(Count::Bytes, 125_000, Unit::Second, 60_000))]))
            .unwrap();
        program.set_time(Ticks::from_nanos(1_000)).unwrap();
        let large = v4().payload(&vec![0; 40_000 - 42]).build();
        assert_eq!(large.len(), 40_000);
        assert_eq!(program.judge(&large).unwrap(), Reason::Conforming);
        assert_eq!(program.judge(&large).unwrap(), Reason::OverLimit);
        // 20,000 are left; 19,999 bytes fit, and then 2.
        let rest = v4().payload(&vec![0; 19_999 - 42]).build();
        assert_eq!(program.judge(&rest).unwrap(), Reason::Conforming);
        assert_eq!(program.judge(&v4().build()).unwrap(), Reason::OverLimit);
        // 8 us a byte: 42 bytes need 41 more, 328 us. The slack for rounding is 1/32 ns a frame.
        program.set_time(Ticks::from_nanos(1_000 + 327_950)).unwrap();
        assert_eq!(program.judge(&v4().build()).unwrap(), Reason::OverLimit);
        program.set_time(Ticks::from_nanos(1_000 + 328_000)).unwrap();
        assert_eq!(program.judge(&v4().build()).unwrap(), Reason::Conforming);
    }
}

/// To the nanosecond: a drained bucket of every unit admits its next packet when it is due and not
/// before, and the whole burst after a whole refill.
#[test]
fn every_unit_refills_to_the_nanosecond() {
    require_root();
    for source_store in SOURCE_STORES {
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        // A source of its own for every case, so that each has a new bucket.
        let mut sources = 1..=u8::MAX;
        for unit in Unit::ALL {
            for requests in [1u64, 5, 1000] {
                let frame = Frame::ipv4([192, 0, 2, sources.next().unwrap()], V4_TO).build();
                program.apply(&set([rule("*", rate(Count::Packets, requests, unit, 5))])).unwrap();
                let start = 10u64.pow(12);
                let interval = (unit.seconds() * 1_000_000_000).div_ceil(requests);
                program.set_time(Ticks::from_nanos(start)).unwrap();
                for _ in 0..5 {
                    assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Pass);
                }
                assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Drop);
                program.set_time(Ticks::from_nanos(start + interval - 1)).unwrap();
                assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Drop, "{requests}/{unit:?}");
                program.set_time(Ticks::from_nanos(start + interval)).unwrap();
                assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Pass, "{requests}/{unit:?}");
                assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Drop, "{requests}/{unit:?}");
                program.set_time(Ticks::from_nanos(start + 100 * interval)).unwrap();
                let passed =
                    (0..10).filter(|_| program.run(&frame, 1).unwrap() == Verdict::Pass).count();
                assert_eq!(passed, 5, "{requests}/{unit:?}");
            }
        }
    }
}

/// A changed limit acts on the next packet and neither refills nor empties; an unchanged one keeps
/// its state through any number of generations.
#[test]
fn a_rule_change_keeps_the_state() {
    require_root();
    for source_store in SOURCE_STORES {
        let frame = v4().build();
        let mut program = Program::load_in(source_store, 256, 16).unwrap();
        let passes = |program: &Program| {
            (0..2000).take_while(|_| program.run(&frame, 1).unwrap() == Verdict::Pass).count()
        };
        program.set_time(Ticks::from_nanos(10u64.pow(12))).unwrap();
        program.apply(&set([rule("*", rate(Count::Packets, 100, Unit::Second, 100))])).unwrap();
        for _ in 0..60 {
            assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Pass);
        }
        // Other rules come and go; this source keeps its 40.
        for other in 1..=5u8 {
            let prefix = format!("10.{other}.0.0/16");
            program
                .apply(&set([
                    rule("*", rate(Count::Packets, 100, Unit::Second, 100)),
                    rule(&prefix, rate(Count::Packets, 1, Unit::Day, 1)),
                ]))
                .unwrap();
        }
        assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Pass);
        // 61 of 100 used: so they are with ten times the rate, and of ten times the burst.
        program.apply(&set([rule("*", rate(Count::Packets, 1000, Unit::Second, 100))])).unwrap();
        program.apply(&set([rule("*", rate(Count::Packets, 1000, Unit::Second, 1000))])).unwrap();
        let left = passes(&program);
        assert_eq!(left, 939);
        // Empty stays empty, also for a rule of its own.
        program
            .apply(&set([
                rule("*", rate(Count::Packets, 1000, Unit::Second, 1000)),
                rule("192.0.2.0/24", rate(Count::Packets, 5, Unit::Day, 50)),
            ]))
            .unwrap();
        assert_eq!(passes(&program), 0);
    }
}
