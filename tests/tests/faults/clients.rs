//! Clients of the control socket that are many, slow or hostile.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use super::scene::{DRAINING, MANAGEMENT, drain, ensure_clear_output, ensure_in_force};

/// Clients at once.
const MANY: usize = 1000;

/// Memory that the daemon may need for clients, in KiB.
const ROOM: u64 = 32 << 10;

/// Connections that the daemon holds at once.
const BOUND: usize = 64;

fn scene(tag: &str) -> Result<(Testbed, Limiter)> {
    let bed = Testbed::create(tag)?;
    let mut limiter = bed.limiter(DRAINING)?;
    let management = std::net::Ipv4Addr::from(MANAGEMENT).to_string();
    limiter.options(["--management", &management]);
    limiter.start()?;
    drain(&bed)?;
    Ok((bed, limiter))
}

/// As many files as this process may open.
pub(crate) fn allow_many_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    ensure!(limit.maximum.is_none_or(|most| most > 2 * MANY as u64), "{limit:?} is too low");
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

pub(crate) fn connect(limiter: &Limiter) -> Result<UnixStream> {
    let stream = UnixStream::connect(limiter.socket())?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    stream.set_write_timeout(Some(Duration::from_mins(1)))?;
    Ok(stream)
}

pub(crate) fn pid(limiter: &Limiter) -> Result<u32> {
    limiter.pid().context("the daemon is not running")
}

/// The most memory that the daemon ever had, in KiB.
pub(crate) fn memory(limiter: &Limiter) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid(limiter)?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

fn descriptors(limiter: &Limiter) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", pid(limiter)?))?.count())
}

/// Waits until the daemon has no more open files than when nobody asked.
fn until_closed(limiter: &Limiter, quiet: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_mins(1);
    // Again and again: those that still wait to be accepted are gone as well, and each is let in
    // and out.
    let mut looks = 0;
    while looks < 10 {
        looks = if descriptors(limiter)? > quiet { 0 } else { looks + 1 };
        ensure!(Instant::now() < deadline, "clients that went away are kept");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Has the daemon open so many files more, and no others.
fn leave_free(limiter: &Limiter, free: usize) -> Result<()> {
    let mut open = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", pid(limiter)?))? {
        open.push(entry?.file_name().to_string_lossy().parse::<u64>()?);
    }
    // The limit is on their numbers, and there are gaps.
    let next = (0..).filter(|number| !open.contains(number)).nth(free);
    let process = i32::try_from(pid(limiter)?).ok().and_then(Pid::from_raw);
    Ok(prlimit(process, Resource::Nofile, Rlimit { current: next, maximum: Some(4096) })
        .map(drop)?)
}

/// CPU time that the daemon had, in ticks of a hundredth of a second.
fn ticks(limiter: &Limiter) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid(limiter)?))?;
    let (_, fields) = stat.rsplit_once(") ").context("stat")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    // utime and stime are fields 14 and 15; the first here is field 3.
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

/// The daemon answers, changes what it is asked to, and the limits hold.
fn ensure_well(bed: &Testbed, limiter: &Limiter, when: &str) -> Result<()> {
    limiter.ok(["status"]).with_context(|| when.to_owned())?;
    limiter.ok(["set", "192.0.2.7", "5/s"]).with_context(|| when.to_owned())?;
    limiter.ok(["unset", "192.0.2.7"]).with_context(|| when.to_owned())?;
    ensure_in_force(bed, 0, when)
}

#[test]
fn a_thousand_clients_keep_nobody_out() -> Result<()> {
    require_root();
    allow_many_files()?;
    let (bed, limiter) = scene("clients")?;
    limiter.ok(["status"])?;
    let (before, open) = (memory(&limiter)?, descriptors(&limiter)?);
    let mut idle = (0..MANY).map(|_| connect(&limiter)).collect::<Result<Vec<_>>>()?;
    ensure_well(&bed, &limiter, "a thousand idle clients")?;
    let held = descriptors(&limiter)?;
    ensure!(held <= open + BOUND + 2, "{held} descriptors, {open} before");
    // Clients that were cut off hear of it, and the others are served.
    let mut answered = 0;
    for stream in &mut idle {
        let asked = stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut answer = Vec::new();
        // A reset is an end as well.
        let ended = asked.and_then(|()| stream.read_to_end(&mut answer));
        answered += usize::from(ended.is_ok() && answer.starts_with(b"HTTP/1.1 200"));
    }
    ensure!(answered <= BOUND, "{answered} idle clients were kept");
    drop(idle);
    // All at once, and each wants an answer.
    let mut asking = (0..MANY)
        .map(|_| {
            let mut stream = connect(&limiter)?;
            // One that was cut off meanwhile.
            drop(stream.write_all(b"GET /v1/limits HTTP/1.1\r\nhost: x\r\n\r\n"));
            Ok(stream)
        })
        .collect::<Result<Vec<_>>>()?;
    ensure_well(&bed, &limiter, "a thousand clients that ask")?;
    let mut answered = 0;
    for stream in &mut asking {
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        answered += usize::from(answer.starts_with(b"HTTP/1.1 200"));
    }
    ensure!(answered >= BOUND, "{answered} were answered");
    let grown = memory(&limiter)?.saturating_sub(before);
    ensure!(grown < ROOM, "{grown} KiB for clients");
    limiter.close()?;
    bed.close()
}

/// The fault: slow clients, garbage, endless headers and bodies, readers that never read.
#[test]
fn slow_and_hostile_clients_hurt_nobody() -> Result<()> {
    require_root();
    allow_many_files()?;
    let (bed, limiter) = scene("hostile")?;
    limiter.ok(["status"])?;
    let before = memory(&limiter)?;
    let mut kept = Vec::new();
    let head = |what: &str| format!("PUT {what} HTTP/1.1\r\nhost: x\r\n");
    let attacks: [(&str, Vec<u8>); 8] = [
        ("garbage", (0..100_000_u32).map(|n| n.wrapping_mul(97).to_le_bytes()[1]).collect()),
        ("a header without end", format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(4 << 20)).into()),
        ("100,000 headers", ("GET / HTTP/1.1\r\n".to_owned() + &"a: b\r\n".repeat(100_000)).into()),
        ("a path of 4 MB", format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(4 << 20)).into()),
        ("a body of 4 GB", (head("/v1/rules") + "content-length: 4294967296\r\n\r\n{\"").into()),
        ("a body without end", {
            let chunk = format!("100000\r\n{}\r\n", "[".repeat(1 << 20));
            (head("/v1/limits") + "transfer-encoding: chunked\r\n\r\n" + &chunk.repeat(4)).into()
        }),
        ("deep JSON", {
            let body = "[".repeat(60_000);
            (head("/v1/limits") + &format!("content-length: {}\r\n\r\n{body}", body.len())).into()
        }),
        (
            "a thousand requests in one",
            "GET /v1/limits HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000).into(),
        ),
    ];
    for (what, bytes) in attacks {
        for half_closed in [false, true] {
            let mut stream = connect(&limiter)?;
            // The daemon may close before it has read all of it.
            drop(stream.write_all(&bytes));
            if half_closed {
                drop(stream.shutdown(Shutdown::Write));
            }
            kept.push(stream);
        }
        ensure_well(&bed, &limiter, what)?;
    }
    // A byte now and then, from more clients than there is room for.
    let mut slow = (0..2 * BOUND).map(|_| connect(&limiter)).collect::<Result<Vec<_>>>()?;
    for byte in b"GET /v1" {
        for stream in &mut slow {
            drop(stream.write_all(&[*byte]));
        }
        ensure_well(&bed, &limiter, "slow clients")?;
    }
    // Readers of events that never read. Drops are reported meanwhile.
    for _ in 0..20 {
        let mut stream = connect(&limiter)?;
        let ask = b"GET /v1/events?follow=true&drops=true HTTP/1.1\r\nhost: x\r\n\r\n";
        drop(stream.write_all(ask));
        kept.push(stream);
    }
    for _ in 0..20 {
        ensure_in_force(&bed, 0, "readers that do not read")?;
    }
    ensure_well(&bed, &limiter, "readers that do not read")?;
    limiter.ok(["events"])?;
    let grown = memory(&limiter)?.saturating_sub(before);
    ensure!(grown < ROOM, "{grown} KiB for hostile clients");
    ensure!(!limiter.said().contains("panicked"), "{}", limiter.said());
    drop((kept, slow));
    limiter.close()?;
    bed.close()
}

#[test]
fn without_file_descriptors_the_daemon_neither_ends_nor_spins() -> Result<()> {
    require_root();
    allow_many_files()?;
    let (bed, limiter) = scene("nofile")?;
    let quiet = descriptors(&limiter)?;
    leave_free(&limiter, 4)?;
    let (begun, clients) = (ticks(&limiter)?, Instant::now());
    let idle = (0..200).map(|_| connect(&limiter)).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(Duration::from_secs(3));
    // Two thirds of one CPU would be spinning; accepting is a hundredth.
    let (used, wall) = (ticks(&limiter)? - begun, clients.elapsed().as_secs() * 100);
    ensure!(used * 3 < wall, "{used} ticks of {wall}: the daemon spins");
    limiter.ok(["status"]).context("with 200 idle clients")?;
    drop(idle);
    until_closed(&limiter, quiet)?;
    // The daemon has used up all of them itself: one that is kept for this is left.
    leave_free(&limiter, 0)?;
    let idle = (0..200).map(|_| connect(&limiter)).collect::<Result<Vec<_>>>()?;
    limiter.ok(["status"]).context("with no descriptor at all, and 200 idle clients")?;
    drop(idle);
    until_closed(&limiter, quiet)?;
    // A change that needs more than there are is refused, and nothing is different.
    let export = limiter.ok(["export"])?;
    until_closed(&limiter, quiet)?;
    // One is for the connection: the next one can be had when the one before is closed.
    leave_free(&limiter, 1)?;
    let output = limiter.cli(["set", "192.0.2.7", "5/s"])?;
    ensure_clear_output(&output, "no descriptor for a new trie")?;
    until_closed(&limiter, quiet)?;
    ensure!(limiter.ok(["export"])? == export, "something changed");
    ensure_in_force(&bed, 0, "without descriptors")?;
    leave_free(&limiter, 16)?;
    ensure_well(&bed, &limiter, "with descriptors again")?;
    limiter.close()?;
    bed.close()
}
