//! Limits that a command line changes under a daemon: what a real source gets of it.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::{passed_of, send_ten};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

const SOURCE: [u8; 4] = [203, 0, 113, 77];
const ADDRESS: &str = "203.0.113.77";

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 1000, burst: 200}}\n";

/// A source that used up a week, and says nothing until that limit is taken off, is at its new
/// limit from then on: `show` and `explain` say so, and its next packets pass.
#[test]
fn a_loosened_limit_costs_a_silent_source_no_packet() -> Result<()> {
    require_root();
    let bed = Testbed::create("loosened")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["set", ADDRESS, "1/week", "--burst", "1"])?;
    send_ten(&bed, SENDER.interface, SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 10)? == 1, "not one of the week");
    limiter.ok(["unset", ADDRESS])?;
    // A fifth of a second fills the bucket; longer does not matter.
    thread::sleep(Duration::from_secs(1));
    // A change of somebody else's rule is none of this source.
    limiter.ok(["set", "198.51.100.9", "5/s"])?;
    let shown = limiter.json(&["show", ADDRESS])?;
    ensure!(shown["remaining"] == 200 && shown["full_in_ns"] == 0, "{shown}");
    let explained = limiter.json(&["explain", "--from", ADDRESS, "--to", "9/udp"])?;
    ensure!(explained["verdict"] == "pass", "{explained}");
    send_ten(&bed, SENDER.interface, SOURCE)?;
    let passed = passed_of(&limiter, SOURCE, 20)?;
    ensure!(passed == 11, "{passed} of 20 passed: ten were to after the change");
    limiter.close()?;
    bed.close()
}

/// A limit that an automation changes back and forth under a load grants no burst each time.
#[test]
fn a_limit_that_changes_to_and_fro_grants_one_burst() -> Result<()> {
    require_root();
    let bed = Testbed::create("tofro")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["set", ADDRESS, "1000/s", "--burst", "1000"])?;
    let frames = vec![Frame::ipv4(SOURCE, RECEIVER.ipv4.octets()).build()];
    let streams = vec![Stream { frames, pattern: Pattern::Paced { per_second: 8000.0 } }];
    let (changes, (sent, counts)) = thread::scope(|scope| {
        let measured = scope.spawn(|| bed.measure(streams, Duration::from_secs(4)));
        let mut changes = 0;
        while !measured.is_finished() {
            let limit = if changes % 2 == 0 { ["100/s", "1"] } else { ["1000/s", "1000"] };
            let [rate, burst] = limit;
            limiter.ok(["set", ADDRESS, rate, "--burst", burst])?;
            changes += 1;
            thread::sleep(Duration::from_millis(50));
        }
        let measured = measured.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        anyhow::Ok((changes, measured?))
    })?;
    ensure!(changes >= 4, "only {changes} changes");
    let times = &sent.first().context("nothing was sent")?.times;
    let (first, last) = (times.first().context("no packet")?, times.last().context("none")?);
    let arrived = counts.of(IpAddr::from(SOURCE));
    // The larger limit all the time: one burst and its rate. A packet of the rate, for the clocks.
    let most = 1000 + (last - first) / 1_000_000 + 2;
    ensure!(arrived <= most, "{arrived} arrived of {}, {changes} changes: {most}", times.len());
    limiter.close()?;
    bed.close()
}
