//! The log of events on disk: who was dropped when, over restarts and damage.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use limiter_api::events::{AskEvents, Events};
use limiter_api::render;
use limiter_api::sources::reach::Reach;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Event, EventBudget};

use super::*;
use crate::EventOptions;
use crate::control::{Sliced as _, Step};
use crate::events::filter::Filter;
use crate::routes::events::EventsText;

/// 2026-11-27T14:00:00Z.
const BASE: u64 = 1_795_788_000;

/// Sets both clocks to a second after [`BASE`].
fn at(daemon: &Daemon, second: u64) {
    let mut state = daemon.fake.state();
    state.now = Ticks::from_nanos((1000 + second) * 1_000_000_000);
    state.wall = Some(Duration::from_secs(BASE + second));
}

fn begin(daemon: &mut Daemon) {
    let bytes = 1 << 20;
    let options = EventOptions { log_bytes: bytes, ..EventOptions::default() };
    assert!(daemon.service.report_events(&options).unwrap().is_none());
}

fn daemon() -> Daemon {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 0);
    begin(&mut daemon);
    daemon
}

fn source(number: u32) -> [u8; 4] {
    (0xc000_0200 + number).to_be_bytes()
}

/// Drops of a source, by the rule `office` of all in 192.0.2.0/24, at the time of the clocks.
fn drops(daemon: &Daemon, source: [u8; 4], reason: Reason, count: usize) {
    let mut state = daemon.fake.state();
    let rule = state.installed().rules[&select("192.0.2.0/24")].limit.rule;
    let event = Event {
        source: Source::V4(source).trie_key(),
        time: state.now.get(),
        rule,
        interface: 7,
        length: 60,
        source_port: 40_000,
        destination_port: 53,
        reason: reason as u8,
        version: 4,
        protocol: 17,
        known: Event::PROTOCOL | Event::PORTS,
        packets: 1,
    };
    state.events.extend(std::iter::repeat_n(event, count));
    state.event_counts.sent += u64::try_from(count).unwrap();
}

fn look(daemon: &mut Daemon, second: u64) {
    at(daemon, second);
    daemon.service.housekeep().unwrap();
}

fn asked(daemon: &Daemon, ask: &AskEvents) -> Events {
    let filter = Filter::of(ask).unwrap().unwrap();
    let mut text = EventsText::begin(&daemon.service, &filter).unwrap();
    loop {
        match text.step(&daemon.service).unwrap() {
            Step::Part(text) => return serde_json::from_slice(&text).unwrap(),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn of_source(source: &str) -> AskEvents {
    AskEvents { source: Some(source.to_owned()), ..AskEvents::default() }
}

/// The time between two minutes after 14:00.
fn between(ask: AskEvents, from: u64, to: u64) -> AskEvents {
    let time = |minute: u64| Some(format!("2026-11-27T14:{minute:02}:00Z"));
    AskEvents { since: time(from), until: time(to), ..ask }
}

fn reach(events: &Events) -> &Reach {
    events.reach.as_ref().unwrap()
}

fn files(daemon: &Daemon) -> Vec<PathBuf> {
    let entries = fs::read_dir(daemon.directory.path().join("state")).unwrap();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    paths.sort_unstable();
    paths
}

/// Ends the daemon as by SIGKILL: with the log in its present state.
fn killed(daemon: Daemon) -> Daemon {
    // Reading comes after all that was to be written.
    asked(&daemon, &of_source("192.0.2.1"));
    let mut daemon = daemon.restart(&[]);
    begin(&mut daemon);
    daemon
}

#[test]
fn who_was_dropped_at_a_time_is_found_over_a_restart() {
    let mut daemon = daemon();
    at(&daemon, 300);
    drops(&daemon, source(7), Reason::OverLimit, 3);
    look(&mut daemon, 300);
    at(&daemon, 330);
    drops(&daemon, source(7), Reason::OverLimit, 2);
    look(&mut daemon, 330);
    at(&daemon, 331);
    drops(&daemon, source(9), Reason::OverLimit, 1);
    look(&mut daemon, 331);
    look(&mut daemon, 400);
    daemon.service.end_event_log();
    let mut daemon = daemon.restart(&[]);
    at(&daemon, 1200);
    begin(&mut daemon);
    let now = daemon.service.events().unwrap();
    let sources: Vec<_> = now.episodes.iter().map(|at| at.source.as_str()).collect();
    assert_eq!((sources.as_slice(), now.reach), (["192.0.2.9", "192.0.2.7"].as_slice(), None));

    let rule = |name: &str| AskEvents { rule: Some(name.to_owned()), ..AskEvents::default() };
    for (ask, found) in [
        (of_source("192.0.2.7"), vec![("192.0.2.7", 5)]),
        (of_source("192.0.2.0/29"), vec![("192.0.2.7", 5)]),
        (of_source("::ffff:192.0.2.9"), vec![("192.0.2.9", 1)]),
        (rule("office"), vec![("192.0.2.9", 1), ("192.0.2.7", 5)]),
        (rule("192.0.2.0/24"), vec![("192.0.2.9", 1), ("192.0.2.7", 5)]),
        (between(of_source("192.0.2.7"), 5, 5), vec![("192.0.2.7", 3)]),
        (between(AskEvents::default(), 4, 6), vec![("192.0.2.9", 1), ("192.0.2.7", 5)]),
        (between(of_source("192.0.2.7"), 6, 15), vec![]),
        (between(of_source("192.0.2.8"), 4, 6), vec![]),
        (rule("every source"), vec![]),
    ] {
        let events = asked(&daemon, &ask);
        let reported: Vec<_> =
            events.episodes.iter().map(|at| (at.source.as_str(), at.sampled)).collect();
        assert_eq!(reported, found, "{ask:?}");
        for at in &events.episodes {
            assert_eq!((at.last.protocol, at.last.destination_port), (Some(17), Some(53)));
            assert_eq!(
                (at.rule_name.as_deref(), at.reason.as_str()),
                (Some("office"), "over-limit")
            );
            assert!(at.ended && !at.would_drop);
        }
        let reach = reach(&events);
        assert_eq!((reach.unnamed, reach.damaged, reach.unknown_rule), (0, 0, false));
        assert_eq!(reach.from, "2026-11-27T14:00:00Z");
    }
    // For a time in which a daemon ran, an empty answer means "no drops"; for other times it means
    // nothing.
    let text = render::text(&asked(&daemon, &between(of_source("192.0.2.8"), 4, 6)));
    assert!(text.contains("all drops of that time were reported"), "{text}");
    let events = asked(&daemon, &between(of_source("192.0.2.8"), 6, 15));
    let gaps: Vec<_> = reach(&events).gaps.iter().map(|gap| gap.from.as_str()).collect();
    assert_eq!(gaps, ["2026-11-27T14:06:40Z"]);
    let text = render::text(&events);
    assert!(
        text.contains("no such drop was reported") && text.contains("nothing was written"),
        "{text}"
    );
    let events = asked(&daemon, &rule("ofice"));
    assert!(reach(&events).unknown_rule && render::text(&events).contains("limiter list"));
}

/// A killed daemon leaves the reports up to the last second.
#[test]
fn what_was_reported_before_a_kill_is_found() {
    let mut daemon = daemon();
    at(&daemon, 300);
    drops(&daemon, source(7), Reason::Denied, 1);
    look(&mut daemon, 300);
    daemon.fake.state().event_counts.lost = 5;
    let mut daemon = killed(daemon);
    look(&mut daemon, 301);
    let events = asked(&daemon, &of_source("192.0.2.7"));
    assert_eq!(events.episodes.len(), 1);
    assert_eq!(reach(&events).unnamed, 5, "drops until the start that nobody reported");
}

/// Drops not on disk yet are in the answer, and no drop is in it twice.
#[test]
fn a_search_has_what_goes_on() {
    let mut daemon = daemon();
    let sampled = |daemon: &Daemon| asked(daemon, &of_source("192.0.2.7")).episodes[0].clone();
    let mut all = 0;
    for second in 100..250 {
        at(&daemon, second);
        drops(&daemon, source(7), Reason::OverLimit, 2);
        all += 2;
        look(&mut daemon, second);
        if second % 10 == 0 {
            let episode = sampled(&daemon);
            assert_eq!((episode.sampled, episode.ended), (all, false), "{second}");
            assert_eq!(episode.seconds, second - 100);
        }
    }
    look(&mut daemon, 400);
    assert_eq!((sampled(&daemon).sampled, sampled(&daemon).ended), (all, true));
}

#[test]
fn what_nobody_reported_is_not_denied() {
    let mut daemon = daemon();
    at(&daemon, 300);
    daemon.fake.state().event_counts = EventBudget { next: 0, sent: 0, over_budget: 20, lost: 4 };
    let ask = between(of_source("192.0.2.7"), 4, 6);
    for second in [310, 370] {
        look(&mut daemon, second);
        let events = asked(&daemon, &ask);
        assert_eq!((events.episodes.len(), reach(&events).unnamed), (0, 24), "{second}");
        let text = render::text(&events);
        assert!(text.contains("up to 24 drops") && !text.contains("were reported\n"), "{text}");
    }
    look(&mut daemon, 700);
    let events = asked(&daemon, &between(of_source("192.0.2.7"), 8, 10));
    assert_eq!(reach(&events).unnamed, 0);
}

/// For a flood, the log names the sources that lost most, and sums up the rest: it stays within its
/// size, and older records remain.
#[test]
fn a_flood_washes_nothing_away() {
    let mut daemon = daemon();
    drops(&daemon, source(7), Reason::OverLimit, 1);
    look(&mut daemon, 1);
    let mut flooded = 0;
    for second in 120..240 {
        at(&daemon, second);
        for number in 0..200 {
            let from = 0xcb00_0000 + u32::try_from(second).unwrap() * 256 + number;
            drops(&daemon, from.to_be_bytes(), Reason::OverLimit, 1);
            flooded += 1;
        }
        drops(&daemon, source(9), Reason::OverLimit, 40);
        flooded += 40;
        look(&mut daemon, second);
    }
    let before = asked(&daemon, &of_source("192.0.2.7"));
    assert_eq!(before.episodes.len(), 1);
    let heavy = asked(&daemon, &of_source("192.0.2.9"));
    assert!(heavy.episodes[0].sampled > 2000, "{heavy:?}");
    let flood = asked(&daemon, &between(AskEvents::default(), 2, 10));
    let reported: u64 = flood.episodes.iter().map(|at| at.sampled).sum();
    let reach = reach(&flood);
    assert!(reach.unnamed > 10_000 && reach.left_out == 0, "{reach:?}");
    assert_eq!(reported + reach.unnamed, flooded, "{reach:?}");
    let bytes: u64 = files(&daemon).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(bytes < 300 << 10, "{bytes}");
}

/// Torn lines, flipped bits and foreign lines are skipped and counted.
#[test]
fn damage_costs_the_lines_that_it_is_in() {
    let mut daemon = daemon();
    for number in 1..=4 {
        drops(&daemon, source(number), Reason::OverLimit, 1);
        look(&mut daemon, u64::from(number));
    }
    daemon.service.end_event_log();
    let path = files(&daemon)[0].clone();
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("\"192.0.2.2\"", "\"192.0.2.3\"");
    let torn = format!("{text}nobody's\n{{\"kind\":\"drops\",\"source\":\"192.0.2.5");
    fs::write(&path, torn).unwrap();
    let mut daemon = daemon.restart(&[]);
    begin(&mut daemon);
    let sources = |daemon: &Daemon| {
        let events = asked(daemon, &of_source("192.0.2.0/24"));
        let sources = events.episodes.iter().map(|at| at.source.clone()).collect::<Vec<_>>();
        (sources, reach(&events).damaged)
    };
    let (found, damaged) = sources(&daemon);
    assert_eq!((found, damaged), (["4", "3", "1"].map(|n| format!("192.0.2.{n}")).to_vec(), 3));
    drops(&daemon, source(6), Reason::OverLimit, 1);
    look(&mut daemon, 10);
    let mut daemon = killed(daemon);
    look(&mut daemon, 11);
    assert_eq!(sources(&daemon).0[0], "192.0.2.6", "what comes behind damage is kept");
}

/// Without its directory, or with something else in its place, the log is reported to fail; pending
/// records are found by searches, and written once that is possible again.
#[test]
fn a_log_that_cannot_be_written_is_reported_and_made_up_for() {
    let mut daemon = daemon();
    look(&mut daemon, 1);
    let state = daemon.directory.path().join("state");
    fs::rename(&state, state.with_extension("away")).unwrap();
    drops(&daemon, source(7), Reason::OverLimit, 1);
    at(&daemon, 2);
    // The first look passes the line on, the next ones see the result.
    let failing = |daemon: &mut Daemon| {
        for _ in 0..1000 {
            if daemon.service.housekeep().is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let warnings = daemon.service.status().unwrap().warnings;
        warnings.iter().any(|warning| warning.contains("keep the log of events"))
    };
    assert!(failing(&mut daemon));
    assert!(daemon.service.metrics().unwrap().contains("\nlimiter_event_log_failing 1\n"));
    fs::rename(state.with_extension("away"), &state).unwrap();
    assert_eq!(asked(&daemon, &of_source("192.0.2.7")).episodes.len(), 1, "from memory");
    drops(&daemon, source(8), Reason::OverLimit, 1);
    // Tried again each second; the thread has written once the search is answered.
    drop(daemon.service.housekeep());
    assert_eq!(asked(&daemon, &of_source("192.0.2.0/24")).episodes.len(), 2);
    look(&mut daemon, 3);
    assert!(daemon.service.metrics().unwrap().contains("\nlimiter_event_log_failing 0\n"));
    let text = fs::read_to_string(&files(&daemon)[0]).unwrap();
    assert!(text.contains("\"192.0.2.7\"") && text.contains("\"192.0.2.8\""), "{text}");
}

#[test]
fn questions_without_sense_are_refused() {
    let refused = |ask: AskEvents| Refusal::from(Filter::of(&ask).unwrap_err()).to_string();
    let of = AskEvents::default;
    let time = |text: &str| Some(text.to_owned());
    assert_eq!(Filter::of(&of()).unwrap(), None);
    assert!(refused(of_source("example.com")).contains("example.com"));
    assert!(refused(AskEvents { since: time("14:05"), ..of() }).starts_with("since: "));
    assert!(refused(between(of(), 7, 6)).starts_with("until: it is before"));
    let follow = AskEvents { follow: true, ..between(of(), 6, 7) };
    assert!(refused(follow).starts_with("follow: "));
}

/// Without a log on disk the answer comes from memory and says so.
#[test]
fn without_a_log_there_is_memory() {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 0);
    let options = EventOptions { log_bytes: 0, ..EventOptions::default() };
    assert!(daemon.service.report_events(&options).unwrap().is_none());
    drops(&daemon, source(7), Reason::OverLimit, 2);
    look(&mut daemon, 1);
    look(&mut daemon, 100);
    drops(&daemon, source(8), Reason::OverLimit, 3);
    look(&mut daemon, 100);
    for (source, sampled) in [("192.0.2.7", 2), ("192.0.2.8", 3)] {
        let events = asked(&daemon, &of_source(source));
        assert_eq!(events.episodes[0].sampled, sampled);
        assert!(reach(&events).trouble.as_ref().unwrap().contains("from memory"));
    }
    assert!(files(&daemon).is_empty());
}
