//! Limits of `limiter-cni` that packets wait for, with real packets: what kernels can differs.

// Also on other kernels: 120 s each.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::SEEN_WITHIN;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use serde_json::json;

use crate::cni::{BURST, Container, PASS, Runtime, daemon, limits, wait_for};

/// What a container gets waits where the kernel has `fq`, and none of it is lost that may wait.
/// Otherwise what is over the limit is dropped, and the log of the runtime says so.
#[test]
fn packets_to_a_container_wait_where_they_can() -> Result<()> {
    require_root();
    let bed = Testbed::create("cniwait")?;
    let has_fq = {
        let other = Container::create(&bed, "other", "veth9")?;
        let words = ["qdisc", "add", "dev", "eth0", "root", "fq"];
        other.netns.output(Command::new("tc").args(words))?.status.success()
    };
    let limiter = daemon(&bed)?;
    let runtime = Runtime { bed: &bed, socket: limiter.socket().to_owned() };
    let one = Container::create(&bed, "waits", "veth1")?;
    // 50 frames a second and 30 at once, so that 50 of 80 wait, the last of them for a second.
    let given = json!({
        "runtimeConfig": {"bandwidth": {"ingressRate": 40_000, "ingressBurst": BURST * 8}},
        "delayMs": 1_500,
    });
    let before = received(&one)?;
    let output = runtime.call("ADD", &one, given)?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let begun = Instant::now();
    Container::send((&*bed.receiver, "veth1"), 80)?;
    if has_fq {
        ensure!(!log.contains("cannot wait"), "{log}");
        let all = PASS + 50;
        while received(&one)? < before + all {
            ensure!(begun.elapsed() < SEEN_WITHIN, "{} of {all} came", received(&one)? - before);
            thread::sleep(Duration::from_millis(10));
        }
        // 50 frames at 50 a second, but for the room of a frame.
        let took = begun.elapsed();
        ensure!(took >= Duration::from_millis(980), "all {all} came after {took:?}");
        wait_for(&limiter, "veth1", "out", (all, 0))?;
    } else {
        ensure!(log.contains("packets over it are dropped: packets cannot wait on veth1"), "{log}");
        let (.., dropped) = limits(&limiter)?.pop().context("no limit")?;
        ensure!(dropped > 0, "nothing is dropped");
    }
    limiter.close()?;
    drop(one);
    bed.close()
}

/// Packets that the container's end of its cable has received.
fn received(container: &Container) -> Result<u64> {
    let link = container.netns.link("eth0")?;
    link["stats64"]["rx"]["packets"].as_u64().with_context(|| link.to_string())
}
