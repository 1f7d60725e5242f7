//! `limiter capture` and `limiter observe` over live traffic: the files, their ends, and that what
//! they say is what was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Ten at once of each source, and next to nothing after that.
const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {name: ten, unit: hour, requests_per_unit: 10, burst: 10}}\n";

/// A packet of a file: the time in nanoseconds, the length on the wire, the bytes and the comment.
#[derive(Debug)]
struct Packet {
    length: u32,
    bytes: Vec<u8>,
    comment: String,
}

#[derive(Debug, Default)]
struct Read {
    packets: Vec<Packet>,
    interfaces: Vec<String>,
    statistics: Vec<String>,
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let four = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>()).context("too short")?;
    Ok(u32::from_le_bytes(*four))
}

fn option(mut options: &[u8], code: u16) -> Result<Option<String>> {
    while options.len() >= 4 {
        let (found, length) = (word(options, 0)? & 0xffff, word(options, 0)? >> 16);
        let value = options.get(4..4 + length as usize).context("an option that is cut off")?;
        if found == u32::from(code) {
            return Ok(Some(String::from_utf8(value.to_vec())?));
        }
        options = &options[4 + length.next_multiple_of(4) as usize..];
    }
    Ok(None)
}

/// Reads pcapng as its specification has it (draft-ietf-opsawg-pcapng), with no code of limiter.
fn read(bytes: &[u8]) -> Result<Read> {
    let (mut read, mut left) = (Read::default(), bytes);
    while !left.is_empty() {
        let (kind, length) = (word(left, 0)?, word(left, 4)? as usize);
        let block = left.get(..length).context("a block that is cut off")?;
        ensure!(length.is_multiple_of(4) && word(block, length - 4)? as usize == length, "lengths");
        let body = &block[8..length - 4];
        match kind {
            0x0a0d_0d0a => ensure!(word(body, 0)? == 0x1a2b_3c4d, "byte order"),
            1 => {
                ensure!(word(body, 0)? == 1, "an Ethernet interface");
                read.interfaces.push(option(&body[8..], 2)?.context("no name")?);
            }
            5 => read.statistics.push(option(&body[12..], 1)?.context("no comment")?),
            6 => {
                ensure!(word(body, 0)? as usize <= read.interfaces.len(), "an unknown interface");
                let captured = word(body, 12)? as usize;
                let options = &body[20 + captured.next_multiple_of(4)..];
                read.packets.push(Packet {
                    length: word(body, 16)?,
                    bytes: body[20..20 + captured].to_vec(),
                    comment: option(options, 1)?.context("a packet without a comment")?,
                });
            }
            other => bail!("a block of type {other}"),
        }
        left = &left[length..];
    }
    Ok(read)
}

/// A command of the command line that goes on.
fn begin(limiter: &Limiter, bed: &Testbed, args: &[&str]) -> Result<Child> {
    let mut command = Command::new(limiter.binary());
    command.arg("--socket").arg(limiter.socket()).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    bed.receiver.spawn(&mut command)
}

/// Waits until there is a capture, or none any more.
fn wait_until(limiter: &Limiter, running: bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let socket = limiter.socket().display().to_string();
    loop {
        let asked = ["--silent", "--unix-socket", &socket, "http://limiter/v1/capture"];
        let output = Command::new("curl").args(asked).output().context("curl")?;
        let answer: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
        if answer["running"].is_null() != running {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{answer}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a capture has reached its file.
fn wait_until_begun(file: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !fs::metadata(file).is_ok_and(|file| file.len() > 0) {
        ensure!(Instant::now() < deadline, "nothing is written");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn signal(child: &Child, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process")?;
    Ok(kill_process(pid, signal)?)
}

fn end(child: Child) -> Result<(Output, String)> {
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output, said))
}

/// Sends frames of so many sources, and waits until they have arrived; says how many of each.
fn send(bed: &Testbed, sources: u8, per_second: f64) -> Result<Vec<usize>> {
    let stream = |last: u8| Stream {
        frames: vec![
            Frame::ipv4([203, 0, 113, last], RECEIVER.ipv4.octets()).payload(&[last; 200]).build(),
        ],
        pattern: Pattern::Paced { per_second },
    };
    let streams = (1..=sources).map(stream).collect();
    let before = bed.met()?;
    let time = Duration::from_millis(700);
    let sent = Generator::start(&bed.sender, SENDER.interface, streams, time, 1 << 20)?.finish()?;
    let counts: Vec<usize> = sent.iter().map(|recording| recording.times.len()).collect();
    bed.wait_until_met(before + counts.iter().sum::<usize>() as u64)?;
    Ok(counts)
}

/// Verdict and reason of each packet, as `limiter explain` finds them in a file.
fn explained(limiter: &Limiter, file: &Path) -> Result<Vec<(String, String)>> {
    let file = file.display().to_string();
    let rules = limiter.rules().display().to_string();
    let lines = limiter.ok(["explain", "--pcap", &file, "--rules", &rules, "--json"])?;
    let mut all = Vec::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line)?;
        if let (Some(verdict), Some(reason)) = (line["verdict"].as_str(), line["reason"].as_str()) {
            all.push((verdict.to_owned(), reason.to_owned()));
        }
    }
    Ok(all)
}

/// Everything that came in is in the file, with the verdict that the same rules have for it on
/// their own; a signal ends it without loss.
#[test]
fn a_capture_says_what_the_rules_did() -> Result<()> {
    require_root();
    let bed = Testbed::create("capture")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let file = bed.dir.path().join("all.pcapng");
    let path = file.display().to_string();
    let capture = begin(&limiter, &bed, &["capture", "-w", &path])?;
    wait_until(&limiter, true)?;
    let sent = send(&bed, 4, 100.0)?;
    signal(&capture, Signal::INT)?;
    let (output, said) = end(capture)?;
    ensure!(output.status.success(), "{said}");
    let read = read(&fs::read(&file)?)?;
    ensure!(read.interfaces == [RECEIVER.interface], "{:?}", read.interfaces);
    ensure!(read.statistics.len() == 1, "{:?}", read.statistics);
    let ours = |packet: &&Packet| packet.bytes.get(26..29) == Some(&[203, 0, 113]);
    let reported: Vec<&Packet> = read.packets.iter().filter(ours).collect();
    ensure!(reported.len() == sent.iter().sum::<usize>(), "{} of {sent:?}", reported.len());
    ensure!(reported.iter().all(|packet| packet.length as usize == packet.bytes.len()), "cut");
    let dropped =
        reported.iter().filter(|at| at.comment == "dropped: over-limit, rule ten").count();
    let passed = reported.iter().filter(|at| at.comment == "passed: conforming, rule ten").count();
    ensure!(passed == 40 && passed + dropped == reported.len(), "{passed} and {dropped}");
    ensure!(said.contains(&format!("{} packets", read.packets.len())), "{said}");
    let explained = explained(&limiter, &file)?;
    ensure!(explained.len() == read.packets.len(), "{} lines", explained.len());
    for (packet, (verdict, reason)) in read.packets.iter().zip(&explained) {
        let reported = packet.comment.split(", rule").next().unwrap_or_default();
        let verdict = if verdict.starts_with("drop") { "dropped" } else { "passed" };
        ensure!(reported == format!("{verdict}: {reason}"), "{reported} and {verdict} {reason}");
    }
    limiter.close()?;
    bed.close()
}

/// Filters, a count, a pipe, and the errors of what cannot be.
#[test]
fn a_capture_has_what_is_asked_for() -> Result<()> {
    require_root();
    let bed = Testbed::create("captures")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let dropped = [
        "capture",
        "--dropped",
        "--rule",
        "ten",
        "--source",
        "203.0.113.2",
        "--snap",
        "40",
        "--count",
        "7",
    ];
    let capture = begin(&limiter, &bed, &dropped)?;
    wait_until(&limiter, true)?;
    let second = limiter.cli(["capture", "-w", "-"])?;
    let why = String::from_utf8_lossy(&second.stderr).into_owned();
    ensure!(second.status.code() == Some(2) && why.contains("one capture at a time"), "{why}");
    send(&bed, 3, 100.0)?;
    // Seven packets end it.
    let (output, said) = end(capture)?;
    ensure!(output.status.success() && said.contains("7 packets"), "{said}");
    let read = read(&output.stdout)?;
    ensure!(read.packets.len() == 7 && read.statistics.len() == 1, "{read:?}");
    for packet in &read.packets {
        ensure!(packet.bytes.len() == 40 && packet.length == 242, "{packet:?}");
        ensure!(packet.bytes[26..30] == [203, 0, 113, 2], "{packet:?}");
        ensure!(packet.comment == "dropped: over-limit, rule ten", "{packet:?}");
    }
    for (args, words) in [
        (["capture", "--rule", "eleven"], "no rule in force is called \"eleven\""),
        (["capture", "--reason", "bad-luck"], "there is no \"bad-luck\""),
        (["capture", "--source", "0.0.0"], "0.0.0"),
    ] {
        let path = bed.dir.path().join("untouched");
        fs::write(&path, "before")?;
        let path = path.display().to_string();
        let output = limiter.cli(args.into_iter().chain(["-w", &path]))?;
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(2) && why.contains(words), "{args:?}: {why}");
        ensure!(fs::read_to_string(&path)? == "before", "bad input changes nothing");
    }
    limiter.close()?;
    bed.close()
}

/// The client dies, its reader goes, somebody else stops it, or the daemon dies: the capture ends.
#[test]
fn a_capture_ends_with_whoever_reads_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("capture-ends")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let capture = begin(&limiter, &bed, &["capture"])?;
    wait_until(&limiter, true)?;
    signal(&capture, Signal::KILL)?;
    end(capture)?;
    wait_until(&limiter, false)?;

    let mut capture = begin(&limiter, &bed, &["capture"])?;
    wait_until(&limiter, true)?;
    drop(capture.stdout.take());
    let (output, said) = end(capture)?;
    ensure!(output.status.success(), "a reader that goes away is no failure: {said}");
    wait_until(&limiter, false)?;

    let capture = begin(&limiter, &bed, &["capture"])?;
    wait_until(&limiter, true)?;
    limiter.ok(["capture", "--stop"])?;
    let (output, said) = end(capture)?;
    ensure!(output.status.success() && read(&output.stdout)?.statistics.len() == 1, "{said}");
    let none = limiter.cli(["capture", "--stop"])?;
    ensure!(none.status.code() == Some(2), "{none:?}");

    let file = bed.dir.path().join("begun.pcapng");
    let path = file.display().to_string();
    let capture = begin(&limiter, &bed, &["capture", "-w", &path])?;
    wait_until_begun(&file)?;
    limiter.kill()?;
    let (output, said) = end(capture)?;
    ensure!(output.status.code() == Some(1) && said.contains("cut the capture off"), "{said}");
    ensure!(said.contains(&format!("is kept in {path}")), "{said}");
    limiter.start()?;
    wait_until(&limiter, false)?;
    fs::remove_file(&file)?;
    let capture = begin(&limiter, &bed, &["capture", "-w", &path])?;
    wait_until_begun(&file)?;
    limiter.terminate()?;
    let (output, said) = end(capture)?;
    ensure!(output.status.code() == Some(1), "{said}");
    ensure!(read(&fs::read(&file)?)?.statistics.len() == 1, "a daemon that ends reports the end");
    limiter.start()?;
    limiter.close()?;
    bed.close()
}

/// The sources of a file, and the packets of each.
fn by_source(read: &Read) -> BTreeMap<u8, usize> {
    let mut sources = BTreeMap::new();
    for packet in &read.packets {
        if packet.bytes.get(26..29) == Some(&[203, 0, 113]) {
            *sources.entry(packet.bytes[29]).or_default() += 1;
        }
    }
    sources
}

/// With room for all, all are in the file; without, each source that is in the file is whole.
#[test]
fn an_observation_has_sources_whole_or_not_at_all() -> Result<()> {
    require_root();
    let bed = Testbed::create("observe")?;
    let mut limiter = bed.limiter("domain: test\ndescriptors: []\n")?;
    limiter.start()?;
    for (budget, all) in [("100000/s", true), ("100/s", false)] {
        let file = bed.dir.path().join("observed.pcapng");
        let path = file.display().to_string();
        let args = ["--output", "json", "observe", "--for", "1h", "--share", "1", "-w", &path];
        let args: Vec<&str> = args.into_iter().chain(["--rate-budget", budget]).collect();
        let observation = begin(&limiter, &bed, &args)?;
        wait_until(&limiter, true)?;
        let sent = send(&bed, 60, 30.0)?;
        signal(&observation, Signal::TERM)?;
        let (output, said) = end(observation)?;
        ensure!(output.status.success(), "{said}");
        let reported: Value = serde_json::from_slice(&output.stdout)?;
        let read = read(&fs::read(&file)?)?;
        ensure!(read.packets.iter().all(|at| at.bytes.len() <= 96 && at.length >= 60), "cut");
        let seen = by_source(&read);
        for (last, packets) in &seen {
            let sent = sent[usize::from(*last) - 1];
            ensure!(*packets == sent, "{packets} of {sent} packets of source {last}: {reported}");
        }
        ensure!(reported["packets"] == read.packets.len(), "{reported}");
        if all {
            ensure!(
                seen.len() == 60 && reported["share"] == 1,
                "{} sources: {reported}",
                seen.len()
            );
            ensure!(reported["over_budget"] == 0 && reported["lost"] == 0, "{reported}");
        } else {
            ensure!(
                seen.len() < 60 && reported["over_budget"] != 0,
                "{} sources: {reported}",
                seen.len()
            );
            ensure!(reported["sources_cut"] != 0, "{reported}");
        }
        let left = fs::read_dir(bed.dir.path())?.filter_map(Result::ok);
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        ensure!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
    }
    limiter.close()?;
    bed.close()
}

/// A full disk leaves what was reported by then, and the error says where.
#[test]
fn an_observation_that_cannot_be_written_says_what_is_kept() -> Result<()> {
    require_root();
    let bed = Testbed::create("observe-full")?;
    let mut limiter = bed.limiter("domain: test\ndescriptors: []\n")?;
    limiter.start()?;
    let file = bed.dir.path().join("observed.pcapng");
    let path = file.display().to_string();
    // Blocks of 512 or 1,024 bytes: fewer than the packets need.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]);
    command.arg(limiter.binary()).arg("--socket").arg(limiter.socket());
    command.args(["observe", "--for", "1h", "--share", "1", "-w", &path]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let observation = bed.receiver.spawn(&mut command)?;
    wait_until(&limiter, true)?;
    send(&bed, 20, 60.0)?;
    let (output, said) = end(observation)?;
    ensure!(output.status.code() == Some(2), "{}: {said}", output.status);
    let partial = format!("{path}.partial");
    ensure!(said.contains(&format!("is kept in {partial}")), "{said}");
    ensure!(fs::metadata(&partial)?.len() > 0 && !file.exists(), "{said}");
    wait_until(&limiter, false)?;
    limiter.close()?;
    bed.close()
}

/// A link that somebody put there, and an old file that others may read, are not written to: the
/// packets are in a new file of root's alone.
#[test]
fn packets_are_not_written_where_somebody_else_reads() -> Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    require_root();
    let bed = Testbed::create("capture-spy")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let at = |name: &str| bed.dir.path().join(name);
    for command in ["capture", "observe"] {
        for old in ["link", "file"] {
            let (spy, file) = (at("spy"), at("x.pcapng"));
            let partial = at("x.pcapng.partial");
            for path in [&spy, &file, &partial] {
                drop(fs::remove_file(path));
            }
            fs::write(&spy, "")?;
            for path in [&file, &partial] {
                if old == "link" {
                    symlink(&spy, path)?;
                } else {
                    fs::write(path, "")?;
                    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
                }
            }
            let path = file.display().to_string();
            let mut args = vec![command, "--for", "2s", "-w", &path];
            if command == "observe" {
                args.extend(["--share", "1"]);
            }
            let child = begin(&limiter, &bed, &args)?;
            wait_until(&limiter, true)?;
            send(&bed, 5, 60.0)?;
            let (output, said) = end(child)?;
            ensure!(output.status.success(), "{command} {old}: {said}");
            let metadata = fs::symlink_metadata(&file)?;
            ensure!(metadata.is_file() && metadata.mode() & 0o777 == 0o600, "{command} {old}");
            ensure!(!read(&fs::read(&file)?)?.packets.is_empty(), "{command} {old}");
            ensure!(fs::metadata(&spy)?.len() == 0, "{command} {old}: the spy reads packets");
            wait_until(&limiter, false)?;
        }
    }
    limiter.close()?;
    bed.close()
}

/// Waits until a command has opened the pinned maps.
fn wait_until_maps_are_open(child: &Child) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let open = || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).ok()?;
        let links = descriptors.filter_map(|at| fs::read_link(at.ok()?.path()).ok());
        Some(links.filter(|link| link.to_string_lossy().contains("bpf-map")).count())
    };
    while open().is_none_or(|open| open == 0) {
        ensure!(Instant::now() < deadline, "no map is opened");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// `limiter tune` of live traffic, ended by Ctrl-C: by observation it has every packet, by counters
/// what came since it began; both propose a rule in shadow mode, and apply nothing.
#[test]
fn a_limit_is_proposed_from_live_traffic() -> Result<()> {
    require_root();
    let bed = Testbed::create("tune-live")?;
    let mut limiter = bed.limiter(
        "domain: test\ndescriptors:\n  - {key: remote_address, rate_limit: {rate: 900/s}}\n",
    )?;
    limiter.start()?;
    let generation = limiter.json(&["status"])?["generation"].clone();
    for counters in [false, true] {
        let mut args = vec!["tune", "--for", "1h", "--json"];
        args.extend(counters.then_some("--counters"));
        let tune = begin(&limiter, &bed, &args)?;
        if counters {
            wait_until_maps_are_open(&tune)?;
        } else {
            wait_until(&limiter, true)?;
        }
        let sent = [send(&bed, 10, 60.0)?, send(&bed, 10, 60.0)?, send(&bed, 10, 60.0)?];
        // Counters are read each second.
        thread::sleep(Duration::from_millis(if counters { 1_200 } else { 0 }));
        signal(&tune, Signal::INT)?;
        let (output, said) = end(tune)?;
        ensure!(output.status.success(), "counters {counters}: {said}");
        let reported: Value = serde_json::from_slice(&output.stdout)?;
        let notes = reported["notes"].to_string();
        ensure!(notes.contains("Ctrl-C") || notes.contains("interrupted"), "{notes}");
        let top = reported["top"].as_array().context("no top")?;
        for last in 1..=10 {
            let of = |round: &Vec<usize>| round[last - 1] as u64;
            let all: u64 = sent.iter().map(of).sum();
            let row = top.iter().find(|row| row["source"] == format!("203.0.113.{last}"));
            let packets = row.and_then(|row| row["packets"].as_u64()).context("no such source")?;
            let least = if counters { of(&sent[2]) } else { all };
            ensure!((least..=all).contains(&packets), "{packets} of {all}: {reported}");
        }
        let proposed = reported["rule_file"].as_str().context("nothing is proposed")?;
        ensure!(proposed.contains("shadow_mode: true"), "{proposed}");
    }
    ensure!(limiter.json(&["status"])?["generation"] == generation, "tune applies nothing");
    limiter.close()?;
    bed.close()
}
