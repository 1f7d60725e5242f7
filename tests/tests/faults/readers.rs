//! Readers without the right to change anything, who ask for much and hang up, or do not read.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use super::clients::{allow_many_files, connect, memory, pid};

/// Entries on the deny list.
const LISTED: u32 = 100_000;

/// Rules for a source, and as many for a port.
const RULES: u32 = 1500;

/// Memory that readers may cost, in KiB.
const ROOM: u64 = 64 << 10;

/// A change takes no longer: far less than what was asked for before it would take.
const SOON: Duration = Duration::from_secs(20);

const LARGE: [&str; 6] =
    ["/v1/lists", "/v1/limits", "/v1/stats", "/v1/rules", "/metrics", "/v1/status"];

/// `nobody`, who may read.
const NOBODY: u32 = 65_534;

fn rules() -> String {
    let mut text = "domain: test\ndescriptors:\n".to_owned();
    for number in 0..RULES {
        let limit = "rate_limit: {unit: second, requests_per_unit: 7, burst: 9}";
        let source = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
        for (key, value) in
            [("remote_address", source.to_string()), ("destination_port", (number + 1).to_string())]
        {
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = writeln!(text, "  - {{key: {key}, value: {value}, {limit}}}");
        }
    }
    text
}

fn lists() -> String {
    let entry = |number| {
        let source = std::net::Ipv4Addr::from_bits(0x0b00_0000 + number);
        format!("{{\"source\":\"{source}\",\"list\":\"deny\",\"until\":null}}")
    };
    format!("{{\"entries\":[{}]}}", (0..LISTED).map(entry).collect::<Vec<_>>().join(","))
}

/// A daemon with much to report, to whom anybody may connect.
fn scene() -> Result<(Testbed, Limiter)> {
    let bed = Testbed::create("readers")?;
    let state = bed.dir.path().join("state");
    fs::create_dir(&state)?;
    fs::write(state.join("lists.json"), lists())?;
    let mut limiter = bed.limiter(&rules())?;
    limiter.start()?;
    fs::set_permissions(bed.dir.path(), Permissions::from_mode(0o755))?;
    fs::set_permissions(limiter.socket(), Permissions::from_mode(0o666))?;
    let listed = limiter.json(&["lists"])?["entries"].as_array().map_or(0, Vec::len);
    ensure!(listed == LISTED as usize, "{listed} are listed");
    let output = limiter.json(&["list"])?["limits"].as_array().map_or(0, Vec::len);
    ensure!(output == 2 * RULES as usize, "{output} rules");
    Ok((bed, limiter))
}

/// Asks as nobody, who does not wait for the answer.
fn ask(socket: &Path, path: &str) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())?;
    Ok(stream)
}

/// A thread that is nobody.
fn as_nobody<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<Result<T>> {
    thread::spawn(move || {
        let nobody = Uid::from_raw(NOBODY);
        set_thread_res_uid(nobody, nobody, nobody)?;
        Ok(work())
    })
}

fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Clients that ask and hang up, until they are asked to stop.
fn hang_up(socket: &Path, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<Result<u64>>> {
    let asking = |number: usize| {
        let (socket, stop): (PathBuf, _) = (socket.to_owned(), Arc::clone(stop));
        as_nobody(move || {
            let mut asked = 0;
            for answer in LARGE.iter().cycle().skip(number) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                asked += u64::from(ask(&socket, answer).is_ok());
                thread::sleep(Duration::from_millis(20));
            }
            asked
        })
    };
    (0..16).map(asking).collect()
}

/// A request of the owner's, within [`SOON`].
fn request(limiter: &Limiter, request: &str, when: &str) -> Result<String> {
    let begun = Instant::now();
    let mut stream = connect(limiter)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer).with_context(|| when.to_owned())?;
    let (answer, took) = (String::from_utf8_lossy(&answer[..read]), begun.elapsed());
    ensure!(took < SOON, "{when}: it took {took:?}");
    ensure!(answer.starts_with("HTTP/1.1 200"), "{when}: {answer}");
    Ok(answer.into_owned())
}

fn bypass(limiter: &Limiter, engaged: bool, when: &str) -> Result<()> {
    let body = format!("{{\"engaged\":{engaged}}}");
    let head = format!("PUT /v1/bypass HTTP/1.1\r\nhost: x\r\ncontent-length: {}", body.len());
    request(limiter, &format!("{head}\r\n\r\n{body}"), when).map(drop)
}

/// Against an attempt to keep the owner from changing anything, by reading. The fault: clients that
/// ask for large answers and hang up, or read nothing.
#[test]
fn whoever_changes_comes_before_whoever_reads() -> Result<()> {
    require_root();
    allow_many_files()?;
    let (bed, limiter) = scene()?;
    // The most memory from here on.
    thread::sleep(Duration::from_secs(2));
    fs::write(format!("/proc/{}/clear_refs", pid(&limiter)?), "5")?;
    let rest = memory(&limiter)?;
    let socket = limiter.socket().to_owned();
    // None of these reads anything, and sixteen would be all followers that there may be.
    let unread = join(as_nobody({
        let socket = socket.clone();
        move || {
            let follow = (0..20).map(|_| ask(&socket, "/v1/events?follow=true"));
            let large = (0..64).map(|number| ask(&socket, LARGE[number % LARGE.len()]));
            follow.chain(large).collect::<Vec<_>>()
        }
    }))?;
    let stop = Arc::new(AtomicBool::new(false));
    let asking = hang_up(&socket, &stop);
    for round in 0..10 {
        thread::sleep(Duration::from_millis(300));
        bypass(&limiter, round % 2 == 0, "amid readers")?;
    }
    let follow = "GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n";
    request(&limiter, follow, "a follower amid followers")?;
    limiter.ok(["off"])?;
    limiter.ok(["on"])?;
    // A client that reads is answered, too.
    let whole = limiter.json(&["lists"])?["entries"].as_array().map_or(0, Vec::len);
    ensure!(whole == LISTED as usize, "{whole} are listed");
    stop.store(true, Ordering::Relaxed);
    let asked = asking.into_iter().map(join).sum::<Result<u64>>()?;
    bypass(&limiter, false, "after the readers")?;
    limiter.ok(["status"])?;
    let grown = memory(&limiter)?.saturating_sub(rest);
    eprintln!("{asked} asked and hung up; {grown} KiB over {rest} KiB");
    ensure!(asked > 100, "only {asked} asked");
    ensure!(grown < ROOM, "{grown} KiB for readers, over {rest} KiB");
    drop(unread);
    limiter.close()?;
    bed.close()
}
