//! Utilization over the data path in memory: the counts and the answers.

use limiter_api::utilization::{Fit, Of, RuleUtilization, Utilization};
use limiter_common::source::Source;
use limiter_common::time::Ticks;

use super::Daemon;
use crate::control::{Sliced as _, Step};
use crate::routes::utilization::UtilizationText;
use crate::utilization::Watch;

const SECOND: u64 = 1_000_000_000;

fn at(daemon: &Daemon, seconds: u64) {
    daemon.fake.state().now = Ticks::from_nanos(seconds * SECOND);
}

fn source(number: u16) -> Source {
    let [high, low] = number.to_be_bytes();
    Source::V4([10, 0, high, low])
}

fn reported(daemon: &Daemon) -> Utilization {
    let mut slices = UtilizationText::begin(&daemon.service).unwrap();
    for _ in 0..100 {
        match slices.step(&daemon.service).unwrap() {
            Step::Again | Step::After(_) => {}
            Step::Part(text) => {
                assert_eq!(slices.step(&daemon.service).unwrap(), Step::Done);
                return serde_json::from_slice(&text).unwrap();
            }
            Step::Done => break,
        }
    }
    panic!("no end");
}

/// The rule `every source`: 100/s, 20 at once.
fn rule(reported: &Utilization) -> &RuleUtilization {
    reported.rules.iter().find(|rule| rule.rule == "every source").unwrap()
}

fn send(daemon: &Daemon, sources: std::ops::Range<u16>, packets: u64) {
    for number in sources {
        daemon.fake.send(source(number), packets, 60);
    }
}

#[test]
fn the_histogram_has_every_source() {
    let daemon = Daemon::start(&[]);
    assert_eq!(reported(&daemon).rules, [], "nobody has sent anything");
    at(&daemon, 10);
    // 1 of 20, 10, 16, and 25, of which 5 are dropped.
    send(&daemon, 0..50, 1);
    send(&daemon, 50..60, 10);
    send(&daemon, 60..63, 16);
    send(&daemon, 63..64, 25);
    let reported = reported(&daemon);
    let rule = rule(&reported);
    assert_eq!((reported.buckets, reported.one_of, reported.left_out), (64, 1, false));
    assert_eq!((rule.tracked, rule.of, rule.limit.as_str()), (64, Of::Sources, "100/s"));
    assert_eq!(rule.tenths, [50, 0, 0, 0, 0, 10, 0, 0, 3, 1]);
    // They came after a reading of everything: all of their packets are of the window.
    assert_eq!((rule.sent, rule.above_50, rule.above_80), (64, 14, 4));
    assert_eq!((rule.lost, rule.lost_most, rule.at_most), (1, 0, Some(1.0)));
    assert_eq!((rule.passed, rule.dropped), (50 + 100 + 48 + 20, 5));
}

#[test]
fn what_came_before_the_first_reading_is_nobodys_news() {
    let daemon = Daemon::start(&[]);
    at(&daemon, 10);
    send(&daemon, 0..64, 25);
    let rule = rule(&reported(&daemon)).clone();
    assert_eq!((rule.tracked, rule.sent, rule.lost, rule.dropped), (64, 0, 0, 0));
    assert_eq!(rule.answer, Fit::NotKnownYet);
    let share = 5.0 / 25.0;
    assert!(rule.dropped_share.is_some_and(|dropped| (dropped - share).abs() < 1e-9));
}

#[test]
fn users_whose_bursts_do_not_fit_make_a_limit_too_tight() {
    let daemon = Daemon::start(&[]);
    reported(&daemon);
    at(&daemon, 10);
    send(&daemon, 0..100, 5);
    send(&daemon, 100..105, 25);
    let reported = reported(&daemon);
    assert_eq!(rule(&reported).answer, Fit::TooTight);
    assert_eq!(
        daemon.service.status().unwrap().too_tight,
        ["every source: 5 of 105 sources lost packets in 10 s, but less than half of what they \
          sent, as users do whose bursts do not fit"]
    );
}

#[test]
fn few_attackers_leave_a_limit_fitting() {
    let daemon = Daemon::start(&[]);
    reported(&daemon);
    for minute in 1..=6 {
        at(&daemon, minute * 60);
        send(&daemon, 0..100, 5);
        send(&daemon, 100..102, 300);
        reported(&daemon);
    }
    let reported = reported(&daemon);
    let rule = rule(&reported);
    assert_eq!((rule.sent, rule.lost, rule.lost_most), (102, 2, 2));
    assert_eq!((rule.answer, reported.apart_seconds), (Fit::Fitting, 60));
}

#[test]
fn a_limit_is_loose_only_if_no_burst_can_have_come_near() {
    let daemon = Daemon::start(&[]);
    reported(&daemon);
    for minute in 1..=6 {
        at(&daemon, minute * 60);
        send(&daemon, 0..100, 9);
        at(&daemon, minute * 60 + 5);
        reported(&daemon);
    }
    let first = rule(&reported(&daemon)).clone();
    assert_eq!(first.answer, Fit::Loose, "{}", first.evidence);
    // 11 packets in a minute may have come at once: more than half of 20. The reading is late.
    at(&daemon, 420);
    send(&daemon, 0..1, 11);
    at(&daemon, 425);
    let second = rule(&reported(&daemon)).clone();
    assert_eq!((second.above_50, second.answer), (0, Fit::NotKnownYet), "{}", second.evidence);
}

#[test]
fn other_limits_begin_anew() {
    let mut daemon = Daemon::start(&[]);
    reported(&daemon);
    at(&daemon, 10);
    send(&daemon, 0..100, 25);
    assert_eq!(rule(&reported(&daemon)).answer, Fit::TooTight);
    daemon.set("0.0.0.0/0", "1000/s", Some(500)).unwrap();
    at(&daemon, 20);
    send(&daemon, 0..100, 1);
    at(&daemon, 30);
    let reported = reported(&daemon);
    let of_all = reported.rules.iter().find(|rule| rule.rule == "0.0.0.0/0").unwrap();
    assert_eq!((of_all.lost, of_all.answer), (0, Fit::NotKnownYet));
    assert!(daemon.service.status().unwrap().too_tight.is_empty());
}

#[test]
fn shadow_mode_does_not_say_whom_it_would_hit() {
    let daemon = Daemon::start(&[]);
    daemon.write(
        "descriptors:\n  - key: remote_address\n    rate_limit: {unit: second, requests_per_unit: \
         10, burst: 5}\n    shadow_mode: true\n",
    );
    let mut daemon = daemon;
    daemon.service.reload().unwrap();
    reported(&daemon);
    at(&daemon, 10);
    send(&daemon, 0..100, 8);
    let reported = reported(&daemon);
    let rule = rule(&reported);
    assert_eq!((rule.shadow, rule.shadowed, rule.lost), (true, 300, 0));
    assert_eq!(rule.answer, Fit::NotKnownYet);
    assert!(rule.evidence.contains("it would drop 300 packets"), "{}", rule.evidence);
}

#[test]
fn keys_and_budgets_are_distinguished() {
    let daemon = Daemon::start(&[]);
    daemon.write(
        "budgets:
  - name: all
    rate_limit: {unit: second, requests_per_unit: 100, burst: 40}
descriptors:
  - key: remote_address
    rate_limit: {algorithm: fixed_window, unit: minute, requests_per_unit: 20}
  - key: masked_remote_address
    v4_prefix_mask_len: 24
    budget: all
",
    );
    let mut daemon = daemon;
    daemon.service.reload().unwrap();
    reported(&daemon);
    at(&daemon, 10);
    send(&daemon, 0..8, 5);
    let reported = reported(&daemon);
    let of = |of: Of| reported.rules.iter().find(|rule| rule.of == of).unwrap();
    let sources = of(Of::Sources);
    assert_eq!((sources.tracked, sources.tenths[2]), (8, 8), "5 of 20 in the window");
    let budget = of(Of::Budget);
    assert_eq!((budget.rule.as_str(), budget.tracked, budget.at_most), ("budget all", 1, None));
    assert_eq!(budget.tenths[9], 1, "40 of 40");
    assert_eq!(budget.answer, Fit::NotKnownYet);
}

#[test]
fn a_round_that_nobody_asks_for_reads_a_few_a_second() {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 1);
    send(&daemon, 0..5000, 1);
    for second in 2..12 {
        at(&daemon, second);
        daemon.service.housekeep().unwrap();
    }
    let watch = daemon.service.gauges.utilization.borrow();
    let reported = watch
        .reported(daemon.service.datapath().unwrap(), &daemon.service.rule_sets.effective)
        .unwrap();
    assert_eq!((reported.buckets, rule(&reported).tracked), (5000, 5000));
}

/// Most places in lines are empty: a round over few sources does not take minutes, and later
/// sources are reported.
#[test]
fn empty_places_hold_no_round_up() {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 1);
    send(&daemon, 0..100, 1);
    // As many places as the default table has for a family.
    daemon.fake.state().places = 5000;
    for second in 2..11 {
        at(&daemon, second);
        daemon.service.housekeep().unwrap();
    }
    daemon.fake.state().places = 1;
    send(&daemon, 100..130, 3);
    assert_eq!(rule(&reported(&daemon)).sent, 30, "they are new, and all of theirs counts");
}

/// The last line describes the reading, and no character of the text was replaced.
#[test]
fn the_text_ends_with_how_it_was_read() {
    let daemon = Daemon::start(&[]);
    send(&daemon, 0..3, 1);
    let text = limiter_api::render::text(&reported(&daemon));
    assert!(text.ends_with("\n\n3 buckets, read just now\n"), "{text}");
    assert!(!text.contains('\u{fffd}'), "{text}");
}

#[test]
fn of_many_a_share_is_followed_and_all_are_counted() {
    let daemon = Daemon::start(&[]);
    *daemon.service.gauges.utilization.borrow_mut() = Watch::with_room(64);
    reported(&daemon);
    at(&daemon, 10);
    send(&daemon, 0..1000, 5);
    let first = reported(&daemon);
    assert!(first.one_of >= 16, "{first:?}");
    let of_all = rule(&first);
    assert_eq!((first.buckets, of_all.tracked, of_all.tenths[2]), (1000, 1000, 1000));
    assert!((1..=64).contains(&of_all.sent), "{of_all:?}");
    // Followed buckets stay the same.
    at(&daemon, 20);
    send(&daemon, 0..1000, 25);
    let second = reported(&daemon);
    assert_eq!(rule(&second).sent, of_all.sent);
    assert_eq!(rule(&second).lost, of_all.sent, "all of them lost packets");
}
