//! Interfaces that are renamed, change their names with each other, or move to another network
//! namespace: the program stays on them, and what is reported about them is so.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use limiter_tests::cables::{FAR, NEAR, SEEN_WITHIN, passed_of, second_cable, send_ten};
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// Five packets, then one in three minutes.
const DRAINING: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

const LAN: &str = "lan0";

fn rename(netns: &Netns, from: &str, to: &str) -> Result<()> {
    netns.ip(["link", "set", from, "down"])?;
    netns.ip(["link", "set", from, "name", to])?;
    netns.ip(["link", "set", to, "up"])?;
    Ok(())
}

/// Waits until the far end sees the carrier again.
fn wait_for_carrier(bed: &Testbed, interface: &str) -> Result<()> {
    let deadline = Instant::now() + SEEN_WITHIN;
    while bed.sender.link(interface)?["operstate"] != "UP" {
        ensure!(Instant::now() < deadline, "{interface} has no carrier");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until the interfaces of `status` are as wanted.
fn wait_for(limiter: &Limiter, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Result<()> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let interfaces = limiter.json(&["status"])?["interfaces"].clone();
        if interfaces.as_array().is_some_and(|all| wanted(all)) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not {what}: {interfaces}; it said: {}", limiter.said());
        thread::sleep(Duration::from_millis(10));
    }
}

/// True if the interface is under limits by this name.
fn is_on(interface: &Value, name: &str) -> bool {
    interface["name"] == name && interface["attached"] == true && interface["state"] == "attached"
}

/// Refused with exit code 2, and one line that has all of `words`.
fn refused(limiter: &Limiter, words: &[&str]) -> Result<()> {
    let output = limiter.run_to_end()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "exit code {:?}: {said}", output.status.code());
    let error = said.lines().find(|line| line.starts_with("limiter: ")).unwrap_or_default();
    for word in words {
        ensure!(error.contains(word), "the error does not name {word:?}: {said}");
    }
    Ok(())
}

/// The bucket that ten packets drained before is still drained.
fn still_drained(bed: &Testbed, limiter: &Limiter, into: &'static str, packets: u64) -> Result<()> {
    wait_for_carrier(bed, into)?;
    send_ten(bed, into, SOURCE)?;
    let passed = passed_of(limiter, SOURCE, packets)?;
    ensure!(passed == 5, "{passed} of {packets} passed a limit of five");
    Ok(())
}

#[test]
fn a_renamed_interface_stays_limited() -> Result<()> {
    require_root();
    let bed = Testbed::create("renamed")?;
    second_cable(&bed)?;
    // A rule on the interface stays with it.
    let mut limiter = bed.limiter(&format!(
        "{DRAINING}  - {{key: interface, value: {NEAR}, rate_limit: {{unit: second, \
         requests_per_unit: 100000}}}}\n"
    ))?;
    limiter.on(NEAR).start()?;
    still_drained(&bed, &limiter, FAR, 10)?;
    rename(&bed.receiver, NEAR, LAN)?;
    wait_for(&limiter, "renamed", |all| all.len() == 1 && is_on(&all[0], LAN))?;
    let report = limiter.ok(["status"])?;
    ensure!(
        report.contains("lan0 (") && report.contains(") native") && report.contains("was recv1"),
        "{report}"
    );
    ensure!(!report.contains("packets pass"), "{report}");
    limiter.wait_until_logged("recv1 is called lan0 now")?;
    ensure!(limiter.pins().join("links").join(LAN).exists(), "the pin has the old name");
    still_drained(&bed, &limiter, FAR, 20)?;
    limiter.ok(["reload"])?;
    // Another one of the old name is what was asked for, too.
    bed.receiver.ip(["link", "add", NEAR, "type", "veth", "peer", "name", "far2"])?;
    wait_for(&limiter, "both", |all| {
        all.iter().all(|at| at["attached"] == true) && all.len() == 2
    })?;
    bed.receiver.ip(["link", "delete", NEAR])?;
    wait_for(&limiter, "one", |all| all.len() == 1 && is_on(&all[0], LAN))?;
    fs::write(limiter.rules(), DRAINING)?;
    limiter.ok(["reload"])?;
    // The next start learns the name from the refusal, and keeps all that was.
    limiter.kill()?;
    refused(&limiter, &["no interface recv1", "lan0 is still limited", "--iface lan0"])?;
    limiter.on(LAN).start()?;
    wait_for(&limiter, "adopted", |all| is_on(&all[0], LAN) && all[0]["adopted"] == true)?;
    still_drained(&bed, &limiter, FAR, 30)?;
    let detached = limiter.on_pins("detach")?;
    ensure!(detached == "detached from lan0\n", "{detached}");
    limiter.wait_until_ended()?;
    limiter.close()?;
    bed.close()
}

#[test]
fn a_start_under_the_new_name_keeps_what_was() -> Result<()> {
    require_root();
    let bed = Testbed::create("newname")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(NEAR).start()?;
    still_drained(&bed, &limiter, FAR, 10)?;
    limiter.kill()?;
    rename(&bed.receiver, NEAR, LAN)?;
    refused(&limiter, &["no interface recv1", "lan0, which was recv1,", "--iface lan0"])?;
    limiter.on(LAN).start()?;
    limiter.wait_until_logged("recv1 is called lan0 now")?;
    wait_for(&limiter, "adopted", |all| is_on(&all[0], LAN) && all[0]["adopted"] == true)?;
    still_drained(&bed, &limiter, FAR, 20)?;
    let links = limiter.pins().join("links");
    ensure!(links.join(LAN).exists() && !links.join(NEAR).exists(), "the pin has the old name");
    // One that was renamed and is not asked for any more is reported by its name of now.
    limiter.kill()?;
    rename(&bed.receiver, LAN, NEAR)?;
    limiter.on(RECEIVER.interface).start()?;
    limiter.wait_until_logged("recv1, which was lan0, is still limited")?;
    limiter.close()?;
    bed.close()
}

#[test]
fn two_interfaces_change_their_names() -> Result<()> {
    require_root();
    let bed = Testbed::create("swap")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.options(["--iface", NEAR]).start()?;
    let here = RECEIVER.interface;
    let index = |name: &str| Ok::<_, anyhow::Error>(bed.receiver.link(name)?["ifindex"].clone());
    still_drained(&bed, &limiter, SENDER.interface, 10)?;
    let swap = || {
        let before = [index(here)?, index(NEAR)?];
        for (from, to) in [(here, "between"), (NEAR, here), ("between", NEAR)] {
            rename(&bed.receiver, from, to)?;
        }
        ensure!([index(NEAR)?, index(here)?] == before);
        Ok(())
    };
    let both = |limiter: &Limiter| {
        let right = |at: &Value, name: &str, wanted: &Value| {
            is_on(at, name) && at["ifindex"] == *wanted && at["was"].is_null()
        };
        let (first, second) = (index(here)?, index(NEAR)?);
        wait_for(limiter, "both by their names", |all| {
            all.len() == 2
                && all.iter().any(|at| right(at, here, &first))
                && all.iter().any(|at| right(at, NEAR, &second))
        })
    };
    swap()?;
    both(&limiter)?;
    still_drained(&bed, &limiter, SENDER.interface, 20)?;
    still_drained(&bed, &limiter, FAR, 30)?;
    // And with nobody there to see it.
    limiter.kill()?;
    swap()?;
    limiter.start()?;
    both(&limiter)?;
    wait_for(&limiter, "adopted", |all| all.iter().all(|at| at["adopted"] == true))?;
    still_drained(&bed, &limiter, SENDER.interface, 40)?;
    still_drained(&bed, &limiter, FAR, 50)?;
    let links = limiter.pins().join("links");
    let mut names: Vec<_> = fs::read_dir(links)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    ensure!(names == [here, NEAR], "{names:?}");
    limiter.close()?;
    bed.close()
}

#[test]
fn an_interface_in_another_namespace_is_said_to_be_limited_there() -> Result<()> {
    require_root();
    let bed = Testbed::create("moved")?;
    second_cable(&bed)?;
    let other = Netns::create("moved-other")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(NEAR).start()?;
    still_drained(&bed, &limiter, FAR, 10)?;
    let elsewhere =
        |all: &[Value]| all.iter().any(|at| at["state"] == "elsewhere" && at["attached"] == true);
    bed.receiver.ip(["link", "set", NEAR, "netns", other.name()])?;
    wait_for(&limiter, "elsewhere", elsewhere)?;
    let report = limiter.ok(["status"])?;
    ensure!(report.contains("limited in another network namespace"), "{report}");
    ensure!(!report.contains("packets pass"), "{report}");
    other.ip(["link", "set", NEAR, "up"])?;
    ensure!(other.link(NEAR)?["xdp"]["prog"]["name"] == "limiter");
    still_drained(&bed, &limiter, FAR, 20)?;
    // No start denies it.
    limiter.kill()?;
    let there = "recv1 is in another network namespace, and still limited there";
    refused(&limiter, &["no interface recv1", there])?;
    other.ip(["link", "set", NEAR, "netns", bed.receiver.name()])?;
    bed.receiver.ip(["link", "set", NEAR, "up"])?;
    limiter.start()?;
    wait_for(&limiter, "adopted", |all| is_on(&all[0], NEAR) && all[0]["adopted"] == true)?;
    bed.receiver.ip(["link", "set", NEAR, "netns", other.name()])?;
    wait_for(&limiter, "elsewhere", elsewhere)?;
    // The interface comes back.
    other.ip(["link", "set", NEAR, "netns", bed.receiver.name()])?;
    bed.receiver.ip(["link", "set", NEAR, "up"])?;
    wait_for(&limiter, "back", |all| all.len() == 1 && is_on(&all[0], NEAR))?;
    limiter.wait_until_logged("recv1 is back, and limited")?;
    // The interface goes again, and another one has its name: both are limited.
    bed.receiver.ip(["link", "set", NEAR, "netns", other.name()])?;
    wait_for(&limiter, "elsewhere", elsewhere)?;
    bed.receiver.ip(["link", "add", NEAR, "type", "veth", "peer", "name", "far2"])?;
    wait_for(&limiter, "both", |all| all.iter().any(|at| is_on(at, NEAR)) && elsewhere(all))?;
    other.ip(["link", "set", NEAR, "up"])?;
    still_drained(&bed, &limiter, FAR, 30)?;
    // A start finds it, and does not deny it.
    limiter.kill()?;
    limiter.start()?;
    limiter.wait_until_logged("is in another network namespace, and still limited there")?;
    bed.receiver.ip(["link", "delete", NEAR])?;
    limiter.kill()?;
    refused(&limiter, &["no interface recv1"])?;
    // Without its interface a link is nothing.
    other.ip(["link", "delete", NEAR])?;
    let detached = limiter.on_pins("detach")?;
    ensure!(detached == "detached\n", "{detached}");
    limiter.close()?;
    bed.close()
}

#[test]
fn the_pin_of_a_deleted_interface_is_no_limit() -> Result<()> {
    require_root();
    let bed = Testbed::create("leftpin")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.options(["--iface", NEAR]).start()?;
    limiter.kill()?;
    bed.receiver.ip(["link", "delete", NEAR])?;
    limiter.without_options().start()?;
    let said = limiter.wait_until_logged("the pin of recv1, which is gone, is removed")?;
    ensure!(!said.contains("still limited"), "{said}");
    ensure!(!limiter.pins().join("links").join(NEAR).exists());
    let detached = limiter.on_pins("detach")?;
    ensure!(detached == "detached from recv0\n", "{detached}");
    limiter.wait_until_ended()?;
    limiter.close()?;
    bed.close()
}
