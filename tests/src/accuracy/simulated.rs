//! The program in the kernel, offered evenly spaced frames in virtual time.
//!
//! Frames above 1 G/s share a nanosecond, which is the grain of the kernel's clock. Nothing in the
//! expectation comes from limiter's arithmetic. Frames are run one by one: a repeated test-run
//! makes the kernel wait for an RCU grace period.

use anyhow::{Context as _, Result, ensure};
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_common::wire::Count;
use limiter_decision::gcra;
use limiter_userspace::rules::{Path, RateLimit, Rule, RuleSet, Selector, compile};

use super::range::{Entry, Multiple};
use crate::packet::Frame;
use crate::program::{MAX_FRAME, Program};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// When the first frame comes: a quarter of an hour after boot.
const START: u64 = 1_000_000_000_000;

/// Virtual time that one measurement may take: 5 of the clock's 9 years.
const LONGEST: u128 = 5 * 365 * 86_400 * NANOS_PER_SECOND;

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 42;

/// Evenly spaced frames: number `i` comes at `i * nanos / frames` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spacing {
    nanos: u128,
    frames: u128,
}

impl Spacing {
    /// A number of frames a second, above zero.
    pub fn per_second(frames: u64) -> Self {
        Self { nanos: NANOS_PER_SECOND, frames: frames.into() }
    }

    /// A multiple of a limit.
    pub fn multiple(entry: &Entry, multiple: Multiple) -> Self {
        let unit = u128::from(entry.limit.period.seconds()) * NANOS_PER_SECOND;
        Self {
            nanos: unit * u128::from(entry.cost()) * 1000,
            frames: u128::from(entry.limit.requests_per_unit) * u128::from(multiple.thousandths()),
        }
    }

    fn at(self, index: u64) -> u128 {
        u128::from(index) * self.nanos / self.frames
    }

    /// Frames that fit into `nanos`.
    fn within(self, nanos: u128) -> u64 {
        u64::try_from(nanos * self.frames / self.nanos).unwrap_or(u64::MAX)
    }

    /// Frames a second.
    #[expect(clippy::cast_precision_loss, reason = "a ratio to be shown")]
    pub fn rate(self) -> f64 {
        self.frames as f64 * NANOS_PER_SECOND as f64 / self.nanos as f64
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Frames to be admitted near the limit, where a wrong rate takes longest to show.
    pub near: u64,
    /// Frames to be admitted at other loads.
    pub far: u64,
    /// Frames at most.
    pub most: u64,
}

impl Effort {
    /// For the published table.
    pub const FULL: Self = Self { near: 20_000, far: 4_000, most: 200_000 };
    /// For tests and a quick look.
    pub const QUICK: Self = Self { near: 6_000, far: 1_000, most: 30_000 };

    fn frames(self, multiple: Multiple) -> u64 {
        let thousandths = u64::from(multiple.thousandths());
        let admitted = if (1_000..=1_100).contains(&thousandths) { self.near } else { self.far };
        (admitted * thousandths / 1000).min(self.most)
    }
}

/// Result of one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Frames offered, after the burst.
    pub offered: u64,
    /// Of those, dropped.
    pub dropped: u64,
    /// Frames delivered a second between the first and the last one that passed.
    pub rate: f64,
}

/// A rule for every source.
pub fn rules(limit: RateLimit) -> RuleSet {
    RuleSet::of([Rule::new(Path::of_source(&Selector::Every), limit)])
}

/// A frame of `length` bytes, at least 42, from a source of its own for each `number`.
pub fn frame(number: u32, length: u64) -> Result<Vec<u8>> {
    let payload = length.checked_sub(HEADERS).context("a frame shorter than its headers")?;
    let source = (0x0a00_0000 | number).to_be_bytes();
    let frame = Frame::ipv4(source, [192, 0, 2, 254]);
    Ok(frame.payload(&vec![0; usize::try_from(payload)?]).build())
}

/// Offers a multiple of the limit that is in force to a source that was not there before, and
/// measures the steady state: a load above the limit starts with an empty bucket.
///
/// # Errors
///
/// When the kernel refuses, or nothing passed.
pub fn load(
    program: &Program,
    entry: &Entry,
    multiple: Multiple,
    effort: Effort,
    source: u32,
) -> Result<Steady> {
    let spacing = Spacing::multiple(entry, multiple);
    let frames = effort.frames(multiple).min(spacing.within(LONGEST));
    let frame = frame(source, entry.frame)?;
    if !multiple.conforms() {
        spend(program, &frame, entry.limit.burst / entry.cost())?;
    }
    offer(program, &frame, spacing, frames)
}

/// Empties a full bucket of `burst` frames in one instant.
///
/// # Errors
///
/// When it is not empty then.
pub fn spend(program: &Program, frame: &[u8], burst: u64) -> Result<()> {
    program.set_time(Ticks::from_nanos(START))?;
    for _ in 0..burst {
        program.run(frame, 1)?;
    }
    let verdict = program.run(frame, 1)?;
    ensure!(verdict == Verdict::Drop, "the bucket holds more than its burst of {burst} frames");
    Ok(())
}

/// Offers `frames` evenly spaced frames.
///
/// # Errors
///
/// When the kernel refuses, or fewer than two instants saw a frame pass.
#[expect(clippy::cast_precision_loss, reason = "a ratio to be shown")]
pub fn offer(program: &Program, frame: &[u8], spacing: Spacing, frames: u64) -> Result<Steady> {
    let mut passed = 0;
    // Admissions are counted after the first instant that had one, so that the rate is theirs over
    // the time between them, whatever the phase.
    let mut since_first = 0u32;
    let mut first = None;
    let mut last = 0;
    let mut now = None;
    for index in 1..=frames {
        let at = spacing.at(index);
        if now != Some(at) {
            program.set_time(Ticks::from_nanos(START + u64::try_from(at)?))?;
            now = Some(at);
        }
        if program.run(frame, 1)? == Verdict::Drop {
            continue;
        }
        passed += 1;
        last = at;
        match first {
            None => first = Some(at),
            Some(first) => since_first += u32::from(at > first),
        }
    }
    let nanos = last - first.unwrap_or(last);
    ensure!(nanos > 0, "{passed} of {frames} frames passed, all at once");
    let rate = f64::from(since_first) * NANOS_PER_SECOND as f64 / nanos as f64;
    Ok(Steady { offered: frames, dropped: frames - passed, rate })
}

/// The frames a second that a limit promises for an offered load.
pub fn promised(entry: &Entry, multiple: Multiple) -> f64 {
    configured(entry) * multiple.factor().min(1.0)
}

/// The configured rate in frames a second.
#[expect(clippy::cast_precision_loss, reason = "a ratio to be shown")]
pub fn configured(entry: &Entry) -> f64 {
    let frames = entry.limit.period.seconds() * entry.cost();
    entry.limit.requests_per_unit as f64 / frames as f64
}

/// The share of the configured rate that limiter gives away by rounding, by its own account.
///
/// # Errors
///
/// When the limit is refused.
#[expect(clippy::cast_precision_loss, reason = "a ratio to be shown")]
pub fn rounding(entry: &Entry) -> Result<f64> {
    let limit = compile::limit(&entry.limit.into(), MAX_FRAME)?;
    let charged = gcra::cost(&limit, entry.cost()).get() as f64;
    Ok(1.0 - exact_ticks(entry) / charged)
}

/// The share that it may give away: one tick a frame, and nothing where a packet's time is a whole
/// number of ticks. Not from limiter's own arithmetic.
pub fn rounding_allowed(entry: &Entry) -> f64 {
    let ticks = 32 * NANOS_PER_SECOND * u128::from(entry.limit.period.seconds());
    let whole = ticks.is_multiple_of(entry.limit.requests_per_unit.into());
    match entry.limit.count {
        Count::Packets if whole => 0.0,
        _ => 1.0 / (exact_ticks(entry) + 1.0),
    }
}

/// The time of a frame in units of 1/32 ns, the grain of a bucket.
fn exact_ticks(entry: &Entry) -> f64 {
    32e9 / configured(entry)
}
