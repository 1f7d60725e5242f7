//! A directory of pins that was named, beside a daemon that answers: the directory wins. And a
//! daemon that does not answer: the bypass works without it.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::Signal;

use super::scene::DRAINING;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn bypassed(limiter: &Limiter) -> Result<bool> {
    limiter.json(&["status"])?["bypass"].as_bool().context("status has no `bypass`")
}

/// A command with a directory of pins, whatever its exit code.
fn with_pins(limiter: &Limiter, command: &str, pins: &str) -> Result<Output> {
    limiter.cli([command, "--pin-dir", pins])
}

#[test]
fn a_named_pin_directory_wins_over_the_daemon_that_answers() -> Result<()> {
    require_root();
    let bed = Testbed::create("named")?;
    let mut first = bed.limiter(DRAINING)?;
    first.start()?;
    bed.receiver.ip(["link", "add", "second0", "type", "veth", "peer", "name", "second1"])?;
    let mut second = bed.limiter(DRAINING)?;
    second.apart("second").on("second0").start()?;
    let pins = |limiter: &Limiter| limiter.pins().display().to_string();
    let (own, other) = (pins(&first), pins(&second));
    // All through the socket of the first.
    let done = with_pins(&first, "off", &other)?;
    ensure!(done.status.success(), "{}", said(&done));
    ensure!(!bypassed(&first)? && bypassed(&second)?, "the bypass of another daemon");
    let done = with_pins(&first, "on", &other)?;
    ensure!(done.status.success() && !bypassed(&second)?, "{}", said(&done));
    let by_another_name = format!("{own}/../{}", own.rsplit('/').next().unwrap_or_default());
    let done = with_pins(&first, "off", &by_another_name)?;
    ensure!(done.status.success(), "{}", said(&done));
    ensure!(bypassed(&first)? && !bypassed(&second)?, "not its own bypass");
    first.wait_until_logged("bypass")?;
    first.ok(["on"])?;
    // A place without anything.
    let nowhere = format!("{own}/nowhere");
    for command in ["off", "on", "detach"] {
        let refused = with_pins(&first, command, &nowhere)?;
        ensure!(refused.status.code() == Some(2), "{command}: {refused:?}");
        ensure!(said(&refused).contains(&nowhere), "{command}: {}", said(&refused));
    }
    ensure!(!bypassed(&first)? && !bypassed(&second)?, "something happened");
    let done = with_pins(&first, "detach", &other)?;
    ensure!(done.status.success(), "{}", said(&done));
    ensure!(!first.xdp()?.is_null(), "the first is not limited any more");
    ensure!(second.xdp()?.is_null(), "the second is limited still");
    second.close()?;
    first.close()?;
    bed.close()
}

#[test]
fn the_bypass_works_beside_a_daemon_that_does_not_answer() -> Result<()> {
    require_root();
    let bed = Testbed::create("silent")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    let pins = limiter.pins().display().to_string();
    for (command, named) in [("off", false), ("on", true), ("off", true), ("on", false)] {
        limiter.signal(Signal::STOP)?;
        let done = if named { with_pins(&limiter, command, &pins) } else { limiter.cli([command]) };
        limiter.signal(Signal::CONT)?;
        let done = done?;
        ensure!(done.status.success(), "{command}: {}", said(&done));
        let note = format!("did not answer within 2 s: done without it, on the maps in {pins}");
        ensure!(said(&done).contains(&note), "{command}: {}", said(&done));
        ensure!(bypassed(&limiter)? == (command == "off"), "{command} was not done");
    }
    // Of another daemon's socket nobody takes the maps of the default place.
    let elsewhere = bed.dir.path().join("nobody.sock");
    let refused = bed
        .receiver
        .output(Command::new(limiter.binary()).arg("off").arg("--socket").arg(elsewhere))?;
    ensure!(refused.status.code() == Some(2), "{refused:?}");
    ensure!(said(&refused).contains("--pin-dir"), "{}", said(&refused));
    limiter.close()?;
    bed.close()
}

#[test]
fn a_change_that_was_given_up_does_not_happen() -> Result<()> {
    require_root();
    let bed = Testbed::create("givenup")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    let before = limiter.ok(["export"])?;
    limiter.signal(Signal::STOP)?;
    let mut set = Command::new(limiter.binary());
    set.arg("--socket").arg(limiter.socket()).args(["set", "192.0.2.7", "3/s"]);
    let mut given_up = bed.receiver.spawn(set.stdout(Stdio::null()).stderr(Stdio::null()))?;
    // The request is there by then, and if not, there is less to be seen.
    std::thread::sleep(Duration::from_secs(1));
    given_up.kill()?;
    given_up.wait()?;
    limiter.signal(Signal::CONT)?;
    ensure!(limiter.ok(["export"])? == before, "it happened");
    limiter.close()?;
    bed.close()
}

/// A path that is no directory of pins is refused, and left as it is.
#[test]
fn a_directory_without_pins_is_left_alone() -> Result<()> {
    require_root();
    let bed = Testbed::create("nopins")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    let dir = tempfile::tempdir()?;
    for directory in ["maps", "links"] {
        fs::create_dir(dir.path().join(directory))?;
        fs::write(dir.path().join(directory).join("CONTROL"), "mine")?;
    }
    let empty = limiter.pins().with_file_name("empty");
    fs::create_dir(&empty)?;
    for path in [dir.path(), &empty] {
        let path = path.display().to_string();
        for command in ["off", "on", "detach"] {
            let refused = with_pins(&limiter, command, &path)?;
            ensure!(refused.status.code() == Some(2), "{command} {path}: {refused:?}");
            ensure!(said(&refused).contains("nothing is pinned under"), "{}", said(&refused));
        }
    }
    let kept = fs::read_to_string(dir.path().join("maps/CONTROL"))?;
    ensure!(kept == "mine" && empty.is_dir(), "something was removed");
    fs::remove_dir(&empty)?;
    ensure!(!bypassed(&limiter)?, "the bypass of the daemon");
    limiter.close()?;
    bed.close()
}

/// A daemon that hangs, behind a queue that others have filled: a command without a directory gives
/// up, and with one it is done.
#[test]
fn a_full_queue_holds_up_no_bypass() -> Result<()> {
    require_root();
    let bed = Testbed::create("queue")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    let pins = limiter.pins().display().to_string();
    limiter.signal(Signal::STOP)?;
    let mut waiting = Vec::new();
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &SocketAddrUnix::new(limiter.socket())?) {
            Ok(()) => waiting.push(socket),
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
        ensure!(waiting.len() < 100_000, "the queue has no end");
    }
    ensure!(!waiting.is_empty(), "nobody waits");
    let off = |pin_dir: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(limiter.binary()).arg("--socket").arg(limiter.socket());
        bed.receiver.output(command.arg("off").args(pin_dir).stdin(Stdio::null()))
    };
    let gave_up = off(&[])?;
    let bypassed_anyway = off(&["--pin-dir", &pins])?;
    limiter.signal(Signal::CONT)?;
    ensure!(gave_up.status.code() == Some(1), "{gave_up:?}");
    ensure!(bypassed_anyway.status.success(), "{bypassed_anyway:?}");
    drop(waiting);
    ensure!(bypassed(&limiter)?, "it is not bypassed");
    limiter.close()?;
    bed.close()
}
