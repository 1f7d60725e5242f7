//! Limits at tc with real packets: what goes out, what comes in behind XDP, and both together.

use std::process::Command;

use anyhow::{Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::SENDER;

/// A quota of ten packets for the sender, which no time refills.
fn quota(direction: &str) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: protocol\n    value: icmp\n    direction: {direction}\n    \
         descriptors:\n      - key: remote_address\n        \
         rate_limit: {{rate: 10/week, algorithm: fixed_window}}\n"
    )
}

/// Pings the sender from the machine with limits, 40 times, and says how many answers came.
fn answers(bed: &Testbed) -> Result<usize> {
    let target = SENDER.ipv4.to_string();
    let output = bed
        .receiver
        .output(Command::new("ping").args(["-n", "-c", "40", "-i", "0.01", "-W", "1", &target]))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.matches("bytes from").count())
}

fn limited(bed: &Testbed, rules: &str, options: [&str; 2]) -> Result<Limiter> {
    let mut limiter = bed.limiter(rules)?;
    limiter.options(options);
    limiter.start()?;
    Ok(limiter)
}

#[test]
fn what_goes_out_is_limited_and_what_comes_in_is_not() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcout")?;
    let mut limiter = limited(&bed, &quota("out"), ["--direction", "out"])?;
    ensure!(answers(&bed)? == 10, "ten requests go out, and are answered");
    // A restart adopts the link and the bucket.
    limiter.terminate()?;
    limiter.start()?;
    ensure!(answers(&bed)? == 0, "the quota is used up");
    let status = limiter.ok(["status"])?;
    ensure!(status.contains("tc out"), "{status}");
    // With the daemon dead the program goes on.
    limiter.kill()?;
    ensure!(answers(&bed)? == 0, "the program does not need the daemon");
    limiter.on_pins("detach")?;
    ensure!(answers(&bed)? == 40, "nothing limits after `detach`");
    limiter.close()?;
    bed.close()
}

#[test]
fn what_comes_in_is_limited_at_tc() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcin")?;
    let limiter = limited(&bed, &quota("in"), ["--hook", "tc"])?;
    ensure!(answers(&bed)? == 10, "ten answers come in");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_rule_for_both_directions_has_one_bucket() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcboth")?;
    let limiter = limited(&bed, &quota("both"), ["--direction", "both"])?;
    ensure!(answers(&bed)? == 5, "five requests and five answers are ten packets");
    limiter.close()?;
    bed.close()
}
