//! The captures of real tools: what limiter reads in every packet against what tshark reads there,
//! committed beside each capture and, where it is installed, asked again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its machinery does")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use limiter_common::header::{self, Reach};
use limiter_common::verdict::Reason;
use limiter_decision::packet::{self, Facts};
use limiter_replay::explain::{Capture, Captured, Explainer, Settings};
use limiter_rules::RuleFile;
use limiter_tests::captures::{Row, answer_of, ask, directory, list, rows, tshark};

/// All packets of a capture, through the reader of `limiter explain`.
fn packets(path: &Path) -> Vec<Captured> {
    let mut capture = Capture::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = capture.next_packet().unwrap() {
        packets.push(packet);
    }
    packets
}

/// The source address of a frame in full, or why it is exempt.
fn ours(frame: &[u8]) -> Result<(IpAddr, Facts), Reason> {
    let mut facts = Facts::EMPTY;
    packet::facts(&frame, &mut facts)?;
    let address = Ipv6Addr::from(facts.source_address());
    let v4 = facts.version() == header::Version::V4;
    let address = if v4 { address.to_ipv4_mapped().unwrap().into() } else { address.into() };
    Ok((address, facts))
}

#[derive(Debug, Default)]
struct Met {
    compared: u32,
    exempt: BTreeMap<Reason, u32>,
    without_opinion: u32,
}

fn compare(packet: &Captured, row: &Row, met: &mut Met, context: &str) {
    assert_eq!(packet.number, row.number, "{context}");
    assert_eq!(packet.nanos, row.nanos, "{context}");
    assert_eq!(packet.length, row.length, "{context}");
    assert_eq!(packet.frame.len() as u64, row.captured, "{context}");
    match (ours(&packet.frame), row.source) {
        (Ok((address, _)), Some(theirs)) => {
            assert_eq!(address, theirs, "{context}");
            met.compared += 1;
        }
        // tshark does not go on behind a header length that cannot be. The address is charged all
        // the same.
        (Ok((_, facts)), None) => {
            assert!(row.protocols.iter().any(|name| name == "ip"), "{context}: {row:?}");
            assert_eq!(facts.reach(), Reach::Cut, "{context}");
            met.without_opinion += 1;
        }
        (Err(reason), theirs) => {
            let tags =
                row.protocols.iter().filter(|name| name.ends_with("vlan") || *name == "ieee8021ad");
            match reason {
                Reason::NotIp => assert_eq!(theirs, None, "{context}: {row:?}"),
                Reason::NeighbourDiscovery => {
                    let reported = (row.icmpv6.unwrap(), row.hop_limit.unwrap());
                    assert!(
                        (133..=137).contains(&reported.0) && reported.1 == 255,
                        "{context}: {row:?}"
                    );
                }
                Reason::DeepVlan => assert!(tags.count() > 2, "{context}: {row:?}"),
                // Whatever it shows of these, they have no header to be charged by.
                Reason::Truncated => assert!(row.captured < 22 + 40, "{context}: {row:?}"),
                Reason::Malformed => {}
                other => panic!("{context}: {other:?} from the parser"),
            }
            *met.exempt.entry(reason).or_default() += 1;
        }
    }
}

fn compare_all(path: &Path, answer: &str, met: &mut Met) {
    let (packets, rows) = (packets(path), rows(answer).unwrap());
    let name = path.file_name().unwrap().to_string_lossy();
    assert_eq!(packets.len(), rows.len(), "{name}: packets, and lines of tshark's");
    assert!(!packets.is_empty(), "{name}");
    for (packet, row) in packets.iter().zip(&rows) {
        compare(packet, row, met, &format!("{name}, packet {}", packet.number));
    }
}

#[test]
fn every_packet_has_the_source_that_tshark_finds() {
    let captures = list(&directory()).unwrap();
    let mut met = Met::default();
    for path in &captures {
        let answer_file = answer_of(path);
        let answer = fs::read_to_string(&answer_file).unwrap_or_else(|error| {
            panic!("{}: {error}: make it with `cargo xtask captures`", answer_file.display())
        });
        compare_all(path, &answer, &mut met);
    }
    println!("against the committed answers: {met:?} in {} captures", captures.len());
    assert!(met.compared > 100, "{met:?}");
    for reason in [
        Reason::NotIp,
        Reason::NeighbourDiscovery,
        Reason::DeepVlan,
        Reason::Truncated,
        Reason::Malformed,
    ] {
        assert!(met.exempt.contains_key(&reason), "no {reason:?} in {met:?}");
    }
    let Some(version) = tshark() else {
        println!(
            "NOT COMPARED with tshark itself: it is not installed; the committed answers were"
        );
        return;
    };
    let mut live = Met::default();
    for path in &captures {
        compare_all(path, &ask(path).unwrap(), &mut live);
    }
    println!("against {version} of this machine: {live:?}");
    assert_eq!((live.compared, live.exempt), (met.compared, met.exempt));
}

/// Every packet of every capture is explained, and the sums are of all of them.
#[test]
fn every_packet_is_explained_and_counted_once() {
    let rules = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 20, burst: 5}}
  - {key: destination_port, value: 53, descriptors: [{key: remote_address, rate_limit: {unit: \
  second, requests_per_unit: 1, burst: 1}}]}\n";
    let set = RuleFile::parse("r.yaml", rules.as_bytes(), 1522).unwrap().rules;
    for path in list(&directory()).unwrap() {
        let settings = Settings { interface: None, max_frame: 1522 };
        let mut explainer = Explainer::new(&set, settings).unwrap();
        let packets = packets(&path);
        for packet in &packets {
            let (decided, matches) = explainer.packet(packet).unwrap();
            let source = ours(&packet.frame).map(|(_, facts)| facts.source());
            assert_eq!(decided.source, source.ok(), "{}: {}", path.display(), packet.number);
            assert_eq!(decided.source.is_none(), matches.is_empty());
        }
        let seen = explainer.seen();
        let reasons = explainer.reasons();
        assert_eq!(seen.packets, packets.len() as u64);
        assert_eq!(seen.bytes, packets.iter().map(|packet| packet.length).sum::<u64>());
        assert_eq!(seen.packets, reasons.iter().map(|tally| tally.packets).sum::<u64>());
        assert_eq!(seen.bytes, reasons.iter().map(|tally| tally.bytes).sum::<u64>());
    }
}

/// A frame check sequence is a part of what a capture has, and of what it costs; the program never
/// sees one.
#[test]
fn a_captured_check_sequence_costs_its_four_bytes() {
    // The upper bits of the link type say that there are two times 16 bits of it.
    const WITH_CHECK: u32 = 2 << 28 | 1 << 26 | 1;
    let dir = limiter_tests::work_dir::WorkDir::create("check").unwrap();
    let frame = limiter_tests::frames::v4().build();
    for (link, check) in [(1, 0), (WITH_CHECK, 4)] {
        let length = u32::try_from(frame.len() + check).unwrap();
        let words = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, link, 1, 0, length, length];
        let head: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let path = dir.write("one.pcap", [head, frame.clone(), vec![7; check]].concat()).unwrap();
        let read = packets(&path);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].length, u64::from(length), "{check} bytes of check sequence");
        assert!(ours(&read[0].frame).is_ok());
    }
}
