//! Captures: who may start them, how they end, and that a slow reader costs nobody anything.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use limiter_api::capture::{AskCapture, CapturedVerdict};
use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{CaptureFilter, CaptureRecord, MAX_SNAP};
use limiter_datapath::CapturedPacket;

use super::*;
use crate::control::Lines;
use crate::routes;

const SOURCE: Source = Source::V4([192, 0, 2, 7]);

fn millis(millis: u64) -> Ticks {
    Ticks::from_nanos(millis * 1_000_000)
}

/// Makes the program report packets of a length, by the rule for 192.0.2.0/24.
fn report(daemon: &Daemon, packets: usize, length: u32) {
    let mut state = daemon.fake.state();
    let rule = state.installed().rules[&select("192.0.2.0/24")].limit.rule;
    let (high, low) = SOURCE.trie_words();
    let record = CaptureRecord {
        session: state.capture_filter.session,
        time: state.now.get(),
        source: [high, low],
        rule,
        interface: 7,
        length,
        captured: length,
        reason: Reason::OverLimit as u8,
        version: 4,
        level: 6,
        ..CaptureRecord::default()
    };
    let packet = CapturedPacket { record, bytes: vec![0x5a; length as usize] };
    state.captured.extend(std::iter::repeat_n(packet, packets));
}

/// Begins a capture, with a rule for 192.0.2.0/24 in force.
fn begin(asked: &AskCapture) -> (Daemon, Lines) {
    let mut daemon = Daemon::start(&[]);
    daemon.fake.state().now = millis(1_000);
    daemon.set("192.0.2.0/24", "5/s", None).unwrap();
    let (_, reader) = daemon.service.capture(asked, 0).unwrap();
    (daemon, reader)
}

fn read(reader: &mut Lines) -> Vec<u8> {
    std::iter::from_fn(|| reader.try_recv().ok()).flatten().collect()
}

/// Number of comments in a file that contain the words.
fn said(file: &[u8], words: &str) -> usize {
    file.windows(words.len()).filter(|window| *window == words.as_bytes()).count()
}

/// Against an attempt to read other people's packets.
#[test]
fn packets_are_for_whoever_may_change() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let shared = Arc::new(Mutex::new(Daemon::start(&[]).service));
    let ask = |user: u32, method: &str| {
        let router = crate::control::met_by(routes::router(Arc::clone(&shared)), user);
        let request = Request::builder().method(method).uri("/v1/capture");
        let request = request.body(Body::from("{}")).unwrap();
        runtime.block_on(async {
            use hyper::service::Service as _;
            TowerToHyperService::new(router).call(request).await.unwrap().status()
        })
    };
    assert_eq!(ask(65_534, "POST"), StatusCode::FORBIDDEN);
    assert_eq!(ask(0, "POST"), StatusCode::OK);
    assert_eq!(ask(65_534, "DELETE"), StatusCode::FORBIDDEN);
    assert_eq!(ask(65_534, "GET"), StatusCode::OK);
    assert_eq!(ask(0, "DELETE"), StatusCode::OK);
}

/// No packet is lost on the way, and packets that the reader does not take stay in the ring, where
/// the program counts.
#[test]
fn a_slow_reader_leaves_packets_in_the_ring() {
    const PACKETS: usize = 400;
    let (mut daemon, mut reader) = begin(&AskCapture::default());
    report(&daemon, PACKETS, MAX_SNAP);
    assert!(daemon.service.take_captured());
    let left = daemon.fake.state().captured.len();
    assert!(left > PACKETS / 2, "{left}");
    assert!(daemon.service.take_captured());
    assert_eq!(daemon.fake.state().captured.len(), left, "nobody has read");
    daemon.service.stop_capture().unwrap();
    let mut file = read(&mut reader);
    while daemon.service.take_captured() {
        file.extend(read(&mut reader));
    }
    file.extend(read(&mut reader));
    assert_eq!(said(&file, "dropped: over-limit, rule 192.0.2.0/24"), PACKETS);
    assert_eq!(said(&file, "all interfaces: 400 packets reported; not reported: 0 over"), 1);
    assert!(reader.is_closed());
}

/// The program learns again and again that somebody reads, and no longer once nobody does.
#[test]
fn a_capture_lasts_as_long_as_its_reader() {
    let (mut daemon, reader) = begin(&AskCapture::default());
    for second in 2..6 {
        daemon.fake.state().now = millis(1_000 * second);
        assert!(daemon.service.take_captured());
        assert_eq!(daemon.fake.state().capture_end, millis(1_000 * second + 2_000));
    }
    let refused = daemon.service.capture(&AskCapture::default(), 0).unwrap_err();
    assert!(refused.to_string().contains("user 0 captures since"), "{refused}");
    drop(reader);
    assert!(!daemon.service.take_captured());
    assert_eq!(daemon.fake.state().capture_end, Ticks::ZERO);
    assert!(daemon.service.capture(&AskCapture::default(), 0).is_ok());
}

#[test]
fn a_capture_ends_by_its_count_and_by_its_time() {
    let (mut daemon, mut reader) = begin(&AskCapture { count: Some(3), ..AskCapture::default() });
    report(&daemon, 9, 60);
    // A packet of an earlier capture.
    daemon.fake.state().captured[0].record.session = 1;
    while daemon.service.take_captured() {}
    assert_eq!(said(&read(&mut reader), "dropped: over-limit"), 3);
    assert_eq!(daemon.service.captures().unwrap().last.unwrap().reported, 3);

    let (mut daemon, mut reader) = begin(&AskCapture { seconds: Some(2), ..AskCapture::default() });
    daemon.fake.state().now = millis(2_999);
    assert!(daemon.service.take_captured());
    report(&daemon, 2, 60);
    daemon.fake.state().now = millis(3_000);
    while daemon.service.take_captured() {}
    assert_eq!(
        said(&read(&mut reader), "dropped: over-limit"),
        2,
        "what was reported before is read"
    );
    let last = daemon.service.captures().unwrap().last.unwrap();
    assert_eq!((last.reported, last.milliseconds), (2, 2_000));
}

/// A level with a missed packet is no longer reported, and the answer names the complete levels.
#[test]
fn levels_that_were_missed_are_left_out() {
    let (mut daemon, mut reader) = begin(&AskCapture { share: Some(4), ..AskCapture::default() });
    let filter = daemon.fake.state().capture_filter;
    assert_eq!((filter.level, filter.snap), (2, 96));
    report(&daemon, 1, 60);
    daemon.fake.state().capture_counts.missed[3] = 5;
    daemon.fake.state().capture_counts.reported.over_budget = 5;
    daemon.fake.state().now = millis(1_300);
    assert!(daemon.service.take_captured());
    assert_eq!(daemon.fake.state().capture_filter.level, 4);
    assert_eq!(said(&read(&mut reader), "; source 192.0.2.7 level 6"), 1);
    let running = daemon.service.captures().unwrap().running.unwrap();
    assert_eq!((running.asked_level, running.whole_level), (Some(2), Some(4)));
    assert_eq!(running.over_budget, 5);
}

#[test]
fn a_filter_is_what_was_asked_for() {
    let asked = AskCapture {
        verdict: Some(CapturedVerdict::Dropped),
        source: Some("192.0.2.0/24".to_owned()),
        rule: Some("192.0.2.0/24".to_owned()),
        snap: Some(60),
        ..AskCapture::default()
    };
    let (daemon, _reader) = begin(&asked);
    let filter = daemon.fake.state().capture_filter;
    let rule = daemon.fake.state().installed().rules[&select("192.0.2.0/24")].limit.rule;
    assert_eq!((filter.rule, filter.snap, filter.level), (rule, 60, CaptureFilter::EVERY_SOURCE));
    assert_eq!(limiter_decision::capture::chosen(&filter, &Source::V4([192, 0, 3, 7])), None);
    assert!(limiter_decision::capture::chosen(&filter, &SOURCE).is_some());
    for (asked, words) in [
        (AskCapture { share: Some(3), ..AskCapture::default() }, "share: 3: give a power of two"),
        (AskCapture { snap: Some(9_217), ..AskCapture::default() }, "snap: 9217 bytes: give 0 to"),
        (AskCapture { count: Some(0), ..AskCapture::default() }, "count: 0 is over at once"),
        (AskCapture { per_second: Some(0), ..AskCapture::default() }, "per_second: 0: give 1 to"),
        (
            AskCapture {
                reason: Some("conforming".to_owned()),
                verdict: Some(CapturedVerdict::Dropped),
                ..AskCapture::default()
            },
            "reason: no packet with it has that verdict",
        ),
    ] {
        let refused = Daemon::start(&[]).service.capture(&asked, 0).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

/// Each packet states its direction: `epb_flags`, an option of four bytes with the number 2.
#[test]
fn a_file_says_which_way_packets_went() {
    let (mut daemon, mut reader) = begin(&AskCapture::default());
    report(&daemon, 3, 60);
    daemon.fake.state().captured[1].record.direction = Direction::Out as u8;
    daemon.service.take_captured();
    daemon.service.stop_capture().unwrap();
    while daemon.service.take_captured() {}
    let file = read(&mut reader);
    let flagged = |way: u8| {
        let option = [2, 0, 4, 0, way, 0, 0, 0];
        file.windows(option.len()).filter(|window| *window == option).count()
    };
    assert_eq!((flagged(1), flagged(2)), (2, 1));
}
