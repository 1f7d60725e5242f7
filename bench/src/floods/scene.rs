//! One tool under one flood after the other.
//!
//! CPU 0 sends: one generator for the flood and the conforming packets, which come amid it. CPU 1
//! receives, in the NAPI thread of the receiving end. Both share a queue of 256 frames, as they
//! would share the ring of a card: where the receiver is too slow, frames of everybody are lost
//! before any rule sees them.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::rate;
use limiter_tests::interrupt::Interrupt;
use limiter_tests::live_frames::cable::{SENDING, measured, send};
use limiter_tests::live_frames::{self, Family, Load, Place, Sent, Sources, napi};
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

use super::contender::{Contender, Tool};
use super::effort::{Effort, Rate};
use super::tally::{self, Counts};
use super::traffic::Class;

const SENDING_CPU: usize = 0;
const RECEIVING_CPU: usize = 1;

/// How long sources need to become known, without a flood: each sends three packets.
const KNOWN: Duration = Duration::from_secs(3);

/// Before the first step with a flood, so many packets for each entry fill the table.
const FILL: u32 = 4;
const FILL_PER_SECOND: u32 = 100_000;

/// One step of one round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Rate of the flood that was asked for.
    pub rate: Rate,
    /// Packets that were sent: the flood, and the conforming ones by [`Class::index`].
    pub flood: Sent,
    /// Packets that came through.
    pub arrived: Counts,
    /// Frames, of whomever, for which the queue had no room.
    pub lost: u64,
}

impl Sample {
    /// Flood packets offered a second.
    pub fn offered(&self) -> f64 {
        rate(self.flood.frames, self.flood.nanos)
    }

    /// Flood packets passed a second.
    pub fn passed(&self) -> f64 {
        rate(self.arrived.flood, self.flood.nanos)
    }

    /// Flood packets that a rule dropped, at least: what was lost is counted as if it were all of
    /// the flood.
    pub fn dropped(&self) -> u64 {
        self.flood.frames.saturating_sub(self.arrived.flood + self.lost)
    }

    /// The share of the flood that passed; none without a flood.
    pub fn passed_share(&self) -> Option<f64> {
        share(self.arrived.flood, self.flood.frames)
    }

    /// The share of all frames that the queue had no room for.
    pub fn lost_share(&self) -> Option<f64> {
        share(self.lost, self.flood.frames + self.flood.regular.iter().sum::<u64>())
    }

    /// The share of some classes that arrived.
    pub fn arrived_share(&self, classes: &[Class]) -> Option<f64> {
        let sum = |of: &[u64; Class::COUNT]| classes.iter().map(|class| of[class.index()]).sum();
        share(sum(&self.arrived.classes), sum(&self.flood.regular))
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far under 2^52")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// One tool in one round.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// Tool of the ladder.
    pub tool: Tool,
    /// The rule as it is listed.
    pub listed: String,
    /// Samples, one for each step.
    pub samples: Vec<Sample>,
}

/// Runs one tool through all rates.
///
/// # Errors
///
/// When the tool cannot be installed, the machine has one CPU, or on Ctrl-C.
pub fn run(tool: Tool, entries: u32, effort: &Effort, interrupt: &Interrupt) -> Result<Ladder> {
    let there = thread::available_parallelism()?.get();
    ensure!(there > RECEIVING_CPU, "this needs two CPUs: one sends, one receives");
    let bed = Testbed::create("floods")?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    tally::start(&bed.receiver)?;
    let contender = Contender::install(tool, &bed, entries)?;
    napi::on_cpu(&bed.receiver, RECEIVER.interface, RECEIVING_CPU)?;
    // A new NAPI: its carrier was away for a moment.
    thread::sleep(Duration::from_millis(500));
    let mut first = 0;
    let mut samples = Vec::new();
    for (&rate, number) in effort.rates.iter().zip(0u8..) {
        ensure!(!interrupt.is_set(), "interrupted, no result");
        if rate != Rate::None && first == 0 {
            first = fill(&bed, entries)?;
        }
        let time = if rate == Rate::None { effort.step.max(KNOWN) } else { effort.step };
        let sample = step(&bed, rate, first, number, time)
            .with_context(|| format!("{}, {rate:?}", tool.name()))?;
        first += u32::try_from(sample.flood.frames)?;
        samples.push(sample);
    }
    contender.check_full(&bed.receiver, entries, &samples)?;
    let listed = contender.listed.clone();
    contender.close()?;
    bed.close()?;
    Ok(Ladder { tool, listed, samples })
}

fn load(first: u32, per_second: Option<u32>) -> Load {
    Load {
        sources: Sources::New(first),
        family: Family::V4,
        length: 60,
        per_second,
        frames: 0,
        duration: Duration::ZERO,
        regular: Vec::new(),
        place: Some(Place { cpu: SENDING_CPU, priority: SENDING }),
    }
}

/// Fills the table; returns how many sources that took.
fn fill(bed: &Testbed, entries: u32) -> Result<u32> {
    let frames = FILL * entries;
    let duration = Duration::from_secs(u64::from(frames / FILL_PER_SECOND) + 5);
    let frames = u64::from(frames);
    let load = Load { frames, duration, ..load(0, Some(FILL_PER_SECOND)) };
    let sent = send(bed, &load)?;
    ensure!(sent.frames == frames, "{} of {frames} sent in {duration:?}", sent.frames);
    Ok(u32::try_from(frames)?)
}

/// Sends everything; the link must have seen all that the generator says it sent.
fn step(bed: &Testbed, rate: Rate, first: u32, number: u8, time: Duration) -> Result<Sample> {
    let before = tally::read(&bed.receiver)?;
    let (per_second, all) = match rate {
        Rate::None => (None, 0),
        Rate::PerSecond(per_second) | Rate::Again(per_second, _) => (Some(per_second), u64::MAX),
        Rate::Fastest => (None, u64::MAX),
    };
    let new = Family::V4.sources() - u64::from(first);
    let regular = Class::ALL.map(|class| class.regular(number)).to_vec();
    let sources = match rate {
        Rate::Again(per_second, times) => Sources::Again { first, block: per_second / 10, times },
        Rate::None | Rate::PerSecond(_) | Rate::Fastest => Sources::New(first),
    };
    let load = load(first, per_second);
    let load = Load { sources, regular, duration: time, frames: new.min(all), ..load };
    let (flood, link) = measured(bed, || send(bed, &load))?;
    let arrived = tally::read(&bed.receiver)?.since(&before);
    let lost = link.lost;
    Ok(Sample { rate, flood, arrived, lost })
}
