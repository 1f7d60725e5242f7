//! `limiter explain` of captures.

use std::process::ExitCode;

use super::*;
use crate::failure::Failure;
use crate::packets::explain;

/// A capture of one UDP packet from 192.0.2.1, and where it is.
pub(super) fn capture(directory: &tempfile::TempDir) -> String {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0; 8]);
    file.extend([255, 255, 0, 0, 1, 0, 0, 0]);
    for length in [64u32, 100] {
        file.extend([7, 0, 0, 0, 5, 0, 0, 0, 42, 0, 0, 0]);
        file.extend(length.to_le_bytes());
        file.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
        file.extend([0, 0, 192, 0, 2, 1, 198, 51, 100, 1, 4, 210, 0, 53, 0, 8, 0, 0]);
    }
    let path = directory.path().join("x.pcap");
    std::fs::write(&path, file).unwrap();
    path.display().to_string()
}

pub(super) fn explained(line: &str) -> String {
    let (text, done) = explained_as_far(line);
    done.unwrap();
    text
}

/// Lines that were printed, and the error that stopped them.
fn explained_as_far(line: &str) -> (String, Result<(), Failure>) {
    let args = parse(line).unwrap();
    let Command::Explain(what) = &args.command else { panic!("{args:?}") };
    let mut text = Vec::new();
    let done = explain::explain(what, args.output, &mut text);
    (String::from_utf8(text).unwrap(), done)
}

#[test]
fn a_capture_is_explained_line_by_line() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let rules = directory.path().join("r.yaml");
    let text = "descriptors:\n  - {key: remote_address, rate_limit: {name: all, unit: day, \
                requests_per_unit: 1}}\n  - {key: destination_port, rate_limit: {unit: day, \
                requests_per_unit: 9}}\n";
    std::fs::write(&rules, text).unwrap();
    let rules = rules.display();
    assert_eq!(
        explained(&format!("limiter explain --pcap {capture} --rules {rules}")),
        "  PACKET           SECONDS  SOURCE                   BYTES  VERDICT  REASON               RULES
       1       0.000000000  192.0.2.1                   64  pass     conforming           every source (all); destination_port
       2       0.000000000  192.0.2.1                  100  drop     over-limit           every source (all); destination_port; dropped by every source

VERDICT  REASON      PACKETS  BYTES
pass     conforming        1   64 B
drop     over-limit        1  100 B
sum      seen              2  164 B

RULE              PASSED  PASSED BYTES  DROPPED  DROPPED BYTES  WOULD DROP  MARKED
all                    1          64 B        1          100 B           0       0
destination_port       1          64 B        0            0 B           0       0
2 packets are longer than what was captured of them; their whole length counts
made by tcpdump where limits were in force, a capture has only what they let pass: XDP drops before tcpdump sees a packet
"
    );
    for flag in ["--json", "--output json"] {
        let json = explained(&format!("limiter explain --pcap {capture} --rules {rules} {flag}"));
        let lines: Vec<&str> = json.lines().collect();
        assert_eq!(
            lines[0],
            r#"{"packet":1,"time":"7.000005000","source":"192.0.2.1","bytes":64,"captured":42,"verdict":"pass","reason":"conforming","rule":"every source","matches":[{"table":0,"rule":"every source","name":"all"},{"table":1,"rule":"destination_port"}]}"#
        );
        assert!(
            lines[2].starts_with(
                r#"{"summary":{"seen":{"packets":2,"bytes":164},"cut":2,"outgoing":0,"other_links":0,"late":0,"reasons":"#
            )
        );
        assert_eq!(lines.len(), 3);
    }
}

/// Sums by source instead of lines: all of the packets are in one of its rows.
#[test]
fn a_capture_is_summed_by_source() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let rules = directory.path().join("r.yaml");
    let text =
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    std::fs::write(&rules, text).unwrap();
    let line = format!("limiter explain --pcap {capture} --rules {} --summary", rules.display());
    let text = explained(&line);
    let rows = "SOURCE     OFFERED  PASSED  DROPPED  DROPPED BY\n\
                192.0.2.1        2       1        1  every source, over-limit 1\n\nVERDICT";
    assert!(text.starts_with(rows), "{text}");
    assert!(text.contains("XDP drops before tcpdump sees a packet"), "{text}");
    let none = explained(&format!("{line} --top 0"));
    assert!(none.contains("\n1 other sources        2       1        1\n"), "{none}");
    let json: serde_json::Value =
        serde_json::from_str(&explained(&format!("{line} --json"))).unwrap();
    let summary = &json["summary"];
    assert_eq!(summary["sources"][0]["causes"][0]["rule"], "every source");
    assert_eq!(summary["sources"][0]["dropped"]["bytes"], 100);
    assert_eq!(summary["others"]["offered"]["packets"], 0);
    assert_eq!(summary["seen"]["packets"], 2);
}

/// Forged sources are under each limit by source, and the summary says what would hold them.
#[test]
fn a_flood_of_sources_that_no_limit_by_source_holds_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let one = std::fs::read(capture(&directory)).unwrap();
    let (header, packet) = (&one[..24], &one[24..82]);
    let rules = directory.path().join("r.yaml");
    std::fs::write(&rules, "descriptors: [{key: remote_address, rate_limit: {rate: 5/s}}]\n")
        .unwrap();
    let path = directory.path().join("flood.pcap");
    for (sources, each, named) in [(150, 2, true), (150, 5, false), (20, 2, false)] {
        let mut file = header.to_vec();
        for source in 0..sources {
            let mut packet = packet.to_vec();
            packet[45] = source;
            file.extend(packet.repeat(each));
        }
        std::fs::write(&path, file).unwrap();
        let line = format!(
            "limiter explain --pcap {} --rules {} --summary",
            path.display(),
            rules.display()
        );
        let text = explained(&line);
        let remark = "150 sources sent fewer than 4 packets each, 300 of the 300 in all";
        assert_eq!(text.contains(remark), named, "{text}");
        assert_eq!(text.contains("fewer than"), named, "{text}");
    }
}

#[test]
fn a_capture_that_was_cut_off_keeps_its_sums() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let file = std::fs::read(&capture).unwrap();
    std::fs::write(&capture, &file[..file.len() - 1]).unwrap();
    let stopped = format!(
        "{capture}: it ends within packet 2: it was cut off while it was written; what is printed \
         is of the packets before it: write it again for the rest"
    );
    let (text, done) = explained_as_far(&format!("limiter explain --pcap {capture}"));
    let sums = "\nsum      seen           1   64 B\n";
    assert!(text.contains(sums), "{text}");
    let output = "the sums are of the packets above: the capture was not explained to its end\n";
    assert!(text.contains(output), "{text}");
    let failure = done.unwrap_err();
    assert_eq!(failure.to_string(), stopped);
    assert_eq!(format!("{:?}", failure.exit_code()), format!("{:?}", ExitCode::from(2)));
    let (json, done) = explained_as_far(&format!("limiter explain --pcap {capture} --json"));
    assert!(done.is_err());
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(last["summary"]["stopped"], stopped);
    assert_eq!(last["summary"]["seen"]["packets"], 1);
    // With no packet there are no sums.
    std::fs::write(&capture, &file[..30]).unwrap();
    let (text, done) = explained_as_far(&format!("limiter explain --pcap {capture}"));
    assert!(done.is_err() && !text.contains("sum"), "{text}");
}

#[test]
fn what_cannot_be_explained_is_reported_before_anything_else() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    assert!(
        failure("limiter explain --pcap /nowhere/x.pcap").starts_with("/nowhere/x.pcap: No such")
    );
    assert!(
        failure(&format!("limiter explain --pcap {capture} --rules /nowhere/r.yaml"))
            .starts_with("/nowhere/r.yaml: ")
    );
}

/// A capture says nothing about rules for what goes out, and that is said.
#[test]
fn rules_for_what_goes_out_are_said_to_have_no_packets() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let rules = directory.path().join("r.yaml");
    let text = "descriptors:\n  - {key: remote_address, direction: out, rate_limit: {rate: \
                1/day}}\n  - {key: remote_address, direction: both, rate_limit: {rate: 1/day}}\n";
    std::fs::write(&rules, text).unwrap();
    let line = format!("limiter explain --pcap {capture} --rules {}", rules.display());
    let words = [
        "only what comes in is judged here: the rule for direction=out remote_address has no \
         packets",
        "only what comes in is judged here: the rule for direction=both remote_address has half \
         of its packets",
    ];
    for line in [line.clone(), format!("{line} --summary")] {
        let text = explained(&line);
        assert!(words.iter().all(|words| text.contains(&format!("{words}\n"))), "{text}");
        assert!(text.contains("direction=both remote_address"), "{text}");
    }
    let json = explained(&format!("{line} --summary --json"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["summary"]["not_judged"], serde_json::json!(words));
}

/// Packets that would have waited, and one that would have waited too long.
#[test]
fn a_capture_says_how_long_packets_wait() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let rules = directory.path().join("r.yaml");
    let explain = |limit: &str, more: &str| {
        let text = format!(
            "descriptors:\n  - {{key: remote_address, rate_limit: {{rate: {limit}, burst: 1}}, \
             action: {{delay: {{longest: 200ms}}}}}}\n"
        );
        std::fs::write(&rules, text).unwrap();
        explained(&format!("limiter explain --pcap {capture} --rules {}{more}", rules.display()))
    };
    let text = explain("10/s", "");
    assert!(text.contains("pass     delayed              every source; waits 100 ms\n"), "{text}");
    let json = explain("10/s", " --json");
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["waits_ns"], &lines[1]["reason"]), (&().into(), &"delayed".into()));
    assert_eq!(lines[1]["waits_ns"].as_u64().map(|wait| wait / 1_000_000), Some(100));
    let text = explain("1/s", "");
    let too_long = "every source; it would have to wait longer than 200 ms\n";
    assert!(text.contains(too_long), "{text}");
}
