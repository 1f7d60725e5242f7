//! `cargo xtask run --delay`: datagrams and TCP streams over limits that let packets wait instead
//! of dropping them, and how long the packets wait.

pub mod plan;
pub mod report;
pub mod traffic;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::command;
use crate::interrupt::Interrupt;
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::sandbox::{DISCARD, Failure, Outcome, could_run};
use crate::testbed::Testbed;
use crate::veth::{RECEIVER, SENDER};
use plan::{DROPPING, NETWORK, Role, WAITING};
use report::{Report, Row, Stream};
use traffic::Sent;

/// Packets of a flow that the queueing discipline has room for: more than any of the limits needs.
const FLOW_LIMIT: &str = "1000";

/// First part of a TCP stream, which covers its burst and its slow start.
const FIRST: Duration = Duration::from_secs(1);

/// Options of the run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `limiter` binary.
    pub limiter: PathBuf,
    /// Time for which the datagrams are sent and each TCP stream is measured, at least a second.
    pub duration: Duration,
    /// One JSON document on standard output instead of the table.
    pub json: bool,
}

/// Runs the measurement and prints the result.
///
/// # Errors
///
/// When there is no result. Everything is taken down in any case.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    could_run(&options.limiter)
        .and_then(|()| command::run("tc", ["-Version"]))
        .map_err(Failure::CouldNotRun)?;
    let interrupt = Interrupt::watch().map_err(Failure::CouldNotRun)?;
    let bed = Testbed::create("delay").map_err(Failure::CouldNotRun)?;
    let holds = prepared(&bed).map_err(Failure::CouldNotRun)?;
    let rules = plan::rules();
    eprint!("The rules:\n{rules}");
    let file = bed.dir.write("rules.yaml", &rules).map_err(Failure::CouldNotRun)?;
    let (binary, dir, bpffs) = (options.limiter.clone(), bed.dir.path(), bed.bpffs.path());
    let mut limiter = Limiter::within(&bed.sender, binary, &file, SENDER.interface, dir, bpffs);
    limiter.options(["--direction", "out"]);
    eprintln!("{}", limiter.start().map_err(Failure::CouldNotRun)?);
    let outcome = measured(options, &bed, &limiter, holds, &interrupt);
    let closed = limiter.close().and(bed.close());
    if closed.is_ok() {
        eprintln!("Cleaned up: daemon, namespaces, links, pins, mounts and files are gone.");
    }
    let outcome = outcome.map_err(Failure::BrokeOff)?;
    closed.context("cannot clean up").map_err(Failure::BrokeOff)?;
    Ok(outcome)
}

/// Gives the cable its addresses and `fq`; returns false if the kernel has no `fq`.
fn prepared(bed: &Testbed) -> Result<bool> {
    for address in Role::ALL.map(Role::target).into_iter().chain([WAITING, DROPPING]) {
        let address = format!("{address}/32");
        bed.receiver.ip(["address", "add", &address, "dev", RECEIVER.interface])?;
    }
    let via = RECEIVER.ipv4.to_string();
    bed.sender.ip(["route", "add", NETWORK, "via", &via])?;
    hold(&bed.sender, SENDER.interface)
}

/// Makes an interface hold packets until they depart; returns false if the kernel has no `fq`.
///
/// # Errors
///
/// When `tc` cannot be started.
pub fn hold(netns: &Netns, interface: &str) -> Result<bool> {
    let words = ["qdisc", "replace", "dev", interface, "root", "fq", "flow_limit", FLOW_LIMIT];
    Ok(netns.output(Command::new("tc").args(words))?.status.success())
}

fn measured(
    options: &Options,
    bed: &Testbed,
    limiter: &Limiter,
    holds: bool,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    let ends = [&*bed.sender, &*bed.receiver];
    let duration = options.duration;
    eprintln!("datagrams to {} addresses ...", Role::ALL.len());
    let sent: Vec<Result<Sent>> = thread::scope(|scope| {
        let send = |role: Role| {
            scope.spawn(move || {
                let target = discard(role.target());
                traffic::datagrams(ends, target, role.pace(), duration, interrupt)
            })
        };
        let threads = Role::ALL.map(send);
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Sent>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let sent = sent.into_iter().collect::<Result<Vec<_>>>()?;
    let mut streams = Vec::new();
    for (action, target) in [("drop", DROPPING), ("delay", WAITING)] {
        if interrupt.is_set() {
            return Ok(Outcome::Interrupted);
        }
        eprintln!("one TCP stream, action: {action} ...");
        let (bytes, lasted) = traffic::stream(ends, discard(target), FIRST, duration)?;
        streams.push(Stream::new(action, bytes, lasted));
    }
    let mut report = Report {
        version: limiter.json(&["status"])?["version"].as_str().unwrap_or("?").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        duration_seconds: duration.as_secs_f64(),
        holds,
        pass: false,
        failures: Vec::new(),
        datagrams: Role::ALL.iter().zip(&sent).map(|(role, sent)| Row::new(*role, sent)).collect(),
        streams,
    };
    report.judge();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.pass { Outcome::Pass } else { Outcome::Fail })
}

fn discard(target: Ipv4Addr) -> SocketAddr {
    SocketAddr::from((target, DISCARD))
}
