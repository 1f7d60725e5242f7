//! The last minutes: readings of the counters, what changed, and the rates of interfaces.

use std::num::NonZeroU32;

use limiter_api::render;
use limiter_api::rules::ApplyRules;
use limiter_api::status::history::{AskHistory, History, MarkKind, Rates};
use limiter_common::source::Source;
use limiter_common::time::Ticks;

use super::rule_sets::documents;
use super::*;

const SECOND: u64 = 1_000_000_000;

fn at(daemon: &mut Daemon, seconds: u64) {
    daemon.fake.state().now = Ticks::from_nanos(seconds * SECOND);
    daemon.service.housekeep().unwrap();
}

fn history(daemon: &Daemon, after: Option<u64>) -> History {
    daemon.service.history(AskHistory { after }).unwrap()
}

fn try_out(daemon: &mut Daemon) {
    let rules = RULES.replace("1000, burst: 100", "1000, burst: 300");
    let trial = ApplyRules {
        documents: documents(&[&rules]),
        force: false,
        confirm_seconds: NonZeroU32::new(60),
        session: None,
    };
    daemon.service.apply_rules(&trial).unwrap();
}

#[test]
fn the_counters_are_read_each_second_and_those_of_ten_minutes_are_kept() {
    let mut daemon = Daemon::start(&[]);
    for seconds in 1..=700 {
        daemon.fake.send(Source::V4([198, 51, 100, 1]), 50, 100);
        at(&mut daemon, seconds);
    }
    let output = history(&daemon, None);
    assert_eq!(output.clock_ns, 700 * SECOND);
    let [first, .., before, last] = output.points.as_slice() else { panic!("{output:?}") };
    assert_eq!((first.clock_ns, last.clock_ns), (100 * SECOND, 700 * SECOND));
    assert_eq!(output.marks, [], "the start was more than ten minutes ago");
    let stats = daemon.service.stats().unwrap();
    assert_eq!((last.passed, last.dropped), (stats.passed, stats.dropped));
    // 50 a second against 100/s with a burst of 20: at most one token has come between two.
    let rates = last.since(before).unwrap();
    assert!(rates.passed_packets > 0.0 && rates.dropped_packets > 0.0, "{rates:?}");
    assert!((rates.passed_packets + rates.dropped_packets - 50.0).abs() < 1e-9, "{rates:?}");
    assert!((rates.passed_bits - 800.0 * rates.passed_packets).abs() < 1e-6, "{rates:?}");
    // A client that has the earlier points asks for the newer ones.
    let newer = history(&daemon, Some(before.clock_ns)).points;
    assert_eq!(newer, [*last]);
    assert_eq!(history(&daemon, Some(last.clock_ns)).points, []);
}

#[test]
fn what_changed_is_marked() {
    let mut daemon = Daemon::start(&[]);
    at(&mut daemon, 1);
    at(&mut daemon, 2);
    daemon.service.reload().unwrap();
    at(&mut daemon, 3);
    try_out(&mut daemon);
    at(&mut daemon, 4);
    daemon.service.confirm().unwrap();
    at(&mut daemon, 5);
    daemon.service.reload().unwrap();
    at(&mut daemon, 6);
    try_out(&mut daemon);
    at(&mut daemon, 7);
    // Nobody confirms it.
    at(&mut daemon, 100);
    daemon.service.bypass(Bypass { engaged: true, ..Bypass::default() }).unwrap();
    at(&mut daemon, 101);
    daemon.service.bypass(Bypass { engaged: false, ..Bypass::default() }).unwrap();
    at(&mut daemon, 102);
    let marks = history(&daemon, None).marks;
    let marks: Vec<_> = marks.iter().map(|mark| (mark.clock_ns / SECOND, mark.change)).collect();
    assert_eq!(
        marks,
        [
            (0, MarkKind::Started),
            (3, MarkKind::Rules),
            (4, MarkKind::Trial),
            (5, MarkKind::Confirmed),
            (6, MarkKind::Rules),
            (7, MarkKind::Trial),
            (100, MarkKind::Reverted),
            (101, MarkKind::Off),
            (102, MarkKind::On),
        ]
    );
}

#[test]
fn an_interface_has_the_rates_of_the_last_ten_seconds() {
    let mut daemon = Daemon::start(&[]);
    let rates = |daemon: &Daemon| daemon.service.status().unwrap().interfaces[0].rates;
    assert_eq!(rates(&daemon), None, "no time went by");
    daemon.fake.state().now = Ticks::from_nanos(SECOND / 10);
    assert_eq!(rates(&daemon), Some(Rates::default()), "known from the start on");
    for seconds in 2..=30 {
        daemon.fake.send(Source::V4([198, 51, 100, 1]), 10, 125);
        at(&mut daemon, seconds);
    }
    let busy = rates(&daemon).unwrap();
    assert!((busy.passed_packets - 10.0).abs() < 1e-9, "{busy:?}");
    assert!((busy.passed_bits - 10_000.0).abs() < 1e-6, "{busy:?}");
    let text = render::text(&daemon.service.status().unwrap());
    let shown = "passes 10/s, 10.0 kbit/s; drops 0/s, 0 bit/s\n";
    assert!(text.contains(shown), "{text}");
    for seconds in 31..=40 {
        at(&mut daemon, seconds);
    }
    assert_eq!(rates(&daemon), Some(Rates::default()), "what was before is over");
}
