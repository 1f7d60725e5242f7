//! Load on nodes while something happens to them, judged at the end: every window against the bound,
//! and parts of the time against what is expected of them.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::LIMIT;
use super::bound::{Bound, Span};
use super::nodes::Nodes;
use super::traffic::{Arrivals, Source};
use crate::clock;

const SECOND: u64 = 1_000_000_000;

/// Packets a second of the source: three times the limit.
const OVER: u64 = 3000;

/// Nodes under load. What is expected of a part of the time is judged at the end.
#[derive(Debug)]
pub struct Load {
    /// The nodes.
    pub nodes: Nodes,
    /// Sender of the packets.
    pub source: Source,
    arrivals: Arrivals,
    spans: Vec<Span>,
    expected: Vec<(&'static str, Span, u64, u64)>,
}

impl Load {
    /// Starts the source; some or all daemons run already.
    ///
    /// # Errors
    ///
    /// When a socket cannot be opened in the namespaces of its ends.
    pub fn start(nodes: Nodes) -> Result<Self> {
        let arrivals = Arrivals::start(nodes.receiver())?;
        let source = Source::start(nodes.sender())?;
        let mut load = Self { nodes, source, arrivals, spans: Vec::new(), expected: Vec::new() };
        load.on_top(0, 0);
        load.source.send(OVER);
        Ok(load)
    }

    /// So much comes on top of the bound from now on.
    pub fn on_top(&mut self, rate: u64, burst: u64) {
        let now = clock::now();
        if let Some(last) = self.spans.last_mut() {
            last.to = now;
        }
        self.spans.push(Span { from: now, to: now, rate, burst });
    }

    /// Lets the load go on for so long; at least `least` packets a second, and at most `most`, must
    /// arrive of it.
    pub fn expect(&mut self, what: &'static str, millis: u64, least: u64, most: Bound) {
        let from = clock::now();
        thread::sleep(Duration::from_millis(millis));
        self.expect_since(from, what, least, most);
    }

    /// At least `least` packets a second, and at most `most`, must have arrived since `from`, a time
    /// of [`clock::now`].
    pub fn expect_since(&mut self, from: u64, what: &'static str, least: u64, most: Bound) {
        let span = Span { from, to: clock::now(), rate: 0, burst: 0 };
        self.expected.push((what, span, least * (span.to - from) / SECOND, most.of(&span)));
    }

    /// The rate of the limit is reached, by nine tenths at least.
    pub fn expect_rate(&mut self, what: &'static str, millis: u64) {
        self.expect(what, millis, LIMIT.rate * 9 / 10, LIMIT);
    }

    /// Judges all windows, and what was expected.
    ///
    /// # Errors
    ///
    /// Names what does not hold, or what is left of the nodes.
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
