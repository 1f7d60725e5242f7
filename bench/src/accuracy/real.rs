//! Real packets through real rules: each load from a source of its own over a virtual cable, and
//! what an exact token bucket makes of the same packets at the same times.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_common::wire::Count;
use limiter_tests::accuracy::range::Multiple;
use limiter_tests::interrupt::Interrupt;
use limiter_tests::limiter::Limiter;
use limiter_tests::oracle::{Limit, Oracle};
use limiter_tests::packet::Frame;
use limiter_tests::sandbox::format;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use super::contender::{Contender, Tool};
use super::pacer::{self, Load, Sent};
use super::peers;
use super::sink::Sink;

/// Frames a second that the pacer is asked for at most.
const FASTEST: f64 = 150_000.0;

/// A load that came out slower than this share of what was asked is measured again, and the best of
/// all tries counts.
const ON_TIME: f64 = 0.98;

/// The share that the best try must have.
const LATE: f64 = 0.9;

const TRIES: u32 = 5;

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u32 = 42;

/// The first part of a load, one in this many frames, is not yet the steady state.
const LEAD_IN: usize = 10;

/// How long to send.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Frames that the limit would pass in a measurement.
    pub admitted: f64,
    /// Seconds at least.
    pub least: f64,
    /// Seconds at most.
    pub most: f64,
}

impl Effort {
    /// For the published table.
    pub const FULL: Self = Self { admitted: 2_000.0, least: 1.5, most: 4.0 };
    /// For a quick look.
    pub const QUICK: Self = Self { admitted: 300.0, least: 0.3, most: 0.6 };
}

/// The steady state of one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The load.
    pub multiple: Multiple,
    /// Frames sent.
    pub sent: u64,
    /// Frames that arrived behind the rule.
    pub delivered: u64,
    /// Frames that an exact token bucket passes of the ones sent.
    pub exact: u64,
    /// Seconds that they were sent in.
    pub seconds: f64,
}

impl Cell {
    /// Frames offered a second.
    pub fn offered(&self) -> f64 {
        rate(self.sent, self.seconds)
    }

    /// Frames delivered a second.
    pub fn rate(&self) -> f64 {
        rate(self.delivered, self.seconds)
    }

    /// Delivered against exact, in percent.
    pub fn error(&self) -> f64 {
        format::error_percent(self.delivered, self.exact)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far under 2^52")]
fn rate(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// One rule under every load that can be sent.
#[derive(Clone, Debug)]
pub struct Row {
    /// The rule.
    pub contender: Contender,
    /// The rule as its tool lists it; empty for ours.
    pub listed: String,
    /// Loads that were measured.
    pub cells: Vec<Cell>,
    /// Loads that were not measured, and why.
    pub missing: Vec<(Multiple, String)>,
}

impl Row {
    /// The cell with the error furthest from zero.
    pub fn worst(&self) -> Option<&Cell> {
        self.cells.iter().max_by(|a, b| a.error().abs().total_cmp(&b.error().abs()))
    }
}

/// Measures one rule. `multiples` are the loads to try.
///
/// # Errors
///
/// When the rule cannot be installed, or on Ctrl-C.
pub fn measure(
    contender: &Contender,
    multiples: &[Multiple],
    effort: Effort,
    interrupt: &Interrupt,
) -> Result<Row> {
    let bed = Testbed::create("accuracy")?;
    let mut limiter = None;
    if contender.tool == Tool::Limiter {
        let mut started = bed.limiter(&rules(contender))?;
        started.start()?;
        limiter = Some(started);
    }
    let mut row = Row {
        contender: *contender,
        listed: String::new(),
        cells: Vec::new(),
        missing: Vec::new(),
    };
    let mut host = 0u8;
    for &multiple in multiples {
        if contender.frames_per_second() * multiple.factor() > FASTEST {
            let why = "more than the generator sends on one CPU".to_owned();
            row.missing.push((multiple, why));
            continue;
        }
        let asked = contender.frames_per_second() * multiple.factor();
        let mut best: Option<Cell> = None;
        let mut why = String::new();
        for _ in 0..TRIES {
            ensure!(!interrupt.is_set(), "interrupted, no result");
            host += 1;
            row.listed = peers::install(contender, &bed.receiver)?;
            match cell(contender, multiple, effort, &bed, host) {
                Ok(cell) if best.as_ref().is_none_or(|best| best.offered() < cell.offered()) => {
                    best = Some(cell);
                }
                Ok(_) => {}
                Err(error) => why = format!("{error:#}"),
            }
            if best.as_ref().is_some_and(|best| best.offered() >= asked * on_time(multiple)) {
                break;
            }
        }
        match best {
            Some(cell) if cell.offered() >= asked * late(multiple) => row.cells.push(cell),
            Some(cell) => {
                let reached = cell.offered();
                why = format!(
                    "the machine was busy, and {reached:.0} of {asked:.0} frames a second were sent"
                );
                row.missing.push((multiple, why));
            }
            None => row.missing.push((multiple, why)),
        }
    }
    limiter.map_or(Ok(()), Limiter::close)?;
    bed.close()?;
    Ok(row)
}

/// The share of what was asked that needs no second try.
fn on_time(multiple: Multiple) -> f64 {
    late(multiple).max(ON_TIME)
}

/// The least share: a load above the limit must stay above it.
fn late(multiple: Multiple) -> f64 {
    if multiple.conforms() {
        return LATE;
    }
    let margin = if multiple.is_near() { 1.0005 } else { 1.03 };
    (margin / multiple.factor()).max(LATE)
}

fn rules(contender: &Contender) -> String {
    let count = match contender.count {
        Count::Packets | Count::Syns | Count::Flows => "packets",
        Count::Bytes => "bytes",
    };
    let Contender { per_second, burst, .. } = contender;
    format!(
        "domain: accuracy\ndescriptors:\n  - key: remote_address\n    rate_limit: \
         {{unit: second, requests_per_unit: {per_second}, count: {count}, burst: {burst}}}\n"
    )
}

/// One load from a source that was not there before.
fn cell(
    contender: &Contender,
    multiple: Multiple,
    effort: Effort,
    bed: &Testbed,
    host: u8,
) -> Result<Cell> {
    let per_second = contender.frames_per_second() * multiple.factor();
    let seconds =
        (effort.admitted / contender.frames_per_second()).clamp(effort.least, effort.most);
    let payload = contender.frame.checked_sub(HEADERS).context("a frame of headers only")?;
    let frame = Frame::ipv4([203, 0, 113, host], RECEIVER.ipv4.octets());
    let load = Load {
        frame: frame.payload(&vec![0; usize::try_from(payload)?]).build(),
        spent: if multiple.conforms() { 0 } else { contender.spent() },
        per_second,
        duration: Duration::from_secs_f64(seconds),
    };
    let lost_before = bed.lost_on_link()?;
    let sink = Sink::start(&bed.receiver)?;
    let sent = pacer::send(&bed.sender, SENDER.interface, &load)?;
    let numbers = sink.finish()?;
    let lost = bed.lost_on_link()? - lost_before;
    ensure!(lost == 0, "{lost} frames were lost on the link");
    steady(contender, multiple, &sent, &numbers)
}

/// Cuts off the lead-in and lets the exact token bucket judge what was sent.
fn steady(contender: &Contender, multiple: Multiple, sent: &Sent, numbers: &[u64]) -> Result<Cell> {
    let skip = sent.times.len() / LEAD_IN;
    let (first, last) = sent.times.get(skip).zip(sent.times.last()).context("nothing was sent")?;
    let seconds = Duration::from_nanos(last - first).as_secs_f64();
    let arrived: HashSet<u64> = numbers.iter().copied().collect();
    let limit = Limit::per_second(contender.per_second.into(), contender.burst);
    let mut oracle = Oracle::new(&limit, contender.cost())?;
    for &time in &sent.spent {
        oracle.offer(time)?;
    }
    let mut cell = Cell { multiple, sent: 0, delivered: 0, exact: 0, seconds };
    for (number, &time) in (0u64..).zip(&sent.times) {
        let passes = oracle.offer(time)?;
        if number >= u64::try_from(skip)? {
            cell.sent += 1;
            cell.exact += u64::from(passes);
            cell.delivered += u64::from(arrived.contains(&number));
        }
    }
    Ok(cell)
}
