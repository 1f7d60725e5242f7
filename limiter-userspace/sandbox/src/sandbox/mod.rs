//! The sandbox of `cargo xtask run` and of `limiter demo`: two network namespaces, a cable, a real
//! limiter, and traffic from several sources at once.

pub mod daemon;
pub mod expect;
pub mod format;
pub mod live;
pub mod plan;
pub mod report;
pub mod rules;
pub mod tune;

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};
use serde_json::Value;

use crate::clock;
use crate::generator::Generator;
use crate::interrupt::Interrupt;
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::packet_socket::NoRoom;
use crate::receiver::Receiver;
use crate::testbed::Testbed;
use crate::veth::{RECEIVER, SENDER};
use crate::{command, root};
use expect::Expectation;
use live::Live;
use plan::{Direction, Sender};
use report::{Clean, Report, Row};
use rules::Rules;

/// Most frames recorded for one sender: ten minutes of the flood, 240 MB.
const BOUND: usize = 30_000_000;

/// Longest run, in seconds, that the recording has room for.
pub const LONGEST: u64 = 600;

/// Port of the discard service (RFC 863), to which everything is sent.
pub(crate) const DISCARD: u16 = 9;

/// Rules of a run without a rule file.
const EXAMPLE: &str = include_str!("../../../../examples/sandbox.yaml");

/// Options of the sandbox.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `limiter` binary.
    pub limiter: PathBuf,
    /// The rule file; `None` for examples/sandbox.yaml.
    pub rules: Option<PathBuf>,
    /// Direction of the packets through the limiter.
    pub direction: Direction,
    /// Time for which to send, at most [`LONGEST`] seconds.
    pub duration: Duration,
    /// One JSON document on standard output instead of the last table.
    pub json: bool,
    /// Keep the sandbox for a look inside, until Ctrl-C.
    pub keep_going: bool,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was as it should be.
    Pass,
    /// Something was not as it should be.
    Fail,
    /// A signal ended the run before there was a result.
    Interrupted,
}

/// Reason why there is no result.
#[derive(Debug)]
pub enum Failure {
    /// The sandbox could not start: something is missing or wrong on the machine or in the options.
    CouldNotRun(Error),
    /// The sandbox started and broke off.
    BrokeOff(Error),
}

/// Runs the sandbox and prints the result.
///
/// # Errors
///
/// When there is no result. The sandbox is taken down in any case.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let rules = prepare(options).map_err(Failure::CouldNotRun)?;
    let senders = plan::senders(&rules, options.direction).map_err(Failure::CouldNotRun)?;
    let interrupt = Interrupt::watch().map_err(Failure::CouldNotRun)?;
    let testbed = Testbed::create("sandbox").map_err(Failure::CouldNotRun)?;
    let file = if let Some(file) = &options.rules {
        file.clone()
    } else {
        let example = example(options.direction);
        testbed.dir.write("sandbox.yaml", &example).map_err(Failure::CouldNotRun)?
    };
    let place = Place::of(options.direction, &testbed);
    let (dir, bpffs) = (testbed.dir.path(), testbed.bpffs.path());
    let binary = options.limiter.clone();
    let mut limiter = Limiter::within(place.netns, binary, &file, place.interface, dir, bpffs);
    if options.direction == Direction::Out {
        limiter.options(["--direction", "out"]);
    }
    let ready = limiter.start().map_err(Failure::CouldNotRun)?;
    eprintln!("{ready}");
    explain(&place, &limiter);

    let outcome = measure(options, &testbed, &mut limiter, &senders, &interrupt);
    if options.keep_going && matches!(outcome, Ok(Outcome::Pass | Outcome::Fail)) {
        eprintln!("The sandbox stays until Ctrl-C.");
        while !interrupt.is_set() {
            thread::sleep(Duration::from_millis(50));
        }
    }
    let closed = limiter.close().and(testbed.close());
    if closed.is_ok() {
        eprintln!("Cleaned up: daemon, namespaces, links, pins, mounts and files are gone.");
    }
    let outcome = outcome.map_err(Failure::BrokeOff)?;
    closed.context("cannot clean up").map_err(Failure::BrokeOff)?;
    Ok(outcome)
}

/// Checks the requirements before anything is made.
fn prepare(options: &Options) -> Result<Rules> {
    could_run(&options.limiter)?;
    match &options.rules {
        Some(file) => Rules::read(file),
        None => Rules::parse(EXAMPLE),
    }
}

/// Checks the requirements of the machine.
pub(crate) fn could_run(limiter: &Path) -> Result<()> {
    ensure!(
        root::is_root(),
        "the sandbox makes network namespaces and loads an XDP program: run it as root, or with \
         sudo"
    );
    command::run("ip", ["-Version"])?;
    ensure!(
        limiter.is_file(),
        "no limiter binary at {}: build it with `cargo xtask build`",
        limiter.display()
    );
    Ok(())
}

/// Rules of a run without a rule file.
fn example(direction: Direction) -> String {
    match direction {
        Direction::In => EXAMPLE.to_owned(),
        Direction::Out => EXAMPLE
            .replace("  - key: remote_address\n", "  - key: remote_address\n    direction: out\n"),
    }
}

/// Place of the limiter: the receiving end of the cable, or the sending end.
struct Place<'a> {
    netns: &'a Arc<Netns>,
    interface: &'static str,
}

impl<'a> Place<'a> {
    fn of(direction: Direction, testbed: &'a Testbed) -> Self {
        match direction {
            Direction::In => Self { netns: &testbed.receiver, interface: RECEIVER.interface },
            Direction::Out => Self { netns: &testbed.sender, interface: SENDER.interface },
        }
    }
}

/// Prints how to look inside while the sandbox runs.
fn explain(place: &Place<'_>, limiter: &Limiter) {
    eprintln!(
        "Look inside from another terminal:\n  \
         ip netns exec {} ip -statistics link show {}\n  \
         {limiter} --socket {socket} stats\n  \
         {limiter} --socket {socket} top",
        place.netns.name(),
        place.interface,
        limiter = limiter.binary().display(),
        socket = limiter.socket().display()
    );
}

fn measure(
    options: &Options,
    testbed: &Testbed,
    limiter: &mut Limiter,
    senders: &[Sender],
    interrupt: &Interrupt,
) -> Result<Outcome> {
    // Sockets listen, so that the stack does not answer each frame with an ICMP error.
    let _listeners = testbed.receiver.enter(|| {
        Ok::<_, std::io::Error>([
            UdpSocket::bind((RECEIVER.ipv4, DISCARD))?,
            UdpSocket::bind((RECEIVER.ipv6, DISCARD))?,
        ])
    })??;
    let mode = match options.direction {
        Direction::In => attached_mode(&limiter.xdp()?),
        Direction::Out => report::TC_OUT,
    }
    .to_owned();
    let end = options.direction.end();
    let receiver = Receiver::start_by(&testbed.receiver, RECEIVER.interface, end)?;
    let streams = senders.iter().map(|sender| sender.stream.clone()).collect();
    let mut expectations = senders.iter().map(Expectation::new).collect::<Result<Vec<_>>>()?;
    let started = clock::now();
    let no_room = match options.direction {
        Direction::In => NoRoom::Refused,
        Direction::Out => NoRoom::Dropped,
    };
    let generator = Generator::start_with(
        &testbed.sender,
        SENDER.interface,
        streams,
        options.duration,
        BOUND,
        no_room,
    )?;
    let mut live = Live::start(options.duration);
    while !generator.is_finished() {
        if interrupt.is_set() {
            return Ok(Outcome::Interrupted);
        }
        if let Some(status) = limiter.ended()? {
            bail!("the daemon ended during the run ({status}): {}", limiter.said().trim());
        }
        let next = Instant::now() + live.interval();
        live.draw(&generator, limiter, senders, &mut expectations)?;
        while Instant::now() < next && !generator.is_finished() && !interrupt.is_set() {
            thread::sleep(Duration::from_millis(20));
        }
    }
    drop(live);
    let recordings = generator.finish()?;
    let sent_for = Duration::from_nanos(clock::now() - started).min(options.duration);
    let sent: usize = recordings.iter().map(|recording| recording.times.len()).sum();
    let on_cable = match options.direction {
        Direction::In => u64::try_from(sent)?,
        // Dropped packets never reached the interface.
        Direction::Out => testbed.sender.carried(SENDER.interface)?[0],
    };
    testbed.wait_until_met(on_cable)?;
    let counts = receiver.finish()?;
    for (recording, expectation) in recordings.iter().zip(&mut expectations) {
        ensure!(!recording.truncated, "the recording is full: choose a shorter --duration");
        expectation.offer(recording.times.get(expectation.offered()..).unwrap_or_default())?;
    }
    let sources = senders
        .iter()
        .zip(&expectations)
        .map(|(sender, expectation)| {
            Row::new(sender, expectation, &counts, daemon::counted(limiter, sender)?)
        })
        .collect::<Result<_>>()?;
    let lost_on_link = testbed.lost_on_link()?;
    let mut report = Report {
        version: limiter.json(&["status"])?["version"].as_str().unwrap_or("?").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        mode,
        duration_seconds: sent_for.as_secs_f64(),
        tolerance_percent: report::TOLERANCE_PERCENT,
        pass: false,
        failures: Vec::new(),
        receiver: Clean {
            clean: counts.lost == 0 && lost_on_link == 0,
            lost_at_socket: counts.lost,
            lost_on_link,
        },
        sources,
        limiter: daemon::totals(limiter)?,
    };
    report.judge();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.pass { Outcome::Pass } else { Outcome::Fail })
}

/// The mode in words; the numbers are `XDP_ATTACHED_*` of `linux/if_link.h`.
pub fn attached_mode(xdp: &Value) -> &'static str {
    match xdp["mode"].as_u64() {
        Some(1) => "native",
        Some(2) => "generic",
        Some(3) => "offloaded",
        Some(4) => "several",
        _ => "no",
    }
}
