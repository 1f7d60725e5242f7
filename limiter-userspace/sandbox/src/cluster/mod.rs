//! `cargo xtask run --cluster N`: nodes with a daemon each, a real redis-server, and one source
//! over all of them that is limited as one, also while the store is cut off.

pub mod bound;
pub mod load;
pub mod nodes;
pub mod phase;
pub mod redis_cluster;
pub mod redis_server;
pub mod report;
pub mod store_path;
pub mod traffic;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::interrupt::Interrupt;
use crate::sandbox::format::thousands;
use crate::sandbox::{Failure, Outcome};
use crate::{clock, command, root};
use bound::{Bound, Packet, Span};
use nodes::Nodes;
use phase::{Expected, Phase};
use redis_server::RedisServer;
use report::Report;
use traffic::{Arrivals, Source};

/// The limit of the budget, over all nodes.
pub const LIMIT: Bound = Bound { rate: 1000, burst: 1000 };

/// Sync period of the budget.
pub const SYNC: Duration = Duration::from_millis(200);

/// Longest time that a unit lives on a node: four sync periods.
pub const UNIT_LIVES: Duration = Duration::from_millis(800);

/// Longest time for which units granted to a node are missing when the node never learns of them,
/// as after a call that the store answers too late: twelve sync periods.
pub const UNITS_MISSING: Duration = Duration::from_millis(2400);

/// Packets a second, and at once, that all nodes together pass without a lease.
pub const SHARES: Bound = Bound { rate: 250, burst: 100 };

/// Packets a second of a source within the limit.
const WITHIN: u64 = 900;

/// Packets a second of a source over the limit.
const OVER: u64 = 3000;

/// Shortest duration in seconds: four phases of two seconds.
pub const SHORTEST: u64 = 8;

/// Options of the run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `limiter` binary.
    pub limiter: PathBuf,
    /// Number of nodes, at most [`nodes::MOST`].
    pub nodes: u8,
    /// Time of the four phases together, at least [`SHORTEST`] seconds.
    pub duration: Duration,
    /// One JSON document on standard output instead of the table.
    pub json: bool,
}

/// The rules of all nodes: one budget for the [source's network](traffic::NETWORK), with more
/// fields of `cluster` in `more`.
pub fn rules(more: &str) -> String {
    let Bound { rate, burst } = LIMIT;
    format!(
        "budgets:
  - name: customer
    scope: cluster
    cluster: {{sync: {}ms{more}}}
    rate_limit: {{unit: second, requests_per_unit: {rate}, burst: {burst}}}
descriptors:
  - {{key: remote_address, value: {}, budget: customer}}
",
        SYNC.as_millis(),
        traffic::NETWORK
    )
}

/// The rules of all nodes: a limit for each source.
pub fn rules_by_source() -> String {
    let Bound { rate, burst } = LIMIT;
    format!(
        "descriptors:
  - key: remote_address
    scope: cluster
    cluster: {{sync: {}ms}}
    rate_limit: {{unit: second, requests_per_unit: {rate}, burst: {burst}}}
",
        SYNC.as_millis()
    )
}

/// Packets by which a window of [`rules_by_source`] may exceed the bound if calls take at most 20
/// ms: docs/cluster.md, "The bound".
pub fn excess_by_source() -> u64 {
    let micros = u64::try_from(SYNC.as_micros()).unwrap_or(u64::MAX) * 9 / 8 + 2 * 20_000;
    SHARES.burst + (SHARES.rate * micros).div_ceil(1_000_000)
}

/// Runs the nodes and prints the result.
///
/// # Errors
///
/// When there is no result. Everything is taken down in any case.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    prepare(options).map_err(Failure::CouldNotRun)?;
    let interrupt = Interrupt::watch().map_err(Failure::CouldNotRun)?;
    let mut nodes =
        Nodes::create("cluster", &options.limiter, &rules(""), options.nodes, options.nodes)
            .map_err(Failure::CouldNotRun)?;
    nodes.start().map_err(Failure::CouldNotRun)?;
    explain(&nodes);
    let outcome = measure(options, &mut nodes, &interrupt);
    let closed = nodes.close();
    if closed.is_ok() {
        eprintln!(
            "Cleaned up: daemons, redis-server, namespaces, pins, mounts and files are gone."
        );
    }
    let outcome = outcome.map_err(Failure::BrokeOff)?;
    closed.map_err(|error| Failure::BrokeOff(error.context("cannot clean up")))?;
    Ok(outcome)
}

/// Checks the requirements before anything is made.
fn prepare(options: &Options) -> Result<()> {
    ensure!(
        root::is_root(),
        "the nodes are network namespaces, and each loads an XDP program: run it as root, or with \
         sudo"
    );
    command::run("ip", ["-Version"])?;
    RedisServer::check()?;
    ensure!(
        options.limiter.is_file(),
        "no limiter binary at {}: build it with `cargo xtask build`",
        options.limiter.display()
    );
    let least = Duration::from_secs(SHORTEST);
    ensure!(options.duration >= least, "choose a --duration of {SHORTEST} s or more");
    Ok(())
}

/// Prints how to look inside while the nodes run.
fn explain(nodes: &Nodes) {
    eprintln!("{} nodes share a limit of {}/s.", nodes.nodes.len(), thousands(LIMIT.rate));
    eprintln!("Look inside from another terminal:");
    for node in &nodes.nodes {
        let limiter = &node.limiter;
        eprintln!(
            "  {} --socket {} cluster",
            limiter.binary().display(),
            limiter.socket().display()
        );
    }
}

/// A run that is under way: its ends, and its phases so far.
struct Run<'a> {
    nodes: &'a mut Nodes,
    interrupt: &'a Interrupt,
    source: Source,
    arrivals: Arrivals,
    phases: Vec<Phase>,
}

impl Run<'_> {
    /// Begins a phase, and ends the one before.
    fn begin(&mut self, name: &'static str, rate: u64, expected: Expected, cut: bool) {
        let now = clock::now();
        if let Some(last) = self.phases.last_mut() {
            last.span.to = now;
        }
        let on_top = if cut { SHARES } else { Bound { rate: 0, burst: 0 } };
        let span = Span { from: now, to: now, rate: on_top.rate, burst: on_top.burst };
        self.phases.push(Phase { name, span, expected });
        self.source.send(rate);
        eprintln!("{name}: {} packets a second", thousands(rate));
    }

    /// Lets a phase go on; returns false if a signal came.
    fn go_on(&mut self, duration: Duration) -> Result<bool> {
        let end = Instant::now() + duration;
        let mut report = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            if self.interrupt.is_set() {
                return Ok(false);
            }
            if Instant::now() >= report {
                let (sent, arrived) = (self.source.sent() as u64, self.arrivals.count() as u64);
                eprintln!("  {} offered, {} delivered", thousands(sent), thousands(arrived));
                report += Duration::from_secs(1);
            }
            thread::sleep(Duration::from_millis(20));
        }
        for node in &mut self.nodes.nodes {
            if let Some(status) = node.limiter.ended()? {
                let said = node.limiter.said();
                bail!("the daemon of {} ended ({status}): {}", node.name, said.trim());
            }
        }
        Ok(true)
    }

    /// Runs all phases; returns false if a signal came.
    fn phases(&mut self, each: Duration) -> Result<bool> {
        self.begin("within the limit", WITHIN, Expected::All, false);
        if !self.go_on(each)? {
            return Ok(false);
        }
        self.begin("over the limit", OVER, Expected::Rate, false);
        if !self.go_on(each)? {
            return Ok(false);
        }
        self.begin("redis stopped", OVER, Expected::Shares, true);
        self.nodes.redis.pause()?;
        if !self.go_on(each)? {
            return Ok(false);
        }
        self.begin("redis goes on", OVER, Expected::Bound, true);
        self.nodes.redis.resume()?;
        if !self.go_on(UNITS_MISSING)? {
            return Ok(false);
        }
        self.nodes.wait_for_contact(|| self.interrupt.is_set())?;
        self.begin("over the limit again", OVER, Expected::Rate, false);
        self.go_on(each)
    }

    /// Ends the traffic; returns the phases, the times at which packets were sent, and the
    /// arrivals.
    fn finish(mut self) -> Result<(Vec<Phase>, Vec<u64>, Vec<Packet>)> {
        if let Some(last) = self.phases.last_mut() {
            last.span.to = clock::now();
        }
        let sent = self.source.finish()?;
        let (packets, lost) = self.arrivals.finish()?;
        ensure!(
            lost == 0,
            "the measurement is invalid: the receiver had no room for {lost} packets; try again on \
             a less busy machine"
        );
        Ok((self.phases, sent, packets))
    }
}

fn measure(options: &Options, nodes: &mut Nodes, interrupt: &Interrupt) -> Result<Outcome> {
    let arrivals = Arrivals::start(nodes.receiver())?;
    let source = Source::start(nodes.sender())?;
    let mut run = Run { nodes, interrupt, source, arrivals, phases: Vec::new() };
    if !run.phases(options.duration / 4)? {
        return Ok(Outcome::Interrupted);
    }
    let seen = (0..run.nodes.nodes.len()).map(|n| run.nodes.seen(n)).collect::<Result<_>>()?;
    let (phases, sent, packets) = run.finish()?;
    let report = Report::new(&phases, &sent, &packets, seen);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.pass { Outcome::Pass } else { Outcome::Fail })
}
