//! The log of events on disk, through the commands: who was dropped at a time, over restarts and
//! kills, and on a disk without room.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use rustix::fs::{CWD, FileType, mknodat};
use serde_json::Value;

use super::faults::disk::SmallDisk;

const RULES: &str = "domain: test\ndescriptors:
  - key: remote_address
    rate_limit: {name: all, unit: hour, requests_per_unit: 1, burst: 1}
  - key: protocol
    value: udp
    rate_limit: {name: trial, unit: hour, requests_per_unit: 1, burst: 1}
    shadow_mode: true\n";

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Sends a few UDP packets to port 53 from an address, of which all but the first are dropped.
fn send(bed: &Testbed, source: [u8; 4]) -> Result<()> {
    let frames = vec![{
        let transport = Transport::Udp { source: 40_000, destination: 53 };
        Frame::ipv4(source, RECEIVER.ipv4.octets()).transport(transport).build()
    }];
    let stream = Stream { frames, pattern: Pattern::Paced { per_second: 20.0 } };
    let before = bed.met()?;
    let time = Duration::from_secs(1);
    let sent =
        Generator::start(&bed.sender, SENDER.interface, vec![stream], time, 1 << 16)?.finish()?;
    bed.wait_until_met(before + sent[0].times.len() as u64)
}

fn wait(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        ensure!(Instant::now() < deadline, "{what}: not within a minute");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn log(bed: &Testbed) -> Result<(Vec<PathBuf>, String)> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(bed.dir.path().join("state"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    let mut text = String::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        text.push_str(&fs::read_to_string(path)?);
    }
    Ok((paths, text))
}

/// The moment, as the machine's clock has it in UTC, for `--since` and `--until`.
fn now() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}

fn found(limiter: &Limiter, words: &[&str]) -> Result<Value> {
    limiter.json(&[&["events"], words].concat())
}

fn sources(events: &Value) -> Vec<&str> {
    let episodes = events["episodes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut sources: Vec<_> = episodes.iter().filter_map(|at| at["source"].as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// "Why was 203.0.113.9 dropped at that time?", after the daemon was restarted, and killed.
#[test]
fn who_was_dropped_at_a_time_is_known_after_a_restart_and_a_kill() -> Result<()> {
    require_root();
    let bed = Testbed::create("eventlog")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let before = now();
    send(&bed, [203, 0, 113, 9])?;
    // Both rules were met: one drops, and one in shadow mode would.
    wait("the drops are on disk", || Ok(log(&bed)?.1.contains("\"203.0.113.9\"")))?;
    let between = now();
    limiter.terminate()?;
    let (paths, text) = log(&bed)?;
    ensure!(paths.len() == 1, "{paths:?}");
    ensure!(fs::metadata(&paths[0])?.permissions().mode() & 0o7777 == 0o600);
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).context("a line that is no JSON")?;
        ensure!(line["kind"].is_string(), "{line}");
    }

    limiter.start()?;
    send(&bed, [203, 0, 113, 10])?;
    wait("the other drops are on disk", || Ok(log(&bed)?.1.contains("\"203.0.113.10\"")))?;
    limiter.kill()?;
    limiter.start()?;

    let all = found(&limiter, &["--source", "203.0.113.0/24"])?;
    ensure!(sources(&all) == ["203.0.113.10", "203.0.113.9"], "{all}");
    let at = found(&limiter, &["--since", &before, "--until", &between])?;
    ensure!(sources(&at) == ["203.0.113.9"], "{at}");
    let drop = at["episodes"]
        .as_array()
        .and_then(|all| all.iter().find(|at| at["reason"] == "over-limit"))
        .with_context(|| format!("no drop in {at}"))?;
    ensure!(drop["rule_name"] == "all" && drop["last"]["destination_port"] == 53, "{drop}");
    ensure!(drop["last"]["source_port"] == 40_000 && drop["ended"] == true, "{drop}");
    let later = found(&limiter, &["--source", "203.0.113.9", "--since", &between])?;
    ensure!(sources(&later).is_empty(), "{later}");
    // Between the two daemons and after the kill nobody wrote: that is said, and denies nothing.
    ensure!(later["reach"]["gaps"].as_array().is_some_and(|gaps| gaps.len() == 2), "{later}");
    let before_all = found(&limiter, &["--source", "203.0.113.9", "--until", "2001-01-01"])?;
    ensure!(sources(&before_all).is_empty());

    // For people, as clocks there show it, with UTC beside.
    let mut command = Command::new(limiter.binary());
    command.arg("--socket").arg(limiter.socket()).env("TZ", "CET-1");
    command.args(["events", "--source", "203.0.113.9", "--rule", "all", "--since", "1h"]);
    let output = bed.receiver.spawn(command.stdout(std::process::Stdio::piped()))?;
    let output = output.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success() && text.contains("  UTC  "), "{text}");
    ensure!(text.contains("udp 40000>53"), "{text}");
    let text = limiter.ok(["events", "--rule", "no-such"])?;
    ensure!(text.contains("no rule in force or in the log is called that"), "{text}");
    let text = limiter.ok(["events", "--source", "203.0.113.77", "--until", "2001-01-01"])?;
    ensure!(text.contains("nothing is known of that time"), "{text}");
    limiter.close()?;
    bed.close()
}

/// A pipe in the place of the log, and then a disk without room: both are reported, packets and
/// requests go on, limits and lists are saved, and what was to be written is there afterwards.
#[test]
fn a_log_that_has_no_room_or_no_place_holds_up_nothing() -> Result<()> {
    require_root();
    let bed = Testbed::create("eventdisk")?;
    let disk = SmallDisk::mount(bed.dir.path().join("state"), c"size=6m,mode=0750")?;
    let pipe = disk.0.join("events-1.jsonl");
    mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0)?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let reported = |words: &str| {
        let status = limiter.ok(["status"])?;
        Ok(status.contains("keep the log of events") && status.contains(words))
    };
    wait("the pipe is reported", || reported("events-1.jsonl: no regular file"))?;
    fs::remove_file(&pipe)?;
    let quiet = || Ok(!limiter.ok(["status"])?.contains("keep the log of events"));
    wait("the pipe is forgotten", quiet)?;

    let ballast = disk.0.join("ballast");
    fs::write(&ballast, vec![1; 3 << 20])?;
    send(&bed, [203, 0, 113, 9])?;
    wait("the full disk is reported", || reported("all but full"))?;
    limiter.ok(["set", "192.0.2.8", "5/s"])?;
    limiter.ok(["deny", "192.0.2.99"])?;
    let events = found(&limiter, &["--source", "203.0.113.9"])?;
    ensure!(sources(&events) == ["203.0.113.9"], "held in memory: {events}");
    ensure!(events["reach"]["trouble"].is_string(), "{events}");
    fs::remove_file(&ballast)?;
    wait("there is room again", quiet)?;
    ensure!(log(&bed)?.1.contains("\"203.0.113.9\""), "nothing was made up for");
    limiter.close()?;
    drop(disk);
    bed.close()
}
