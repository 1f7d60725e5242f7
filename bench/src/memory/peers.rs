//! The memory that a source takes in hashlimit and in a dynamic set of nft: the machine's memory
//! before and after so many sent a packet each.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::live_frames::{self, Family, LiveFrames, Load, Sources};
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use super::kernel;
use crate::floods::contender::{Contender, Tool};
use crate::floods::tally;

/// Slow enough that the receiver takes them all, and all are sent before the first entry expires.
const PER_SECOND: u32 = 100_000;

const WITHIN: Duration = Duration::from_secs(5);

/// Of a tool with so many sources: bytes for each.
pub(super) fn bytes(tool: Tool, sources: u32) -> Result<f64> {
    let bed = Testbed::create("memory")?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    tally::start(&bed.receiver)?;
    let before = kernel::settled()?;
    // With room for all of them: the buckets of the hash are a part of what they take.
    let contender = Contender::install(tool, &bed, sources)?;
    let load = Load {
        sources: Sources::New(0),
        family: Family::V4,
        length: 60,
        per_second: Some(PER_SECOND),
        frames: sources.into(),
        duration: Duration::from_mins(1),
        regular: Vec::new(),
        place: None,
    };
    let sent = LiveFrames::start(&bed.sender, SENDER.interface, &load)?.finish()?;
    ensure!(sent.frames == u64::from(sources), "{} of {sources} frames were sent", sent.frames);
    let deadline = Instant::now() + WITHIN;
    // Each was let through, so each has an entry: none is over its limit.
    loop {
        let passed = tally::read(&bed.receiver)?.flood;
        if passed == u64::from(sources) {
            break;
        }
        ensure!(Instant::now() < deadline, "{passed} of {sources} sources came through");
        thread::sleep(Duration::from_millis(10));
    }
    let after = kernel::used()?;
    check_held(tool, &bed, sources)?;
    contender.close()?;
    bed.close()?;
    Ok(f64::from(u32::try_from(after.saturating_sub(before))?) / f64::from(sources))
}

/// Fails unless the tool reports its entries.
fn check_held(tool: Tool, bed: &Testbed, sources: u32) -> Result<()> {
    if tool == Tool::Nft {
        // To list them all takes it minutes.
        for number in [0, sources / 2, sources - 1] {
            let element = format!("{{ {} }}", Family::V4.source(number));
            let words = ["get", "element", "netdev", "floods", "sources", &element];
            bed.receiver.run("nft", words)?;
        }
        return Ok(());
    }
    let path = "/proc/thread-self/net/ipt_hashlimit/floods";
    let text = bed.receiver.enter(|| fs::read_to_string(path))?;
    let held = text.with_context(|| format!("cannot read {path}"))?.lines().count();
    ensure!(held == usize::try_from(sources)?, "hashlimit holds {held} of {sources}");
    Ok(())
}
