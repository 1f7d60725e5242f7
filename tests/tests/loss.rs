//! Rules that only count when the daemon is lost: in the kernel, with nobody there.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::Program;
use limiter_tests::root::require_root;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;
const LOST: u64 = START + 30 * SECOND;

fn frame(last: u8, port: u16) -> Vec<u8> {
    let transport = Transport::Udp { source: 40_000, destination: port };
    Frame::ipv4([192, 0, 2, last], [198, 51, 100, 1]).transport(transport).payload(&[0; 60]).build()
}

fn at(program: &Program, nanos: u64) {
    program.set_time(Ticks::from_nanos(nanos)).unwrap();
}

fn passed(program: &Program, frame: &[u8], count: usize) -> usize {
    (0..count).filter(|_| program.run(frame, 1).unwrap() == Verdict::Pass).count()
}

/// Under `rules`, with a daemon that gave its last sign of life at [`START`].
fn under(rules: &str) -> Program {
    require_root();
    let mut program = Program::load(256, 64).unwrap();
    program.apply_file(rules).unwrap();
    program.kernel().set_daemon_lost(Ticks::from_nanos(LOST)).unwrap();
    at(&program, START);
    program
}

/// Each rule by itself: one stays, one fades, of whatever kind it is.
#[test]
fn rules_fade_and_come_back() {
    let rules = "budgets: [{name: shared, rate_limit: {unit: week, requests_per_unit: 7}, \
        on_daemon_loss: shadow}]
descriptors:
  - {key: remote_address, value: 192.0.2.1, rate_limit: {unit: week, requests_per_unit: 5}}
  - {key: remote_address, value: 192.0.2.2, rate_limit: {unit: week, requests_per_unit: 5}, \
  on_daemon_loss: keep}
  - {key: remote_address, value: 192.0.2.3, rate_limit: {unit: week, requests_per_unit: 5}, \
  on_daemon_loss: shadow}
  - key: remote_address
    value: 192.0.2.4
    rate_limits: [{unit: week, requests_per_unit: 5}, {unit: week, requests_per_unit: 1000000, \
    count: bytes}]
    on_daemon_loss: shadow
    action: reject
  - key: destination_port
    value: 53
    descriptors:
      - {key: remote_address, value: 192.0.2.5, rate_limit: {unit: hour, requests_per_unit: 5, \
      algorithm: fixed_window}, on_daemon_loss: shadow}
  - {key: destination_port, value: 54, budget: shared}
";
    let mut program = under(rules);
    let rows = [
        (1, 50, 5, false),
        (2, 50, 5, false),
        (3, 50, 5, true),
        (4, 50, 5, true),
        (5, 53, 5, true),
        (6, 54, 7, true),
    ];
    for (source, port, limit, _) in rows {
        assert_eq!(passed(&program, &frame(source, port), 20), limit, "192.0.2.{source}");
    }
    at(&program, LOST - 1);
    for (source, port, ..) in rows {
        assert_eq!(passed(&program, &frame(source, port), 20), 0, "192.0.2.{source}, not yet lost");
    }
    at(&program, LOST);
    for (source, port, _, fades) in rows {
        let expected = if fades { (20, Reason::Shadow) } else { (0, Reason::OverLimit) };
        let found = (
            passed(&program, &frame(source, port), 20),
            program.judge(&frame(source, port)).unwrap(),
        );
        assert_eq!(found, expected, "192.0.2.{source}, lost");
    }
    // A sign of life, and nobody gets a second burst from having been spared.
    program.kernel().set_daemon_lost(Ticks::from_nanos(LOST + 30 * SECOND)).unwrap();
    for (source, port, ..) in rows {
        assert_eq!(passed(&program, &frame(source, port), 20), 0, "192.0.2.{source}, found again");
    }
}

/// A key that is not over its limit yet is charged as ever: the count goes on.
#[test]
fn within_the_limit_nothing_changes() {
    let rule = "descriptors: [{key: remote_address, rate_limit: {unit: week, requests_per_unit: \
        5}, on_daemon_loss: shadow}]\n";
    let mut program = under(rule);
    at(&program, LOST);
    let reasons: Vec<_> = (0..7).map(|_| program.judge(&frame(1, 53)).unwrap()).collect();
    assert_eq!(reasons[..5], [Reason::Conforming; 5]);
    assert_eq!(reasons[5..], [Reason::Shadow; 2]);
    program.kernel().set_daemon_lost(Ticks::from_nanos(LOST + SECOND)).unwrap();
    assert_eq!(program.judge(&frame(1, 53)).unwrap(), Reason::OverLimit);
}

/// The word of a program that no daemon ever wrote to.
#[test]
fn without_a_daemon_ever_there_is_none_to_lose() {
    require_root();
    let mut program = Program::load(256, 64).unwrap();
    program
        .apply_file(
            "descriptors: [{key: remote_address, rate_limit: {unit: week, \
        requests_per_unit: 5}, on_daemon_loss: shadow}]\n",
        )
        .unwrap();
    at(&program, START);
    assert_eq!(passed(&program, &frame(1, 53), 20), 5);
}
