//! `limiter explain --from --to`, asked of a running daemon, and then the packet that was asked
//! about.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::pcap::{header, record};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use limiter_tests::work_dir::WorkDir;
use serde_json::Value;

const RULES: &str = "domain: test
descriptors:
  - {key: remote_address, value: 203.0.113.0/24, rate_limit: {name: net, unit: day, \
  requests_per_unit: 2, burst: 2}}
  - {key: remote_address, value: 203.0.113.9, rate_limit: {unit: day, requests_per_unit: 1}, \
  shadow_mode: true}
  - {key: remote_address, value: 2001:db8:7::/64, rate_limit: {unit: day, requests_per_unit: 2, \
  burst: 2}}
  - {key: remote_address, value: 203.0.113.30, rate_limit: {unit: day, requests_per_unit: 3, \
  algorithm: sliding_log}}
  - key: destination_port
    value: 22
    descriptors: [{key: remote_address, rate_limit: {name: ssh, unit: day, requests_per_unit: 1, \
    burst: 1}}]
  - key: destination_port
    value: 8080
    descriptors:
      - key: remote_address
        rate_limit: {unit: day, requests_per_unit: 1, burst: 1}
        action: {ban: {first: 1h, longest: 1h, memory: 1h, strikes: 2, evidence: none}}
  - key: tcp_flags
    value: syn
    descriptors: [{key: destination_port, value: 80, rate_limit: {unit: day, requests_per_unit: \
    2, burst: 2}}]
  - {key: destination_port, value: 53, budget: dns}
budgets:
  - {name: dns, rate_limit: {unit: day, requests_per_unit: 3, burst: 3}}
";

/// SYN, as in RFC 9293.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn from(host: u8) -> [u8; 4] {
    [203, 0, 113, host]
}

fn tcp(host: u8, destination: u16, flags: u8) -> Vec<u8> {
    let frame = Frame::ipv4(from(host), RECEIVER.ipv4.octets());
    frame.transport(Transport::Tcp { source: 40_000, destination, flags }).payload(&[0; 6]).build()
}

fn udp(source: [u8; 4], destination: u16) -> Vec<u8> {
    let frame = Frame::ipv4(source, RECEIVER.ipv4.octets());
    frame.transport(Transport::Udp { source: 40_000, destination }).payload(&[0; 18]).build()
}

fn udp6(destination: u16) -> Vec<u8> {
    let source = std::net::Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 9).octets();
    let frame = Frame::ipv6(source, RECEIVER.ipv6.octets());
    frame.transport(Transport::Udp { source: 40_000, destination }).build()
}

/// Counts of `stats`: packets of a reason, and all that were dropped.
fn counted(limiter: &Limiter, reason: &str) -> Result<(u64, u64)> {
    let stats = limiter.json(&["stats"])?;
    let reasons = stats["reasons"].as_array().context("no reasons")?;
    let found = reasons.iter().find(|entry| entry["reason"] == reason);
    let packets = found.and_then(|entry| entry["packets"].as_u64()).context("no such reason")?;
    Ok((packets, stats["dropped"]["packets"].as_u64().context("no count")?))
}

/// Asks, sends what was asked about, and sees that it becomes of it what was said.
fn ask_and_send(
    bed: &Testbed,
    limiter: &Limiter,
    question: &[&str],
    frame: &[u8],
) -> Result<Value> {
    let mut words = vec!["explain", "--from"];
    words.extend(question);
    let said = limiter.json(&words)?;
    let (reason, verdict) = (said["reason"].as_str().context("no reason")?, &said["verdict"]);
    ensure!(said["exact"] == true, "{said}");
    let (before, dropped) = counted(limiter, reason)?;
    bed.sender
        .enter(|| -> Result<()> { Ok(PacketSocket::sender(SENDER.interface)?.send(frame)?) })??;
    // Nothing but what was sent is ever dropped here.
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let (after, dropped_after) = counted(limiter, reason)?;
        if after > before {
            let expected = dropped + u64::from(verdict == "drop");
            ensure!(dropped_after == expected, "{question:?}: said {said}");
            return Ok(said);
        }
        thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!(
        "{question:?}: it was not {reason}, as was said: {said}; {}",
        limiter.json(&["stats"])?
    )
}

/// The reasons of so many packets in a row, each as it was foretold.
fn reasons(
    bed: &Testbed,
    limiter: &Limiter,
    question: &[&str],
    frame: &[u8],
    count: usize,
) -> Result<Vec<String>> {
    let one = || {
        let said = ask_and_send(bed, limiter, question, frame)?;
        Ok(said["reason"].as_str().unwrap_or_default().to_owned())
    };
    (0..count).map(|_| one()).collect()
}

/// A packet then gets the verdict that was predicted.
#[test]
fn what_is_said_of_a_packet_becomes_of_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("explain")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let to = RECEIVER.ipv4.to_string();
    let (within, over) = ("conforming", "over-limit");
    // A source rule; IPv6; another algorithm, in a table of its own beside the source table.
    let question = ["203.0.113.1", "--to", "9/udp", "--length", "60"];
    let frame = udp(from(1), 9);
    ensure!(reasons(&bed, &limiter, &question, &frame, 4)? == [within, within, over, over]);
    let question = ["2001:db8:7::9", "--to", "9/udp"];
    ensure!(reasons(&bed, &limiter, &question, &udp6(9), 3)? == [within, within, over]);
    let question = ["203.0.113.30", "--to", "9/udp"];
    let report = reasons(&bed, &limiter, &question, &udp(from(30), 9), 4)?;
    ensure!(report == [within, within, within, over], "{report:?}");
    // A port, with a bucket for each source.
    for host in [2, 3] {
        let source = format!("203.0.113.{host}");
        let question = [&source, "--to", "22/tcp", "--flags", "ACK"];
        let report = reasons(&bed, &limiter, &question, &tcp(host, 22, ACK), 2)?;
        ensure!(report == [within, over], "{report:?}");
    }
    let said =
        limiter.json(&["explain", "--from", "203.0.113.2", "--to", "22/tcp", "--flags", "ACK"])?;
    ensure!(said["rule"] == "destination_port=22 remote_address", "{said}");
    let steps = said["steps"].as_array().context("no steps")?;
    let step = steps.iter().find(|step| step["rule"] == said["rule"]).context("no such step")?;
    let place = step["place"].as_str().unwrap_or_default();
    ensure!(place.ends_with("rules.yaml:9:19"), "{step}");
    ensure!(step["passed"] == 1 && step["dropped"] == 1 && step["name"] == "ssh", "{step}");
    let limit = &step["limits"][0];
    ensure!(limit["remaining"] == 0 && limit["size"] == 1 && limit["conforms"] == false, "{step}");
    let wait = |value: &Value| value.as_u64().unwrap_or_default() / 1_000_000_000;
    ensure!((86_000..=86_400).contains(&wait(&limit["conforms_in_ns"])), "{step}");
    ensure!((86_000..=86_400).contains(&wait(&said["passes_in_ns"])), "{said}");
    // Segments that open a connection, and others.
    let question = ["203.0.113.4", "--to", "80/tcp", "--flags", "SYN"];
    ensure!(reasons(&bed, &limiter, &question, &tcp(4, 80, SYN), 2)? == [within, within]);
    let question = ["203.0.113.5", "--to", "80/tcp", "--flags", "SYN"];
    ensure!(reasons(&bed, &limiter, &question, &tcp(5, 80, SYN), 1)? == [over]);
    let question = ["203.0.113.5", "--to", "80/tcp", "--flags", "ACK"];
    ensure!(reasons(&bed, &limiter, &question, &tcp(5, 80, ACK), 1)? == [within]);
    // A budget that strangers share.
    for (host, expected) in [(10, within), (11, within), (12, within), (13, over)] {
        let source = format!("203.0.113.{host}");
        let question = [&source, "--to", "53/udp", "--destination", &to];
        let said = ask_and_send(&bed, &limiter, &question, &udp(from(host), 53))?;
        ensure!(said["reason"] == expected, "{said}");
    }
    // Shadow mode.
    let question = ["203.0.113.9", "--to", "9/udp"];
    let report = reasons(&bed, &limiter, &question, &udp(from(9), 9), 3)?;
    ensure!(report == [within, "shadow", "shadow"], "{report:?}");
    // A ban, after the second strike.
    let question = ["198.51.100.8", "--to", "8080/udp"];
    let report = reasons(&bed, &limiter, &question, &udp([198, 51, 100, 8], 8080), 4)?;
    ensure!(report == [within, over, over, "banned"], "{report:?}");
    // The lists, before everything, and the bypass, before those.
    limiter.json(&["allow", "203.0.113.1"])?;
    limiter.json(&["deny", "203.0.113.20/30"])?;
    for (host, expected) in [(1, "allowed"), (21, "denied")] {
        let source = format!("203.0.113.{host}");
        let question = [&source, "--to", "9/udp"];
        ensure!(reasons(&bed, &limiter, &question, &udp(from(host), 9), 1)? == [expected]);
    }
    limiter.ok(["off"])?;
    let question = ["203.0.113.21", "--to", "9/udp"];
    ensure!(reasons(&bed, &limiter, &question, &udp(from(21), 9), 1)? == ["bypass"]);
    limiter.close()?;
    bed.close()
}

/// The rules, with the names of their authors, that are named of a packet.
fn named(rules: &Value) -> Result<BTreeSet<(String, String)>> {
    let rules = rules.as_array().context("no rules")?.iter();
    let rules = rules.filter(|rule| !rule["rule"].is_null());
    Ok(rules.map(|rule| (rule["rule"].to_string(), rule["name"].to_string())).collect())
}

#[test]
fn live_and_offline_the_same_rules_are_named() -> Result<()> {
    require_root();
    let bed = Testbed::create("explain-words")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let dir = WorkDir::create("explained-offline")?;
    let rules = dir.write("rules.yaml", RULES)?;
    for (question, frame, count) in [
        (["203.0.113.1", "--to", "9/udp"], udp(from(1), 9), 1),
        (["203.0.113.9", "--to", "9/udp"], udp(from(9), 9), 1),
        (["203.0.113.30", "--to", "53/udp"], udp(from(30), 53), 2),
        (["203.0.113.2", "--to", "22/tcp"], tcp(2, 22, SYN), 2),
        (["203.0.113.2", "--to", "80/tcp"], tcp(2, 80, SYN), 2),
        (["198.51.100.8", "--to", "8080/udp"], udp([198, 51, 100, 8], 8080), 1),
    ] {
        let live = limiter.json(&[&["explain", "--from"], question.as_slice()].concat())?;
        let capture = dir.write("one.pcap", [header(), record(0, &frame)].concat())?;
        let (capture, rules) = (capture.to_str().context("path")?, rules.to_str().context("path")?);
        let lines = limiter.ok(["explain", "--pcap", capture, "--rules", rules, "--json"])?;
        let offline: Value = serde_json::from_str(lines.lines().next().context("no line")?)?;
        let both = [named(&live["steps"])?, named(&offline["matches"])?];
        ensure!(both[0] == both[1] && both[0].len() == count, "{question:?}: {both:?}");
        ensure!(live["reason"] == offline["reason"], "{question:?}: {live} {offline}");
    }
    for (words, wrong) in [
        (&["--to", "22"][..], "write 22/tcp or 22/udp for the port, protocol/22 for the protocol"),
        (&["--to", "22/tcp", "--flags", "SIN"], "flags: "),
        (&["--to", "9/udp", "--interface", "nosuch0"], "interface: "),
        (&["--to", "9/udp", "--destination", "2001:db8::1"], "destination: "),
        (&["--to", "9/udp", "--dscp", "fast"], "dscp: "),
    ] {
        let output = limiter.cli(["explain", "--from", "203.0.113.1"].iter().chain(words))?;
        let text = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(2) && text.contains(wrong), "{words:?}: {text}");
    }
    limiter.close()?;
    bed.close()
}
