//! The line table in the kernel, hammered by all CPUs.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use limiter_common::source::Source;
use limiter_datapath::SourceTable;
use limiter_tests::cpu;
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::subject::Subject;
use limiter_tests::walk::{Order, Walk};

/// The first source: 11.0.0.0.
const FIRST: u32 = 0x0b00_0000;

const ROOM: u32 = 6;

/// Packets a second of each source, and half of it after every second change.
const RATE: u64 = 50_000;
const BURST: u64 = 3;

/// Offset of the source in an untagged IPv4 frame.
const SOURCE_AT: u32 = 26;

#[derive(Clone, Debug)]
struct Hammered {
    /// Packets that passed, by the number of their source.
    passed: Vec<u64>,
    /// The most that one source may have passed.
    bound: u64,
    /// Sources in the lines, sorted.
    there: Vec<Source>,
    changes: u64,
}

fn packets() -> u32 {
    let divisor = std::env::var("LIMITER_SHORTER").ok().and_then(|text| text.parse::<u32>().ok());
    2_000_000 / divisor.unwrap_or(1)
}

/// Sources that share two lines, with room for 14: they push each other out as soon as they have
/// drained. None passes more than its limit, and none has two entries.
#[test]
fn no_source_passes_more_than_its_limit_on_all_cpus() -> Result<()> {
    require_root();
    for sources in [8, 24, 64] {
        check(sources, false)?;
    }
    Ok(())
}

/// Sources pass no more than their limits while these change all the time.
#[test]
fn no_source_passes_more_than_its_limit_while_rules_change() -> Result<()> {
    require_root();
    for sources in [8, 24] {
        check(sources, true)?;
    }
    Ok(())
}

fn check(sources: u32, changing: bool) -> Result<()> {
    let seen = hammer(sources, packets(), changing)?;
    // Sources that are never drained when another one comes keep their ways for all the time, so
    // one that is late may get none. But ways change hands, or there is nothing to see here.
    let served = seen.passed.iter().filter(|passed| **passed > 0).count();
    ensure!(served > 14 || served == 8 && sources == 8, "{served} of {sources} passed: {seen:?}");
    for (number, passed) in seen.passed.iter().enumerate() {
        ensure!(*passed <= seen.bound, "source {number} of {sources}: {seen:?}");
    }
    let mut distinct = seen.there.clone();
    distinct.dedup();
    ensure!(distinct == seen.there, "a source has two entries: {seen:?}");
    ensure!(seen.there.len() == 14 || sources == 8, "the lines were not full: {seen:?}");
    ensure!(!changing || seen.changes > 2, "the rules did not change: {seen:?}");
    Ok(())
}

/// Every CPU sends from the same sources through limiter as it is shipped, into two lines, by the
/// kernel's clock. Sources come and go all the time: their limit drains within microseconds. With
/// `changing`, so do the rules.
fn hammer(sources: u32, packets: u32, changing: bool) -> Result<Hammered> {
    let mut limiter = Subject::load_in(SourceTable::Lines, ROOM, 64, 512)?;
    limiter.apply(&rules(sources, RATE))?;
    limiter.open_doors(true)?;
    limiter.spare_nobody()?;
    let mut walk = Walk::load()?;
    walk.call(limiter.fd())?;
    walk.set(SOURCE_AT, (FIRST, sources), Order::Random)?;
    let frame = Frame::ipv4([11, 0, 0, 1], [192, 0, 2, 1]).build();
    let cpus = thread::available_parallelism()?.get();
    let begin = Instant::now();
    let mut changes = 0;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus)
            .map(|cpu| {
                let (walk, frame) = (&walk, &frame);
                scope.spawn(move || {
                    cpu::pin(None, cpu)?;
                    walk.run(frame, packets).map(drop)
                })
            })
            .collect();
        while changing && threads.iter().any(|thread| !thread.is_finished()) {
            changes += 1;
            limiter.apply(&rules(sources, RATE >> (changes % 2)))?;
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread of the hammer panicked"),
        })
    })?;
    let nanos = u64::try_from(begin.elapsed().as_nanos())?;
    let bound = BURST + nanos / (1_000_000_000 / RATE) + 1;
    let passed =
        (0..sources).map(|number| limiter.passed(address(number))).collect::<Result<_>>()?;
    ensure!(limiter.locked_lines()? == 0, "a line was left locked");
    let mut there = limiter.sources()?;
    there.sort_unstable();
    Ok(Hammered { passed, bound, there, changes })
}

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST + number)
}

/// A rule for each source, so that what it passes is counted when its entry is not there any more.
/// A source without room passes nothing.
fn rules(sources: u32, rate: u64) -> String {
    let mut text = "descriptors:\n".to_owned();
    for number in 0..sources {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  - {{key: remote_address, value: {}, on_full: drop, rate_limit: \
             {{unit: second, requests_per_unit: {rate}, burst: {BURST}}}}}",
            address(number)
        );
    }
    text
}
