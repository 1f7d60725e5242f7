//! Under traffic: the start of the daemon up to the first packet that is limited, and a large rule
//! set put in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_common::verdict::Reason;
use limiter_tests::live_frames::{self, LiveFrames, Load, Place, Sources};
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use super::rules::{self, Shape};
use super::under_way::Judged;
use crate::crowd::load;
use crate::spread::Spread;

/// Packets a second while the daemon starts: one each 50 µs.
const BEFORE_START: u32 = 20_000;

/// Packets a second while rules are put in force, and of how many sources.
const MEANWHILE: u32 = 200_000;
const SENDERS: u32 = 10_000;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(1);

const PATIENCE: Duration = Duration::from_mins(1);

/// Everybody is over it from the second packet on.
const EVERY: &str = "  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 1}}\n";

/// Seconds from the start of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub(super) rules: u32,
    /// To the first packet that was over its limit.
    pub(super) limited: Spread,
    /// To the word that it is ready.
    pub(super) ready: Spread,
}

/// Starts the daemon with so many rules, amid traffic.
pub(super) fn start(rules: u32, rounds: usize) -> Result<Started> {
    let bed = Testbed::create("begin")?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    let text = match rules {
        1 => format!("descriptors:\n{EVERY}"),
        _ => format!("{}{EVERY}", rules::file(Shape::Sources, rules - 1, 5)),
    };
    let load = Load { place: PLACE, ..load(Sources::One, u64::MAX, Some(BEFORE_START)) };
    let mut generator = LiveFrames::start(&bed.sender, SENDER.interface, &load)?;
    let (mut firsts, mut ready) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut limiter = bed.limiter(&text)?;
        limiter.options(["--max-rules", "262144"]);
        let pins = limiter.pins().to_owned();
        let began = Instant::now();
        let first = thread::scope(|scope| {
            let watching = scope.spawn(|| first_limited(&pins, began));
            limiter.start()?;
            ready.push(began.elapsed().as_secs_f64());
            watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        firsts.push(first);
        limiter.close()?;
    }
    generator.stop();
    generator.finish()?;
    bed.close()?;
    let spread = |values: Vec<f64>| Spread::of(values).context("no rounds");
    Ok(Started { rules, limited: spread(firsts)?, ready: spread(ready)? })
}

fn first_limited(pins: &std::path::Path, began: Instant) -> Result<f64> {
    let mut judged = None;
    loop {
        ensure!(began.elapsed() < PATIENCE, "no packet was limited within {PATIENCE:?}");
        match &judged {
            None => judged = Judged::open(pins),
            Some(judged) if Judged::packets(judged, Reason::OverLimit)? > 0 => {
                return Ok(began.elapsed().as_secs_f64());
            }
            Some(_) => {}
        }
        thread::sleep(LOOK);
    }
}

/// The generator goes on whatever else there is to do.
const PLACE: Option<Place> = Some(Place { cpu: 0, priority: 1 });

/// Rules put in force while packets come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied {
    /// Seconds from the command line to active.
    pub(super) seconds: Spread,
    /// The longest time without a packet judged, in milliseconds.
    pub(super) gap: Spread,
    /// The gap in as long a time in which nothing else was done: the generator waits for the CPU,
    /// too.
    pub(super) quiet: Spread,
    /// Packets that were sent meanwhile, each of which was judged.
    pub(super) packets: u64,
}

/// Puts large rule sets in force while packets come. None may be left without a verdict.
pub(super) fn apply(limits: u32, rounds: usize) -> Result<Applied> {
    let bed = Testbed::create("meanwhile")?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    let mut limiter = bed.limiter(&format!("descriptors:\n{EVERY}"))?;
    limiter.options(["--max-rules", "262144"]).start()?;
    let files = [5, 7].map(|rate| format!("{}{EVERY}", rules::file(Shape::Sources, limits, rate)));
    let judged = Judged::open(limiter.pins()).context("the daemon has pinned no maps")?;
    let before = judged.all()?;
    let load = Load { place: PLACE, ..load(Sources::Uniform(SENDERS), u64::MAX, Some(MEANWHILE)) };
    let mut generator = LiveFrames::start(&bed.sender, SENDER.interface, &load)?;
    let (mut seconds, mut gaps, mut quiet) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let text = files.get(round % files.len()).context("no rules")?;
        let file = bed.dir.write("meanwhile.yaml", text)?;
        let apply = || limiter.ok(["apply", &file.to_string_lossy()]).map(drop);
        let (time, gap) = watched(&judged, apply)?;
        seconds.push(time);
        gaps.push(gap * 1e3);
        let wait = || {
            thread::sleep(Duration::from_secs_f64(time));
            Ok(())
        };
        quiet.push(watched(&judged, wait)?.1 * 1e3);
    }
    generator.stop();
    let sent = generator.finish()?.frames;
    let lost = bed.lost_on_link()?;
    let seen = judged.all()? - before;
    ensure!(seen + lost == sent, "{sent} packets were sent: {seen} judged, {lost} lost on the way");
    limiter.close()?;
    bed.close()?;
    let spread = |values: Vec<f64>| Spread::of(values).context("no rounds");
    let [seconds, gap, quiet] = [spread(seconds)?, spread(gaps)?, spread(quiet)?];
    Ok(Applied { seconds, gap, quiet, packets: seen })
}

/// Seconds that something took, and the longest without a packet meanwhile.
fn watched(judged: &Judged, work: impl FnOnce() -> Result<()>) -> Result<(f64, f64)> {
    let over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let stop = Arc::<AtomicBool>::clone(&over);
        let watching = scope.spawn(move || -> Result<f64> {
            // Not later than the generator, or it would be its own waiting that it sees.
            limiter_tests::cpu::real_time(None, 2)?;
            let (mut last, mut since, mut longest) = (judged.all()?, Instant::now(), 0.0_f64);
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
                let now = judged.all()?;
                longest = longest.max(since.elapsed().as_secs_f64());
                if now != last {
                    (last, since) = (now, Instant::now());
                }
            }
            Ok(longest)
        });
        let began = Instant::now();
        let done = work();
        let seconds = began.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        let gap = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        done?;
        Ok((seconds, gap))
    })
}
