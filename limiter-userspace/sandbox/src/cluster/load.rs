//! Nodes under the load of one source, for tests: every window of a run must hold the bound.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::bound::{Bound, Span};
use super::nodes::{CONTACT_WITHIN, Nodes};
use super::traffic::{Arrivals, Source};
use super::{LIMIT, SHARES, UNIT_LIVES, rules};
use crate::clock;
use crate::limiter::binary;
use crate::root::require_root;

const SECOND: u64 = 1_000_000_000;

/// Three times the limit.
pub const OVER: u64 = 3000;

/// Share of one node of three, rounded up.
pub const SHARE: Bound = Bound { rate: SHARES.rate.div_ceil(3), burst: SHARES.burst.div_ceil(3) };

/// Nodes under load. Expectations about parts of the run are judged at its end.
#[derive(Debug)]
pub struct Load {
    /// The nodes.
    pub nodes: Nodes,
    /// The source, which sends [`OVER`] at first.
    pub source: Source,
    arrivals: Arrivals,
    spans: Vec<Span>,
    expected: Vec<(&'static str, Span, u64, u64)>,
}

impl Load {
    /// Starts the source; some or all daemons already run.
    ///
    /// # Errors
    ///
    /// When a socket cannot be opened.
    pub fn start(nodes: Nodes) -> Result<Self> {
        let arrivals = Arrivals::start(nodes.receiver())?;
        let source = Source::start(nodes.sender())?;
        let mut load = Self { nodes, source, arrivals, spans: Vec::new(), expected: Vec::new() };
        load.on_top(0, 0);
        load.source.send(OVER);
        Ok(load)
    }

    /// Allows this much on top of the bound from now on.
    pub fn on_top(&mut self, rate: u64, burst: u64) {
        let now = clock::now();
        if let Some(last) = self.spans.last_mut() {
            last.to = now;
        }
        self.spans.push(Span { from: now, to: now, rate, burst });
    }

    /// Lets the load go on for `millis`. In that time at least `least` packets a second must
    /// arrive, and at most `most`.
    pub fn expect(&mut self, what: &'static str, millis: u64, least: u64, most: Bound) {
        let from = clock::now();
        thread::sleep(Duration::from_millis(millis));
        self.expect_since(from, what, least, most);
    }

    /// Expects at least `least` packets a second, and at most `most`, to have arrived since `from`,
    /// a time of [`clock::now`].
    pub fn expect_since(&mut self, from: u64, what: &'static str, least: u64, most: Bound) {
        let span = Span { from, to: clock::now(), rate: 0, burst: 0 };
        self.expected.push((what, span, least * (span.to - from) / SECOND, most.of(&span)));
    }

    /// Expects at least nine tenths of the limit's rate.
    pub fn expect_rate(&mut self, what: &'static str, millis: u64) {
        self.expect(what, millis, LIMIT.rate * 9 / 10, LIMIT);
    }

    /// Judges all windows and all expectations, and takes the nodes down.
    ///
    /// # Errors
    ///
    /// When a window exceeds the bound or an expectation is not met.
    pub fn finish(mut self) -> Result<()> {
        self.on_top(0, 0);
        self.source.finish()?;
        let (packets, lost) = self.arrivals.finish()?;
        ensure!(lost == 0, "the measurement is invalid: no room for {lost} packets");
        for (what, span, least, most) in self.expected {
            let inside = packets.iter().filter(|p| p.sent >= span.from && p.arrived <= span.to);
            let arrived = inside.count() as u64;
            let millis = (span.to - span.from) / 1_000_000;
            eprintln!("{what}: {arrived} in {millis} ms, {least} to {most} are right");
            ensure!((least..=most).contains(&arrived), "{what}: {arrived}, not {least} to {most}");
        }
        let over = LIMIT.over(&self.spans, &packets).context("nothing arrived")?;
        eprintln!("the worst window is {over} packets over the bound");
        ensure!(over <= 0, "a window is {over} packets over the bound");
        self.nodes.close()
    }
}

/// Starts three nodes with their daemons.
///
/// # Errors
///
/// As [`Nodes::create`].
pub fn three(tag: &str) -> Result<Nodes> {
    require_root();
    let mut nodes = Nodes::create(tag, &binary()?, &rules(""), 3, 3)?;
    nodes.start()?;
    Ok(nodes)
}

/// Waits for `millis` milliseconds.
pub fn pause(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

/// [`UNIT_LIVES`] in milliseconds.
pub fn unit_lives() -> u64 {
    u64::try_from(UNIT_LIVES.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until `holds` returns true.
///
/// # Errors
///
/// When it does not within a minute, or when `holds` fails.
pub fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + CONTACT_WITHIN;
    while !holds()? {
        ensure!(Instant::now() < deadline, "not within {CONTACT_WITHIN:?}: {what}");
        pause(20);
    }
    Ok(())
}
