//! The row of a source: what drops most of it is the same in every answer, with the same numbers.

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

use super::totals::request;

/// `game` drops what `everybody` would let pass.
const RULES: &str = "domain: test
descriptors:
  - key: protocol
    value: udp
    descriptors:
      - key: destination_port
        value: 27015
        descriptors:
          - {key: remote_address, rate_limit: {name: game, rate: 20/s, burst: 10}}
  - {key: remote_address, rate_limit: {name: everybody, rate: 1000/s, burst: 1000}}\n";

const PLAYER: &str = "203.0.113.21";
const DENIED: &str = "203.0.113.22";

/// A player who sends 200 packets a second to the port of the game, and one on the deny list who
/// sends 50, for longer than the test takes; and 2000 sources that send one packet.
fn traffic(bed: &Testbed) -> Result<Generator> {
    let frame = |source: [u8; 4]| {
        let frame = Frame::ipv4(source, RECEIVER.ipv4.octets()).macs(SENDER.mac, RECEIVER.mac);
        let transport = Transport::Udp { source: 4000, destination: 27015 };
        frame.transport(transport).build()
    };
    let paced = |source, per_second| Stream {
        frames: vec![frame(source)],
        pattern: Pattern::Paced { per_second },
    };
    let spoofed = (0..2000u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        frame([10, 0, high, low])
    });
    let once = Pattern::Burst { frames: 2000.try_into()?, every: Duration::from_hours(1) };
    let flood = Stream { frames: spoofed.collect(), pattern: once };
    let streams = vec![paced([203, 0, 113, 21], 200.0), paced([203, 0, 113, 22], 50.0), flood];
    Generator::start(&bed.sender, SENDER.interface, streams, Duration::from_mins(5), 1 << 20)
}

fn row<'a>(rows: &'a Value, source: &str) -> Result<&'a Value> {
    let list = rows.as_array().with_context(|| format!("no rows: {rows}"))?;
    list.iter().find(|row| row["source"] == source).with_context(|| format!("{source}: {rows}"))
}

/// What is said of the player: 180 packets of 200 a second, or of those that a busy machine sends,
/// by `game` alone.
fn is_of_the_player(row: &Value) -> Result<()> {
    let by = row["by"].as_array().with_context(|| format!("{row}"))?;
    ensure!(by.len() == 1 && by[0]["rule_name"] == "game", "{row}");
    ensure!(by[0]["reason"] == "over-limit" && by[0]["exact"] == true, "{row}");
    ensure!(row["direction"] == "in" && row["dropped"] == by[0]["dropped"], "{row}");
    let rate = |of: &Value, name: &str| of[name].as_f64().with_context(|| format!("{name}: {row}"));
    for rate in [rate(row, "dropped_per_second")?, rate(&by[0], "dropped_per_second")?] {
        ensure!((20.0..=300.0).contains(&rate), "{row}");
    }
    ensure!((8.0..=40.0).contains(&rate(row, "passed_per_second")?), "{row}");
    Ok(())
}

fn is_of_the_denied(row: &Value) -> Result<()> {
    let by = &row["by"][0];
    ensure!(by["reason"] == "denied" && by["rule"].is_null(), "{row}");
    ensure!(by["exact"] == false && row["dropped_at_least"] == true, "{row}");
    Ok(())
}

fn everywhere(limiter: &Limiter) -> Result<()> {
    let json =
        |path: &str| -> Result<Value> { Ok(serde_json::from_str(&request(limiter, path)?)?) };
    let path = format!("/v1/top?by=drop-rate&watch={PLAYER}");
    json(&path)?;
    thread::sleep(Duration::from_millis(500));
    let top = json(&path)?;
    for rows in [&top["sources"], &top["watched"]] {
        is_of_the_player(row(rows, PLAYER)?)?;
    }
    is_of_the_denied(row(&top["sources"], DENIED)?)?;
    ensure!(top["sources"][0]["source"] == PLAYER, "most is dropped of it: {top}");
    ensure!(top["lose_nothing"].as_u64() >= Some(1900), "{}", top["lose_nothing"]);
    let headline = top["headline"].as_str().context("no headline")?;
    // The number of the row, rounded: both are of the same readings.
    let rate = top["sources"][0]["dropped_per_second"].as_f64().context("no rate")?;
    ensure!(headline.contains(&format!(", {rate:.0} of them from {PLAYER} by game")), "{top}");
    ensure!(headline.contains(" by lists and bans (≥1 source, ≥"), "{headline}");
    ensure!(headline.contains(&format!(" from {DENIED})")), "{headline}");
    let list = limiter.json(&["sources", "--by", "drop-rate"])?;
    is_of_the_player(row(&list["sources"], PLAYER)?)?;
    is_of_the_denied(row(&list["sources"], DENIED)?)?;
    ensure!(list["sources"].as_array().map(Vec::len) == Some(2), "{list}");
    let shown = limiter.json(&["show", PLAYER])?;
    is_of_the_player(row(&shown["rows"], PLAYER)?)?;
    let explained = limiter.json(&["explain", PLAYER])?;
    is_of_the_player(row(&explained["drops"], PLAYER)?)?;
    ensure!(explained["verdict"] == "unknown", "{explained}");
    let once = limiter.ok(["top", "--once"])?;
    for text in [&once, &limiter.ok(["sources", "--by", "drop-rate"])?] {
        let line = text.lines().find(|line| line.starts_with(PLAYER));
        let words: Vec<_> = line.with_context(|| text.clone())?.split_whitespace().collect();
        ensure!(words[2..4] == ["game", "over-limit"], "{text}");
        let line = text.lines().find(|line| line.starts_with(DENIED));
        let line = line.with_context(|| text.clone())?;
        ensure!(line.contains(" deny list ") && line.ends_with("denied"), "{text}");
        ensure!(text.contains("of which no drop was seen\n"), "{text}");
    }
    let line = once.lines().find(|line| line.starts_with(PLAYER)).context("no row")?;
    let rate = line.split_whitespace().nth(1).context("no rate")?;
    ensure!(once.contains(&format!(", {rate} of them from {PLAYER} by game")), "{once}");
    let text = limiter.ok(["explain", PLAYER])?;
    ensure!(text.contains("/s by game (over-limit)"), "{text}");
    ensure!(!text.contains("verdict    pass"), "{text}");
    Ok(())
}

#[test]
fn every_answer_names_the_rule_that_drops_most_of_a_source() -> Result<()> {
    require_root();
    let bed = Testbed::create("rows")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["deny", DENIED, "--reason", "a test"])?;
    let traffic = traffic(&bed)?;
    let deadline = Instant::now() + SEEN_WITHIN;
    // The flood and the events are on their way.
    while let Err(error) = everywhere(&limiter) {
        ensure!(Instant::now() < deadline, "{error:?}");
        thread::sleep(Duration::from_millis(250));
    }
    drop(traffic);
    limiter.close()?;
    bed.close()
}
