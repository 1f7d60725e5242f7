//! A directory of pins that was named, beside a daemon that answers: the directory wins. And a daemon that does not
//! answer: the brake works without it.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use rustix::process::Signal;

use crate::world::DRAINING;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn braked(limiter: &Limiter) -> Result<bool> {
    limiter.json(&["status"])?["brake"].as_bool().context("status has no brake")
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
    ensure!(!braked(&first)? && braked(&second)?, "the brake of another daemon");
    let done = with_pins(&first, "on", &other)?;
    ensure!(done.status.success() && !braked(&second)?, "{}", said(&done));
    let by_another_name = format!("{own}/../{}", own.rsplit('/').next().unwrap_or_default());
    let done = with_pins(&first, "off", &by_another_name)?;
    ensure!(done.status.success(), "{}", said(&done));
    ensure!(braked(&first)? && !braked(&second)?, "not its own brake");
    ensure!(first.said().contains("brake"), "the daemon has it not in its log: {}", first.said());
    first.ok(["on"])?;
    // Where nothing is.
    let nowhere = format!("{own}/nowhere");
    for command in ["off", "on", "detach"] {
        let refused = with_pins(&first, command, &nowhere)?;
        ensure!(refused.status.code() == Some(2), "{command}: {refused:?}");
        ensure!(said(&refused).contains(&nowhere), "{command}: {}", said(&refused));
    }
    ensure!(!braked(&first)? && !braked(&second)?, "something happened");
    let done = with_pins(&first, "detach", &other)?;
    ensure!(done.status.success(), "{}", said(&done));
    ensure!(!first.xdp()?.is_null(), "the first is not limited any more");
    ensure!(second.xdp()?.is_null(), "the second is limited still");
    second.close()?;
    first.close()?;
    bed.close()
}

#[test]
fn the_brake_works_beside_a_daemon_that_does_not_answer() -> Result<()> {
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
        ensure!(braked(&limiter)? == (command == "off"), "{command} was not done");
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
