//! Single drops, as the program in the kernel reports them: what they say, and that none goes
//! uncounted.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::num::NonZero;
use std::thread;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{EVENT_BYTES, Event, ListEntry, Listed, RULE_NONE};
use limiter_datapath::Datapath as _;
use limiter_rules::Selector;
use limiter_tests::cpu;
use limiter_tests::frames::{V4, V4_TO, V6, V6_TO};
use limiter_tests::packet::{Fragment, Frame, Transport};
use limiter_tests::program::{Program, rule_set};
use limiter_tests::root::require_root;

const ONE_AN_HOUR: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";

/// A rule by source and a table, which is asked through other functions.
const WITH_A_TABLE: &str = "domain: test\ndescriptors:
  - key: remote_address
    descriptors:
      - {key: protocol, value: udp, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";

const START: u64 = 1_000_000_000_000;

/// More than a day's drops, one at a time.
const NEVER_SHORT: u32 = 1_000_000;

fn program(rules: &str) -> Program {
    let mut program = Program::load(256, 16).unwrap();
    program.apply(&rule_set(rules).unwrap()).unwrap();
    program.set_time(Ticks::from_nanos(START)).unwrap();
    program
}

fn allow(program: &mut Program, per_second: u32, burst: u32) {
    let burst = NonZero::new(burst).unwrap();
    program.kernel().set_event_rate(NonZero::new(per_second), burst).unwrap();
}

fn udp() -> Transport {
    Transport::Udp { source: 5353, destination: 53 }
}

fn events(program: &mut Program) -> Vec<Event> {
    std::iter::from_fn(|| program.kernel().next_event()).collect()
}

fn dropped(program: &Program) -> u64 {
    let reported = |reason: &Reason| reason.verdict() == Verdict::Drop || *reason == Reason::Shadow;
    let reasons = program.reasons().unwrap();
    Reason::ALL
        .into_iter()
        .zip(reasons)
        .filter(|(at, _)| reported(at))
        .map(|(_, at)| at.packets)
        .sum()
}

/// Sent, over the budget, and lost; together they are all drops.
fn counts(program: &mut Program) -> (u64, u64, u64) {
    let counts = program.kernel().event_counts().unwrap();
    let all = counts.sent + counts.over_budget + counts.lost;
    assert_eq!(all, dropped(program), "{counts:?}");
    (counts.sent, counts.over_budget, counts.lost)
}

#[test]
fn a_drop_says_what_it_was() {
    require_root();
    for rules in [ONE_AN_HOUR, WITH_A_TABLE] {
        let mut program = program(rules);
        allow(&mut program, NEVER_SHORT, 16);
        let v4 = Frame::ipv4(V4, V4_TO).transport(udp()).payload(&[0; 20]).build();
        let v6 = Frame::ipv6(V6, V6_TO).transport(udp()).vlan(7).build();
        for frame in [&v4, &v6] {
            assert_eq!(program.judge(frame).unwrap(), Reason::Conforming);
        }
        assert_eq!(events(&mut program), [], "what passes is not reported");
        for frame in [&v4, &v6] {
            assert_eq!(program.judge(frame).unwrap(), Reason::OverLimit);
        }
        let reported = events(&mut program);
        let rule = reported[0].rule;
        let event = |source: Source, version: u8, length: usize| Event {
            source: source.trie_key(),
            time: Ticks::from_nanos(START).get(),
            rule,
            interface: 1,
            length: u32::try_from(length).unwrap(),
            source_port: 5353,
            destination_port: 53,
            reason: Reason::OverLimit as u8,
            version,
            protocol: 17,
            known: Event::PROTOCOL | Event::PORTS,
            packets: 1,
        };
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&V6[..8]);
        let expected = [event(Source::V4(V4), 4, v4.len()), event(Source::V6(prefix), 6, v6.len())];
        assert_eq!(reported, expected);
        assert_ne!(rule, RULE_NONE);
        assert_eq!(program.rule_counters(rule).unwrap().dropped.packets, 2, "the rule's number");
        assert_eq!(counts(&mut program), (2, 0, 0));
    }
}

#[test]
fn a_denied_source_and_a_later_fragment_say_what_is_known() {
    require_root();
    let mut program = program(ONE_AN_HOUR);
    allow(&mut program, NEVER_SHORT, 16);
    let entry = ListEntry::new(Listed::Deny, None);
    let selector = Selector::prefix("192.0.2.0/24".parse().unwrap()).unwrap();
    program.kernel().list(&selector, entry).unwrap();
    let fragment = Fragment { id: 1, offset: 5, more: false };
    let frame = Frame::ipv4([192, 0, 2, 77], V4_TO).transport(udp()).fragment(fragment).build();
    assert_eq!(program.judge(&frame).unwrap(), Reason::Denied);
    let reported = events(&mut program);
    assert_eq!(reported.len(), 1);
    let Event { reason, rule, protocol, known, source_port, destination_port, .. } = reported[0];
    assert_eq!(u32::from(reason), Reason::Denied.index());
    assert_eq!(rule, RULE_NONE);
    assert_eq!((protocol, known, source_port, destination_port), (17, Event::PROTOCOL, 0, 0));
}

/// An answer has addresses of its own by the time that it leaves.
#[test]
fn a_rejected_packet_is_reported_by_its_own_source() {
    require_root();
    let rules = "domain: test\nreplies: {unit: second, requests_per_unit: 100}\ndescriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}
    action: reject\n";
    let mut program = program(rules);
    allow(&mut program, NEVER_SHORT, 16);
    let frame = Frame::ipv4(V4, V4_TO).transport(udp()).payload(&[0; 64]).build();
    assert_eq!(program.judge(&frame).unwrap(), Reason::Conforming);
    assert_eq!(program.judge(&frame).unwrap(), Reason::Rejected);
    let reported = events(&mut program);
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].source, Source::V4(V4).trie_key());
    assert_eq!((reported[0].source_port, reported[0].destination_port), (5353, 53));
    assert_eq!(u32::from(reported[0].reason), Reason::Rejected.index());
}

#[test]
fn shadow_drops_are_reported_and_pass() {
    require_root();
    let rules = ONE_AN_HOUR.replace("rate_limit:", "shadow_mode: true, rate_limit:");
    let mut program = program(&rules);
    allow(&mut program, NEVER_SHORT, 16);
    let frame = Frame::ipv4(V4, V4_TO).transport(udp()).build();
    for reason in [Reason::Conforming, Reason::Shadow, Reason::Shadow] {
        assert_eq!(program.judge(&frame).unwrap(), reason);
    }
    let reported = events(&mut program);
    assert_eq!(reported.len(), 2);
    assert!(reported.iter().all(|event| u32::from(event.reason) == Reason::Shadow.index()));
    counts(&mut program);
}

/// The budget holds to the event, whatever the drop rate; without one nothing is reported.
#[test]
fn over_the_budget_drops_are_counted() {
    require_root();
    let mut program = program(ONE_AN_HOUR);
    cpu::pin(None, 0).unwrap();
    let frame = Frame::ipv4(V4, V4_TO).transport(udp()).build();
    program.run(&frame, 1_001).unwrap();
    assert_eq!(counts(&mut program), (0, 1_000, 0), "without a budget");
    allow(&mut program, 100, 50);
    program.run(&frame, 1_000).unwrap();
    assert_eq!(counts(&mut program), (50, 1_950, 0), "a burst");
    // A hundredth of a second is an event.
    program.set_time(Ticks::from_nanos(START + 9_999_999)).unwrap();
    program.run(&frame, 1_000).unwrap();
    assert_eq!(counts(&mut program), (50, 2_950, 0));
    program.set_time(Ticks::from_nanos(START + 10_000_000)).unwrap();
    program.run(&frame, 1_000).unwrap();
    assert_eq!(counts(&mut program), (51, 3_949, 0));
    assert_eq!(events(&mut program).len(), 51);
}

/// Nobody reads: what finds no room is lost, and the packets are judged as ever.
#[test]
fn a_full_ring_loses_events_and_no_verdict() {
    require_root();
    let mut program = program(ONE_AN_HOUR);
    let fits = EVENT_BYTES / u32::try_from(size_of::<Event>() + 8).unwrap();
    allow(&mut program, NEVER_SHORT, 4 * fits);
    let frame = Frame::ipv4(V4, V4_TO).transport(udp()).build();
    program.run(&frame, 2 * fits + 1).unwrap();
    let (sent, over_budget, lost) = counts(&mut program);
    assert!(sent.abs_diff(u64::from(fits)) <= 1, "{sent} of {fits}");
    assert_eq!((over_budget, lost), (0, 2 * u64::from(fits) - sent));
    let read = u64::try_from(events(&mut program).len()).unwrap();
    assert_eq!(read, sent);
    // There is room again.
    assert_eq!(program.judge(&frame).unwrap(), Reason::OverLimit);
    assert_eq!(events(&mut program).len(), 1);
}

/// Two CPUs at once: each has its own budget and counts, and together they miss no drop.
#[test]
fn no_drop_goes_uncounted_on_two_cpus() {
    const PACKETS: u32 = 200_000;
    require_root();
    let mut program = program(ONE_AN_HOUR);
    allow(&mut program, 1_000, 20);
    let frame = Frame::ipv4(V4, V4_TO).transport(udp()).build();
    let (shared, frame) = (&program, frame.as_slice());
    thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                cpu::pin(None, cpu).unwrap();
                shared.run(frame, PACKETS).unwrap();
            });
        }
    });
    let (sent, over_budget, lost) = counts(&mut program);
    // The clock stands still, so each CPU has its burst.
    assert_eq!((sent, lost), (40, 0));
    assert_eq!(over_budget, 2 * u64::from(PACKETS) - 1 - 40);
    assert_eq!(events(&mut program).len(), 40);
}
