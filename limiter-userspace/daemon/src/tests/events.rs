//! Single drops: reported as episodes, to anybody who asks.

use std::num::NonZero;
use std::time::Duration;

use limiter_api::events::Line;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Event, EventBudget, RULE_NONE};
use tokio::sync::mpsc::error::TryRecvError;

use super::*;
use crate::EventOptions;

fn seconds(seconds: u64) -> Ticks {
    Ticks::from_nanos(seconds * 1_000_000_000)
}

/// A drop by the rule for 192.0.2.0/24.
fn drop_at(daemon: &Daemon, second: u64) {
    let mut state = daemon.fake.state();
    state.now = seconds(second);
    let rule = state.installed().rules[&select("192.0.2.0/24")].limit.rule;
    state.events.push_back(Event {
        source: Source::V4([192, 0, 2, 7]).trie_key(),
        time: seconds(second).get(),
        rule,
        interface: 7,
        length: 60,
        source_port: 40_000,
        destination_port: 53,
        reason: Reason::OverLimit as u8,
        version: 4,
        protocol: 17,
        known: Event::PROTOCOL | Event::PORTS,
        packets: 1,
    });
}

fn look_at(daemon: &mut Daemon, second: u64) {
    daemon.fake.state().now = seconds(second);
    daemon.service.housekeep().unwrap();
}

fn lines(reader: &mut crate::control::Lines) -> Vec<Line> {
    std::iter::from_fn(|| reader.try_recv().ok())
        .map(|line| serde_json::from_slice(&line).unwrap())
        .collect()
}

#[test]
fn a_flood_of_drops_is_one_start_and_one_end() {
    let mut daemon = Daemon::start(&[]);
    let minute = Duration::from_mins(1);
    let options = EventOptions { still: 10 * minute, ..EventOptions::default() };
    assert_eq!(daemon.service.report_events(&options).unwrap().map(drop), None);
    assert_eq!(daemon.fake.state().event_rate, NonZero::new(200));
    let mut episodes = daemon.service.followed(false).unwrap();
    let mut drops = daemon.service.followed(true).unwrap();
    for second in 100..110 {
        for _ in 0..50 {
            drop_at(&daemon, second);
        }
        look_at(&mut daemon, second);
    }
    let reported = daemon.service.events().unwrap();
    assert_eq!(reported.episodes.len(), 1);
    let episode = &reported.episodes[0];
    assert_eq!(
        (episode.source.as_str(), episode.rule.as_deref()),
        ("192.0.2.7", Some("192.0.2.0/24"))
    );
    assert_eq!((episode.reason.as_str(), episode.sampled, episode.seconds), ("over-limit", 500, 9));
    assert_eq!(episode.last.interface.as_deref(), Some("fake0"));
    assert_eq!((episode.last.protocol, episode.last.destination_port), (Some(17), Some(53)));
    assert!(!episode.ended);
    look_at(&mut daemon, 168);
    assert!(!daemon.service.events().unwrap().episodes[0].ended);
    look_at(&mut daemon, 169);
    assert!(daemon.service.events().unwrap().episodes[0].ended);
    let names = |lines: &[Line]| lines.iter().map(Line::name).collect::<Vec<_>>();
    assert_eq!(names(&lines(&mut episodes)), ["start", "end"]);
    let drops = lines(&mut drops);
    assert_eq!(drops.iter().filter(|line| line.name() == "drop").count(), 500);
    assert_eq!(drops.len(), 502);
}

#[test]
fn without_a_rule_there_is_no_name_and_the_counts_are_the_kernels() {
    let mut daemon = Daemon::start(&[]);
    drop_at(&daemon, 5);
    if let Some(event) = daemon.fake.state().events.front_mut() {
        event.rule = RULE_NONE;
        event.reason = Reason::Denied as u8;
        event.interface = 99;
    }
    let counts = EventBudget { next: 3, sent: 1, over_budget: 20, lost: 4 };
    daemon.fake.state().event_counts = counts;
    look_at(&mut daemon, 5);
    let reported = daemon.service.events().unwrap();
    let episode = &reported.episodes[0];
    assert_eq!((episode.rule.as_ref(), episode.reason.as_str()), (None, "denied"));
    assert_eq!(episode.last.interface, None);
    assert_eq!(
        (reported.counts.sent, reported.counts.over_budget, reported.counts.lost),
        (1, 20, 4)
    );
}

/// For a packet that a rule in shadow mode would have dropped, the program notes the rule of the
/// source. That rule is not blamed, and no drop is listed.
#[test]
fn a_rule_in_shadow_mode_is_reported_by_its_own_name_or_none() {
    const TRIAL: &str = "descriptors:
  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {name: all, rate: 10/s}}
  - key: destination_port
    rate_limit: {name: trial, rate: 10/s}
    shadow_mode: true
";
    let other = "  - {key: protocol, rate_limit: {name: more, rate: 9/s}, shadow_mode: true}\n";
    for (rules, name) in [(TRIAL.to_owned(), Some("trial")), (format!("{TRIAL}{other}"), None)] {
        let mut daemon = Daemon::start(&[]);
        daemon.write(&rules);
        daemon.service.reload().unwrap();
        drop_at(&daemon, 5);
        if let Some(event) = daemon.fake.state().events.front_mut() {
            event.reason = Reason::Shadow as u8;
        }
        look_at(&mut daemon, 5);
        let reported = daemon.service.events().unwrap();
        let episode = &reported.episodes[0];
        assert_eq!((episode.reason.as_str(), episode.rule_name.as_deref()), ("shadow", name));
        assert_eq!(daemon.service.events.reported().count(), 0, "it passed");
    }
}

#[test]
fn the_end_of_the_daemon_is_the_end_of_every_reader() {
    let mut daemon = Daemon::start(&[]);
    let mut reader = daemon.service.followed(true).unwrap();
    assert_eq!(reader.try_recv(), Err(TryRecvError::Empty));
    daemon.service.events.end();
    assert_eq!(reader.try_recv(), Err(TryRecvError::Disconnected));
}

/// The program stores the ports as the other end sees them; the report shows the packet as it was
/// sent.
#[test]
fn a_packet_that_went_out_is_reported_as_it_was_sent() {
    let mut daemon = Daemon::start(&[]);
    daemon.service.report_events(&EventOptions::default()).unwrap();
    drop_at(&daemon, 1_001);
    if let Some(event) = daemon.fake.state().events.back_mut() {
        event.known |= Event::OUT;
    }
    look_at(&mut daemon, 1_001);
    let episodes = daemon.service.events().unwrap().episodes;
    let last = &episodes[0].last;
    assert_eq!(last.direction.as_deref(), Some("out"));
    assert_eq!((last.source_port, last.destination_port), (Some(53), Some(40_000)));
    assert_eq!(limiter_api::events::packet(last), "out udp 53>40000 60 bytes fake0");
}
