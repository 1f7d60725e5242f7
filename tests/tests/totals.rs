//! One total a source: `show`, `sources`, `top`, the page's requests and the metrics agree with
//! each other, and with the packets that were sent.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::SEEN_WITHIN;
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

/// The first rule drops what the others would let pass, the second what the first is not for.
const RULES: &str = "domain: test
descriptors:
  - key: destination_port
    value: 27015
    descriptors:
      - {key: remote_address, rate_limit: {name: game, rate: 20/hour, burst: 2}}
  - key: protocol
    value: udp
    descriptors:
      - {key: remote_address, rate_limit: {name: datagrams, rate: 20/hour, burst: 6}}
  - {key: remote_address, rate_limit: {rate: 1000/s, burst: 1000}}\n";

/// Sources, each with the packets to the port of the game and to another one, those that pass, and
/// those that are dropped.
const BY_PORT: ([u8; 4], [u64; 4]) = ([203, 0, 113, 10], [10, 0, 2, 8]);
const BY_TWO: ([u8; 4], [u64; 4]) = ([203, 0, 113, 11], [10, 10, 6, 14]);
const WITHIN: ([u8; 4], [u64; 4]) = ([203, 0, 113, 12], [1, 2, 3, 0]);
const DENIED: ([u8; 4], [u64; 4]) = ([203, 0, 113, 13], [4, 5, 0, 9]);
const ALL: [([u8; 4], [u64; 4]); 4] = [BY_PORT, BY_TWO, WITHIN, DENIED];

fn text(source: [u8; 4]) -> String {
    IpAddr::from(source).to_string()
}

fn send(bed: &Testbed, source: [u8; 4], port: u16, packets: u64) -> Result<()> {
    if packets == 0 {
        return Ok(());
    }
    let transport = Transport::Udp { source: 4000, destination: port };
    let frame = Frame::ipv4(source, RECEIVER.ipv4.octets()).macs(SENDER.mac, RECEIVER.mac);
    let frames = vec![frame.transport(transport).build()];
    let count = usize::try_from(packets)?;
    let pattern = Pattern::Burst { frames: count.try_into()?, every: Duration::from_secs(10) };
    let (streams, time) = (vec![Stream { frames, pattern }], Duration::from_millis(200));
    let sent = Generator::start(&bed.sender, SENDER.interface, streams, time, 1 << 10)?.finish()?;
    ensure!(sent[0].times.len() == count, "{} were sent", sent[0].times.len());
    Ok(())
}

pub(crate) fn request(limiter: &Limiter, path: &str) -> Result<String> {
    let mut stream = UnixStream::connect(limiter.socket())?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: limiter\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").with_context(|| answer.clone())?;
    Ok(body.to_owned())
}

/// The total of a source, and whether it is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Total {
    passed: u64,
    dropped: u64,
    in_part: bool,
}

fn total(row: &Value) -> Result<Total> {
    let number = |name: &str| row[name].as_u64().with_context(|| format!("{name}: {row}"));
    let in_part = row["dropped_at_least"].as_bool().with_context(|| format!("{row}"))?;
    Ok(Total { passed: number("passed")?, dropped: number("dropped")?, in_part })
}

fn row(list: &Value, source: [u8; 4]) -> Result<Total> {
    let rows = list["sources"].as_array().with_context(|| format!("{list}"))?;
    let found = rows.iter().find(|row| row["source"] == text(source));
    total(found.with_context(|| format!("{} is not in {list}", text(source)))?)
}

/// The totals of a source in every answer, which must be the same.
fn totals(limiter: &Limiter, source: [u8; 4]) -> Result<Total> {
    let name = text(source);
    let shown = limiter.json(&["show", &name])?;
    let by_rule = shown["by_rule"].as_array().with_context(|| format!("{shown}"))?;
    let sum: u64 = by_rule.iter().filter_map(|by| by["dropped"].as_u64()).sum();
    let shown = total(&shown)?;
    // Under an order by drops, those that lose nothing are one line.
    let by = if shown.dropped == 0 { "passed" } else { "dropped" };
    let listed = row(&limiter.json(&["sources", "--by", by])?, source)?;
    let path = format!("/v1/top?by={by}&watch={name}");
    let top: Value = serde_json::from_str(&request(limiter, &path)?)?;
    let watched = total(&top["watched"][0])?;
    let standing = row(&top, source)?;
    ensure!(
        [listed, watched, standing] == [shown; 3] && sum == shown.dropped,
        "{name}: show \
        {shown:?}, by rule {sum}, sources {listed:?}, top {standing:?}, watched {watched:?}"
    );
    Ok(shown)
}

/// The sum of a metric whose labels have a text.
fn metric(metrics: &str, name: &str, label: &str) -> Result<u64> {
    let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    let values = lines.filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<u64>().context(value.to_owned())).sum()
}

#[test]
fn the_total_of_a_source_is_the_same_in_every_answer_and_adds_up() -> Result<()> {
    require_root();
    let bed = Testbed::create("totals")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["deny", &text(DENIED.0), "--reason", "a test"])?;
    for (source, [game, other, ..]) in ALL {
        send(&bed, source, 27015, game)?;
        send(&bed, source, 5000, other)?;
    }
    let (mut exact, mut all_passed, mut all_dropped) = (0, 0, 0);
    for (source, [.., passed, dropped]) in ALL {
        let expected = Total { passed, dropped, in_part: source == DENIED.0 };
        let deadline = Instant::now() + SEEN_WITHIN;
        // Packets are on their way, and events are taken in turn.
        while totals(&limiter, source).ok() != Some(expected) {
            ensure!(Instant::now() < deadline, "{:?}, not {expected:?}", totals(&limiter, source));
            thread::sleep(Duration::from_millis(250));
        }
        exact += if expected.in_part { 0 } else { dropped };
        (all_passed, all_dropped) = (all_passed + passed, all_dropped + dropped);
    }
    // The rules, the reasons and the metrics have the same sums. Other packets, as of neighbours,
    // are dropped by none of these.
    let stats = limiter.json(&["stats"])?;
    let rules = stats["rules"].as_array().context("no rules")?;
    let by_rules: u64 = rules.iter().filter_map(|rule| rule["dropped"]["packets"].as_u64()).sum();
    ensure!(by_rules == exact, "{by_rules} by rules, {exact} by sources: {stats}");
    let dropped = stats["dropped"]["packets"].as_u64().context("no drops")?;
    ensure!(dropped == all_dropped, "{dropped} were dropped, and {all_dropped} of sources");
    let sent: u64 = ALL.iter().map(|(_, [game, other, ..])| game + other).sum();
    ensure!(all_passed + all_dropped == sent, "{all_passed}, {all_dropped} of {sent}");
    let metrics = request(&limiter, "/metrics")?;
    ensure!(metric(&metrics, "limiter_packets_total{", "verdict=\"drop\"")? == all_dropped);
    ensure!(metric(&metrics, "limiter_rule_packets_total{", "verdict=\"over\"")? == exact);
    ensure!(metric(&metrics, "limiter_packets_total{", "reason=\"denied\"")? == DENIED.1[3]);
    let top: Value = serde_json::from_str(&request(&limiter, "/v1/top")?)?;
    let by = &top["dropped_by"];
    ensure!(by["sources"] == exact && by["others"] == 0 && by["lists"] == DENIED.1[3], "{by}");
    // The sources that most was dropped of come first.
    let names: Vec<&Value> = top["sources"].as_array().context("no sources")?.iter().collect();
    let first: Vec<String> = names.iter().map(|row| row["source"].to_string()).collect();
    let expected = [BY_TWO, DENIED, BY_PORT].map(|(source, _)| format!("\"{}\"", text(source)));
    ensure!(first.starts_with(&expected), "{first:?}");
    // Without the daemon the same is said of what buckets count.
    limiter.terminate()?;
    for (source, [.., passed, dropped]) in [BY_PORT, BY_TWO] {
        let pins = limiter.pins().to_str().context("pins")?;
        let shown = limiter.json(&["show", &text(source), "--pin-dir", pins])?;
        let total = total(&shown)?;
        ensure!((total.passed, total.dropped) == (passed, dropped), "{shown}");
        ensure!(total.in_part, "what was denied is not known by source: {shown}");
    }
    limiter.close()?;
    bed.close()
}
