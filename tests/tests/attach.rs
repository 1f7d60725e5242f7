//! The places and ways of attaching, and the programs that limiter refuses to replace.

// Also on other kernels: 120 s each.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::foreign::pin_pass_program;
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::sandbox::attached_mode;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;
use serde_json::Value;

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 8}}\n";

/// `limiter run` must end with exit code 2 and one error that has all of `words`.
fn refused(limiter: &Limiter, words: &[&str]) -> Result<()> {
    let output = limiter.run_to_end()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "exit code {:?}: {said}", output.status.code());
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("limiter: ")).collect();
    ensure!(errors.len() == 1, "not one error: {said}");
    for word in words {
        ensure!(errors[0].contains(word), "the error does not name {word:?}: {said}");
    }
    ensure!(!limiter.pins().exists(), "a refused start left {}", limiter.pins().display());
    Ok(())
}

fn program_id(xdp: &Value) -> Option<u64> {
    xdp.pointer("/prog/id").and_then(Value::as_u64)
}

#[test]
fn native_mode_is_what_the_kernel_shows() -> Result<()> {
    require_root();
    let bed = Testbed::create("native")?;
    let mut limiter = bed.limiter(RULES)?;
    ensure!(limiter.xdp()?.is_null(), "there is a program before the start");
    let ready = limiter.start()?;
    ensure!(ready.contains(&format!("{} native", RECEIVER.interface)), "{ready}");
    let xdp = limiter.xdp()?;
    ensure!(attached_mode(&xdp) == "native", "{xdp}");
    let shown = bed.receiver.ip(["link", "show", "dev", RECEIVER.interface])?;
    ensure!(shown.contains(" xdp ") && !shown.contains("xdpgeneric"), "{shown}");
    let status = limiter.json(&["status"])?;
    let interface = &status["interfaces"][0];
    ensure!(interface["name"] == RECEIVER.interface && interface["mode"] == "native", "{status}");
    ensure!(interface["program_id"].as_u64() == program_id(&xdp), "{status}, but {xdp}");
    limiter.close()?;
    bed.close()
}

#[test]
fn generic_mode_only_when_asked_for() -> Result<()> {
    require_root();
    let bed = Testbed::create("generic")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.on("lo");
    refused(&limiter, &["lo", "generic"])?;
    ensure!(limiter.xdp()?.is_null(), "a refused start left a program");

    limiter.options(["--mode", "generic"]);
    let ready = limiter.start()?;
    ensure!(ready.contains("lo generic"), "{ready}");
    ensure!(attached_mode(&limiter.xdp()?) == "generic", "{}", limiter.xdp()?);
    ensure!(limiter.json(&["status"])?["interfaces"][0]["mode"] == "generic");
    // Requests and answers both arrive at the loopback, from the same source: eight packets are
    // four pings.
    let mut ping = Command::new("ping");
    ping.args(["-n", "-q", "-c", "12", "-i", "0.01", "-W", "1", "127.0.0.1"]);
    let said = String::from_utf8(bed.receiver.output(&mut ping)?.stdout)?;
    ensure!(said.contains("12 packets transmitted, 4 received"), "{said}");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_foreign_program_is_named_and_not_replaced() -> Result<()> {
    require_root();
    let bed = Testbed::create("foreign")?;
    let pin = bed.bpffs.path().join("foreign");
    pin_pass_program(&pin)?;
    let path = pin.to_str().context("the path is not UTF-8")?;
    bed.receiver.ip(["link", "set", "dev", RECEIVER.interface, "xdp", "pinned", path])?;
    let limiter = bed.limiter(RULES)?;
    let id = program_id(&limiter.xdp()?).context("the foreign program is not attached")?;
    refused(&limiter, &[RECEIVER.interface, &id.to_string(), "xdp off"])?;
    ensure!(program_id(&limiter.xdp()?) == Some(id), "the foreign program was replaced");
    bed.receiver.ip(["link", "set", "dev", RECEIVER.interface, "xdp", "off"])?;
    limiter.close()?;
    bed.close()
}

#[test]
fn another_limiter_is_not_replaced() -> Result<()> {
    require_root();
    let bed = Testbed::create("two")?;
    let mut first = bed.limiter(RULES)?;
    first.start()?;
    let id = program_id(&first.xdp()?).context("no program")?;
    let mut second = bed.limiter(RULES)?;
    second.apart("second");
    refused(&second, &[RECEIVER.interface, &id.to_string(), "limiter detach --pin-dir"])?;
    ensure!(program_id(&first.xdp()?) == Some(id), "the first program was replaced");
    ensure!(first.json(&["status"]).is_ok(), "the first daemon does not answer any more");
    second.close()?;
    first.close()?;
    bed.close()
}

#[test]
fn an_interface_that_does_not_exist_is_named() -> Result<()> {
    require_root();
    let bed = Testbed::create("nosuch")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.on("nosuch0");
    refused(&limiter, &["nosuch0"])?;
    limiter.close()?;
    bed.close()
}
