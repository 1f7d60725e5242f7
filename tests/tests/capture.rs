//! Packets that the program in the kernel reports whole: every reason with the packet as it came
//! in, and that no verdict depends on it.

// Also on other kernels: 120 s each.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::collections::BTreeSet;
use std::thread;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{
    CAPTURED_BYTES, CaptureFilter, CaptureRecord, LEVELS, ListEntry, Listed, MAX_SNAP, RULE_NONE,
};
use limiter_datapath::{CapturedPacket, Datapath as _, SourceTable};
use limiter_decision::capture::level_of;
use limiter_rules::Selector;
use limiter_tests::cpu;
use limiter_tests::frames::{self, V4, V4_TO, V6, V6_TO};
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::{Program, rule_set};
use limiter_tests::root::require_root;

const START: u64 = 1_000_000_000_000;

const END: u64 = 1 << 60;

const ONE_AN_HOUR: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";

/// Everything, with a budget that nothing here uses up.
const ALL: CaptureFilter = CaptureFilter::EVERYTHING;

fn program(rules: &str) -> Program {
    let mut program = Program::load(256, 64).unwrap();
    program.apply(&rule_set(rules).unwrap()).unwrap();
    program.set_time(Ticks::from_nanos(START)).unwrap();
    program
}

fn capture(program: &mut Program, filter: &CaptureFilter) {
    program.kernel().begin_capture(filter, Ticks::new(END)).unwrap();
}

fn reported(program: &mut Program) -> Vec<CapturedPacket> {
    std::iter::from_fn(|| program.kernel().next_captured()).collect()
}

/// Reported, over the budget, lost, and the sum of what was missed by level.
fn counts(program: &mut Program) -> (u64, u64, u64, u64) {
    let counts = program.kernel().capture_counts().unwrap();
    let missed = counts.missed.iter().sum();
    (counts.reported.sent, counts.reported.over_budget, counts.reported.lost, missed)
}

fn judged(program: &Program) -> u64 {
    program.reasons().unwrap().iter().map(|tally| tally.packets).sum()
}

/// Judges a frame, which is reported as it came in, with its reason.
fn check(program: &mut Program, frame: &[u8], what: &str) -> CaptureRecord {
    let reason = program.judge(frame).unwrap();
    let reported = reported(program);
    assert_eq!(reported.len(), 1, "{what}: {reason:?}");
    let CapturedPacket { record, bytes } = &reported[0];
    assert_eq!(u32::from(record.reason), reason.index(), "{what}");
    assert_eq!((record.session, record.interface, record.layer_3), (ALL.session, 1, 0), "{what}");
    assert_eq!(record.time, Ticks::from_nanos(START).get(), "{what}");
    assert_eq!(record.length as usize, frame.len(), "{what}");
    assert_eq!(record.captured as usize, frame.len().min(MAX_SNAP as usize), "{what}");
    assert_eq!(bytes[..], frame[..bytes.len()], "{what}: {reason:?}");
    *record
}

#[test]
fn every_kind_of_frame_is_reported_as_it_is() {
    require_root();
    let with_a_table = "domain: test\ndescriptors:\n  - {key: destination_port, rate_limit: \
                        {unit: hour, requests_per_unit: 1}}\n  - {key: remote_address, \
                        rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";
    for rules in [ONE_AN_HOUR, with_a_table] {
        let mut program = program(rules);
        capture(&mut program, &ALL);
        for row in frames::table() {
            for _ in 0..2 {
                let record = check(&mut program, &row.frame, row.what);
                match row.expected {
                    Ok(source) => {
                        assert_eq!(
                            record.source,
                            <[u64; 2]>::from(source.trie_words()),
                            "{}",
                            row.what
                        );
                        let version = if matches!(source, Source::V4(_)) { 4 } else { 6 };
                        assert_eq!(record.version, version, "{}", row.what);
                    }
                    Err(Reason::NeighbourDiscovery) => {}
                    Err(_) => {
                        assert_eq!((record.version, record.source), (0, [0; 2]), "{}", row.what);
                    }
                }
            }
        }
    }
}

/// All that rules, lists, bans and full tables do, and the bypass. `Contended` takes two CPUs that
/// meet, and goes the same way as `OverLimit`.
#[test]
fn every_reason_is_reported() {
    require_root();
    let rules = "domain: test
martians: drop
replies: {unit: second, requests_per_unit: 1000, burst: 1000}
bans: {unit: second, requests_per_unit: 1000, burst: 1000}
budgets: [{name: slow, rate_limit: {unit: day, requests_per_unit: 50}}]
descriptors:
  - {key: vlan, value: 1, rate_limit: {unlimited: true}}
  - {key: vlan, value: 2, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: vlan, value: 3, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: vlan, value: 4, action: {mark: {dscp: cs1}}, rate_limit: {unit: day, requests_per_unit: \
                 1}}
  - {key: vlan, value: 5, action: reject, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: vlan, value: 6, action: {class: slow}, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: vlan, value: 7, action: {cpu: 0}, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: vlan, value: 8, action: drop}
  - key: vlan
    value: 9
    action: {ban: {strikes: 1, first: 1h, longest: 1h, memory: 2h, evidence: none}}
    rate_limit: {unit: day, requests_per_unit: 1}
  - {key: vlan, value: 11, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: vlan, value: 12, rate_limit: {unit: day, requests_per_unit: 2}, on_full: pass}
  - {key: vlan, value: 13, rate_limit: {unit: day, requests_per_unit: 2}, on_full: drop}
";
    let mut seen = BTreeSet::new();
    let mut dropping = BTreeSet::new();
    let mut send = |program: &mut Program, frame: Frame| {
        let frame = frame.payload(&[9; 80]).build();
        let record = check(program, &frame, "a reason");
        seen.insert(Reason::from_index(u32::from(record.reason)).name());
        if record.rule != RULE_NONE {
            dropping.insert(record.rule);
        }
    };
    let from = |last: u8| Frame::ipv4([192, 0, 2, last], V4_TO);
    // With room for one key, which owes for a day.
    for keys in [64, 1] {
        let mut program = Program::load_sized(SourceTable::Hash, 256, keys, 64).unwrap();
        program.apply(&rule_set(rules).unwrap()).unwrap();
        program.set_time(Ticks::from_nanos(START)).unwrap();
        capture(&mut program, &ALL);
        for (prefix, listed) in
            [("198.51.100.1/32", Listed::Allow), ("198.51.100.2/32", Listed::Deny)]
        {
            let selector = Selector::prefix(prefix.parse().unwrap()).unwrap();
            program.kernel().list(&selector, ListEntry::new(listed, None)).unwrap();
        }
        for vlan in 1..=9 {
            for _ in 0..3 {
                send(&mut program, from(9).vlan(vlan));
            }
        }
        for vlan in [11, 11, 11, 11, 12, 13] {
            send(&mut program, from(20).vlan(vlan));
        }
        for source in [[198, 51, 100, 1], [198, 51, 100, 2], [127, 0, 0, 1], [192, 0, 2, 30]] {
            send(&mut program, Frame::ipv4(source, V4_TO));
        }
        program.kernel().set_bypass(true).unwrap();
        send(&mut program, from(40));
        let judged = judged(&program);
        assert_eq!(counts(&mut program), (judged, 0, 0, 0));
    }
    let expected: BTreeSet<_> = Reason::ALL
        .into_iter()
        .filter(|reason| {
            // Reasons of frames are reported in `every_kind_of_frame_is_reported_as_it_is`, and
            // at XDP no packet waits.
            !matches!(
                reason,
                Reason::NotIp
                    | Reason::NeighbourDiscovery
                    | Reason::DeepVlan
                    | Reason::Truncated
                    | Reason::Malformed
                    | Reason::Contended
                    | Reason::Delayed
            )
        })
        .map(Reason::name)
        .collect();
    assert_eq!(seen, expected);
    assert!(dropping.len() >= 7, "each packet says the rule that dropped it: {dropping:?}");
}

/// The packet that came in, not the answer, or the mark, that it became.
#[test]
fn a_packet_is_reported_as_it_was_before_an_action() {
    require_root();
    for (action, reason) in [("reject", Reason::Rejected), ("{mark: {dscp: cs1}}", Reason::Marked)]
    {
        let mut program = program(&format!(
            "domain: test\nreplies: {{unit: second, requests_per_unit: 100}}\ndescriptors:
  - {{key: remote_address, rate_limit: {{unit: hour, requests_per_unit: 1}}, action: {action}}}\n"
        ));
        for snap in [0, 1, 60, 96, MAX_SNAP] {
            capture(&mut program, &CaptureFilter { snap, ..ALL });
            for frame in [Frame::ipv4(V4, V4_TO), Frame::ipv6(V6, V6_TO).vlan(7)] {
                let transport = Transport::Udp { source: 1, destination: 2 };
                let frame = frame.transport(transport).payload(&[3; 300]).build();
                program.judge(&frame).unwrap();
                assert_eq!(program.judge(&frame).unwrap(), reason);
                let reported = reported(&mut program);
                let CapturedPacket { record, bytes } = reported.last().unwrap();
                assert_eq!(u32::from(record.reason), reason.index());
                assert_eq!(bytes[..], frame[..frame.len().min(snap as usize)], "{reason:?} {snap}");
                assert_eq!(record.length as usize, frame.len());
            }
        }
    }
}

#[test]
fn a_snap_length_cuts_and_a_long_frame_is_read_wherever_it_is() {
    require_root();
    let mut program = program(ONE_AN_HOUR);
    let long: Vec<u8> = (0..40_000_u32).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
    let short = Frame::ipv4(V4, V4_TO).build();
    let long = Frame::ipv4(V4, V4_TO).payload(&long).build();
    for snap in [0, 1, 13, 14, 15, 33, 34, 96, 1_500, MAX_SNAP - 1, MAX_SNAP] {
        capture(&mut program, &CaptureFilter { snap, ..ALL });
        for frame in [&short, &long] {
            program.judge(frame).unwrap();
            let reported = reported(&mut program);
            let kept = frame.len().min(snap as usize);
            assert_eq!(reported[0].bytes[..], frame[..kept], "{snap}");
            assert_eq!(reported[0].record.length as usize, frame.len(), "{snap}");
        }
    }
    // A filter that no daemon writes.
    capture(&mut program, &CaptureFilter { snap: u32::MAX, ..ALL });
    program.judge(&long).unwrap();
    assert_eq!(reported(&mut program), []);
    assert_eq!(counts(&mut program).2, 1, "it is counted as lost");
}

#[test]
fn a_frame_in_fragments_and_one_without_an_ethernet_header_are_reported_whole() {
    require_root();
    let mut program = program(ONE_AN_HOUR);
    capture(&mut program, &ALL);
    let payload: Vec<u8> = (0..8_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let frame = Frame::ipv4(V4, V4_TO).payload(&payload).build();
    match program.judge_split(&frame, 64) {
        Ok(_) => assert_eq!(reported(&mut program)[0].bytes, frame),
        // Older kernels do not run a frame in parts.
        Err(error) => eprintln!("not tried: {error}"),
    }
    program.judge_layer3(&frame[14..]).unwrap();
    let reported = reported(&mut program);
    assert_eq!((reported[0].record.layer_3, &reported[0].bytes[..]), (1, &frame[14..]));
}

#[test]
fn a_filter_has_what_it_asks_for_and_nothing_else() {
    require_root();
    let two = "domain: test\ndescriptors:
  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: remote_address, value: 198.51.100.0/24, rate_limit: {unit: hour, requests_per_unit: 1}}\n";
    let mut program = program(two);
    let frames = [[192, 0, 2, 1], [198, 51, 100, 1], [203, 0, 113, 1]].map(|source| {
        let frame = Frame::ipv4(source, V4_TO).build();
        program.run(&frame, 1).unwrap();
        frame
    });
    let arp = [[0xff; 12].as_slice(), &[8, 6], &[0; 28]].concat();
    let mut reported_by = |filter: &CaptureFilter| {
        capture(&mut program, filter);
        for frame in &frames {
            program.run(frame, 1).unwrap();
        }
        program.run(&arp, 1).unwrap();
        reported(&mut program).into_iter().map(|packet| packet.record).collect::<Vec<_>>()
    };
    let all = reported_by(&ALL);
    assert_eq!(all.len(), 4);
    let rule = all[1].rule;
    let only = |records: &[CaptureRecord], index: usize| {
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].source, all[index].source);
    };
    only(&reported_by(&CaptureFilter { rule, ..ALL }), 1);
    let dropped = Reason::ALL.into_iter().filter(|reason| reason.verdict() == Verdict::Drop);
    let dropped = dropped.fold(0, |bits, reason| bits | 1 << reason.index());
    assert_eq!(reported_by(&CaptureFilter { reasons: dropped, ..ALL }).len(), 2);
    assert_eq!(reported_by(&CaptureFilter { reasons: !dropped, ..ALL }).len(), 2);
    let (high, low) = Source::V4([203, 0, 113, 0]).trie_words();
    let mask = u64::from_ne_bytes([255, 255, 255, 255, 255, 255, 255, 0]);
    only(&reported_by(&CaptureFilter { source: [high, low], mask: [u64::MAX, mask], ..ALL }), 2);
    // Sources of a share, by the same hash as on the host.
    for level in 0..LEVELS {
        let expected: Vec<_> = [[192, 0, 2, 1], [198, 51, 100, 1], [203, 0, 113, 1]]
            .into_iter()
            .filter(|source| level_of(&Source::V4(*source), ALL.seed) >= level)
            .map(|source| <[u64; 2]>::from(Source::V4(source).trie_words()))
            .collect();
        let records = reported_by(&CaptureFilter { level, ..ALL });
        let sources: Vec<_> = records.iter().map(|record| record.source).collect();
        assert_eq!(sources, expected, "level {level}");
    }
}

/// Off, past its end, and for every packet that it does not ask for, nothing is reported or
/// counted.
#[test]
fn without_a_capture_nothing_is_reported_and_it_ends_by_itself() {
    require_root();
    let mut program = program(ONE_AN_HOUR);
    let frame = Frame::ipv4(V4, V4_TO).build();
    program.run(&frame, 100).unwrap();
    assert_eq!((reported(&mut program).len(), counts(&mut program)), (0, (0, 0, 0, 0)));
    let end = Ticks::from_nanos(START + 2_000_000_000);
    program.kernel().begin_capture(&ALL, end).unwrap();
    program.run(&frame, 5).unwrap();
    // The clock of the program, without any daemon.
    program.set_time(end).unwrap();
    program.run(&frame, 5).unwrap();
    assert_eq!((reported(&mut program).len(), counts(&mut program)), (5, (5, 0, 0, 0)));
    program.kernel().capture_until(Ticks::new(END)).unwrap();
    program.run(&frame, 3).unwrap();
    assert_eq!(reported(&mut program).len(), 3);
    // A start ends what a daemon before it left.
    program.restart().unwrap();
    program.run(&frame, 3).unwrap();
    assert_eq!(reported(&mut program).len(), 0);
}

/// Nobody reads, or the budget is used up: what is missed is counted, and every packet is judged as
/// without a capture.
#[test]
fn a_full_ring_and_a_used_up_budget_change_no_verdict() {
    require_root();
    cpu::pin(None, 0).unwrap();
    let frame = Frame::ipv4(V4, V4_TO).payload(&[1; 900]).build();
    let mut verdicts = Vec::new();
    for filter in [None, Some(ALL), Some(CaptureFilter { cost: 1 << 30, credit: 9 << 30, ..ALL })] {
        let mut program = program(ONE_AN_HOUR);
        if let Some(filter) = &filter {
            capture(&mut program, filter);
        }
        program.run(&frame, 5_000).unwrap();
        verdicts.push(program.reasons().unwrap());
        let (sent, over_budget, lost, missed) = counts(&mut program);
        if let Some(filter) = filter {
            assert_eq!(sent + over_budget + lost, 5_000);
            assert_eq!(over_budget + lost, missed);
            assert_eq!(reported(&mut program).len() as u64, sent);
            if filter.cost == ALL.cost {
                let size = (size_of::<CaptureRecord>() + frame.len() + 8).next_multiple_of(8);
                let fits = u64::from(CAPTURED_BYTES) / size as u64;
                assert!(over_budget == 0 && sent.abs_diff(fits) <= 1, "{sent} of {fits}");
            } else {
                assert_eq!((sent, lost), (10, 0), "a burst is one more than the credit");
            }
            // There is room again, or none of the budget.
            program.run(&frame, 1).unwrap();
        } else {
            assert_eq!((sent, over_budget, lost), (0, 0, 0));
        }
    }
    assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]), "{verdicts:?}");
}

/// At the end of the budget, sources of low levels are missed, and those of high ones are seen
/// whole: the counts by level say which.
#[test]
fn levels_that_are_not_missed_were_seen_whole() {
    const SOURCES: u32 = 4_096;
    const ROUNDS: u32 = 3;
    require_root();
    cpu::pin(None, 0).unwrap();
    let mut program = program("domain: test\ndescriptors: []\n");
    let filter = CaptureFilter { level: 2, snap: 64, cost: 1 << 20, credit: 400 << 20, ..ALL };
    capture(&mut program, &filter);
    let source = |at: u32| Source::V4((0x0a00_0000 + at).to_be_bytes());
    // Of the packets, a quarter is of level 2 and above: six times what the budget has.
    let mut now = Ticks::from_nanos(START).get();
    for _ in 0..ROUNDS {
        for at in 0..SOURCES {
            now += (1 << 20) / 24;
            program.set_time(Ticks::new(now)).unwrap();
            let Source::V4(address) = source(at) else { unreachable!() };
            program.run(&Frame::ipv4(address, V4_TO).build(), 1).unwrap();
        }
    }
    let mut packets = std::collections::HashMap::<[u64; 2], u32>::new();
    for packet in reported(&mut program) {
        *packets.entry(packet.record.source).or_default() += 1;
    }
    let counts = program.kernel().capture_counts().unwrap();
    let whole = counts.missed.iter().rposition(|missed| *missed > 0).map_or(2, |level| level + 1);
    assert!((3..8).contains(&whole), "it has to be too much for some, and not for all: {counts:?}");
    let mut seen_whole = 0;
    for at in 0..SOURCES {
        let source = source(at);
        let level = level_of(&source, filter.seed);
        let reported = packets.get(&<[u64; 2]>::from(source.trie_words())).copied().unwrap_or(0);
        if level < 2 {
            assert_eq!(reported, 0);
        } else if level as usize >= whole {
            assert_eq!(reported, ROUNDS, "level {level}");
            seen_whole += 1;
        }
    }
    assert!(seen_whole > 0, "{counts:?}");
}

/// Two CPUs at once: each packet is reported or counted.
#[test]
fn no_packet_goes_uncounted_on_two_cpus() {
    const PACKETS: u32 = 50_000;
    require_root();
    let mut program = program(ONE_AN_HOUR);
    capture(&mut program, &CaptureFilter { snap: 96, ..ALL });
    let frame = Frame::ipv4(V4, V4_TO).build();
    let (shared, frame) = (&program, frame.as_slice());
    thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                cpu::pin(None, cpu).unwrap();
                shared.run(frame, PACKETS).unwrap();
            });
        }
    });
    let (sent, over_budget, lost, missed) = counts(&mut program);
    assert_eq!(sent + over_budget + lost, 2 * u64::from(PACKETS));
    assert_eq!(over_budget + lost, missed);
    let reported = reported(&mut program);
    assert_eq!(reported.len() as u64, sent);
    assert!(reported.iter().all(|packet| packet.bytes == frame), "no packet is mixed with another");
}
