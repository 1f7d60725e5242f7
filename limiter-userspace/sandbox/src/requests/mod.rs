//! `cargo xtask run --requests`: a real nginx that asks `limiter serve` before a small server
//! answers, senders within and over their limits, and one sender whose packets the daemon then
//! drops at the card.

pub mod application;
pub mod bounds;
pub mod plan;
pub mod report;
pub mod traffic;

use std::fs;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::generator::{Pattern, Stream};
use crate::interrupt::Interrupt;
use crate::limiter::Limiter;
use crate::nginx::Nginx;
use crate::packet::Frame;
use crate::sandbox::{DISCARD, Failure, Outcome, could_run};
use crate::serve::Serve;
use crate::testbed::Testbed;
use crate::veth::{self, RECEIVER, SENDER};
use application::Application;
use plan::Sender;
use report::{Report, Row};
use traffic::send_all;

/// Rules for packets: none, so that every drop at the card is by a ban.
const NONE: &str = "descriptors: []\n";

/// Configuration of the nginx server: as in docs/behind-a-proxy.md, for all paths.
const SERVER: &str = include_str!("server.conf");

/// Packets that each source sends at the end.
const PACKETS: u32 = 100;

/// Much longer than nginx needs to listen, or the daemon to ban.
const PATIENCE: Duration = Duration::from_secs(30);

/// Options of the run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `limiter` binary.
    pub limiter: PathBuf,
    /// How long to send requests, at least a second.
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
    could_run(&options.limiter).and_then(|()| Nginx::check()).map_err(Failure::CouldNotRun)?;
    let interrupt = Interrupt::watch().map_err(Failure::CouldNotRun)?;
    let bed = Testbed::create("requests").map_err(Failure::CouldNotRun)?;
    let file = bed.dir.write("rules.yaml", NONE).map_err(Failure::CouldNotRun)?;
    let mut limiter = Limiter::new(options.limiter.clone(), &file, RECEIVER.interface, &bed);
    eprintln!("{}", limiter.start().map_err(Failure::CouldNotRun)?);
    let outcome = measured(options, &bed, &limiter, &interrupt);
    let closed = limiter.close().and(bed.close());
    if closed.is_ok() {
        eprintln!("Cleaned up: nginx, daemon, namespaces, links, pins, mounts and files are gone.");
    }
    let outcome = outcome.map_err(Failure::BrokeOff)?;
    closed.context("cannot clean up").map_err(Failure::BrokeOff)?;
    Ok(outcome)
}

fn measured(
    options: &Options,
    bed: &Testbed,
    limiter: &Limiter,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    let rules = plan::rules();
    eprint!("The rules of `limiter serve`:\n{rules}");
    let rules = bed.dir.write("requests.yaml", &rules)?;
    let serve = Serve::start(limiter, bed.dir.path(), &rules)?;
    let application = Application::start(&bed.receiver)?;
    let server = SERVER
        .replace("SOCKET", &serve.socket().display().to_string())
        .replace("APPLICATION", &application.port().to_string());
    let nginx = Nginx::start(&bed.receiver, bed.dir.path(), &server)?;
    let senders = plan::senders();
    for address in senders.iter().flat_map(|sender| &sender.addresses) {
        let length = if address.is_ipv4() { 32 } else { 128 };
        veth::add_source(&bed.sender, &format!("{address}/{length}"))?;
    }
    wait_for_nginx(bed)?;

    let answers = send_all(&bed.sender, &senders, options.duration, interrupt)?;
    if interrupt.is_set() {
        return Ok(Outcome::Interrupted);
    }
    nginx.close()?;
    serve.close()?;
    let reached = application.finish()?;
    let came = |sender: &Sender| {
        sender.addresses.iter().map(|address| reached.get(address).copied().unwrap_or(0)).sum()
    };
    let Packets { arrived, banned: packets_banned, beside: packets_beside } =
        packets(bed, limiter, &senders)?;
    let rows = senders.iter().zip(&answers).zip(arrived);
    let mut report = Report {
        version: limiter.json(&["status"])?["version"].as_str().unwrap_or("?").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        duration_seconds: options.duration.as_secs_f64(),
        pass: false,
        failures: Vec::new(),
        senders: rows
            .map(|((sender, answers), arrived)| {
                Row::new(sender, answers, came(sender), [PACKETS.into(), arrived])
            })
            .collect(),
        banned: banned(limiter)?,
        packets_banned,
        packets_beside,
    };
    report.judge();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.pass { Outcome::Pass } else { Outcome::Fail })
}

fn wait_for_nginx(bed: &Testbed) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let listens = || TcpStream::connect((RECEIVER.ipv4, 80)).is_ok();
    while !bed.receiver.enter(listens)? {
        let log = fs::read_to_string(bed.dir.path().join("nginx.log")).unwrap_or_default();
        ensure!(Instant::now() < deadline, "nginx does not listen: {}", log.trim());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Result of the packets that every sender sends after the requests.
struct Packets {
    /// Packets that arrived, by sender.
    arrived: Vec<u64>,
    /// Packets that the kernel counted as banned.
    banned: u64,
    /// Further packets, sent by the senders' kernel itself.
    beside: u64,
}

/// Sends packets from every sender; each has one address of its own.
fn packets(bed: &Testbed, limiter: &Limiter, senders: &[Sender]) -> Result<Packets> {
    // Sockets listen, so that the stack does not answer each frame with an ICMP error.
    let _listeners = bed.receiver.enter(|| {
        let addresses = [IpAddr::from(RECEIVER.ipv4), IpAddr::from(RECEIVER.ipv6)];
        addresses.map(|address| UdpSocket::bind((address, DISCARD)))
    })?;
    let carried = || Ok::<_, anyhow::Error>(bed.sender.carried(SENDER.interface)?[0]);
    // Packets of the requests may still be under way.
    bed.wait_until_met(carried()?)?;
    let before = (carried()?, counted_as_banned(limiter)?);
    let sources = senders.iter().map(|sender| sender.addresses.first().copied());
    let sources = sources.collect::<Option<Vec<_>>>().context("a sender has an address")?;
    let streams = sources.iter().map(|source| Stream {
        frames: vec![frame(*source)],
        pattern: Pattern::Burst { frames: PACKETS, every: Duration::from_mins(1) },
    });
    let (_, counts) = bed.measure(streams.collect(), Duration::from_millis(200))?;
    let after = (carried()?, counted_as_banned(limiter)?);
    let sent = u64::from(PACKETS) * u64::try_from(sources.len())?;
    Ok(Packets {
        arrived: sources.iter().map(|source| counts.of(*source)).collect(),
        banned: after.1 - before.1,
        beside: (after.0 - before.0).saturating_sub(sent),
    })
}

fn frame(source: IpAddr) -> Vec<u8> {
    match source {
        IpAddr::V4(source) => Frame::ipv4(source.octets(), RECEIVER.ipv4.octets()),
        IpAddr::V6(source) => Frame::ipv6(source.octets(), RECEIVER.ipv6.octets()),
    }
    .build()
}

/// Packets of all sources that the kernel has dropped because of a ban.
fn counted_as_banned(limiter: &Limiter) -> Result<u64> {
    let stats = limiter.json(&["stats"])?;
    let reasons = stats["reasons"].as_array().context("`limiter stats`: no `reasons`")?;
    let of = reasons.iter().find(|reason| reason["reason"] == "banned");
    of.and_then(|of| of["packets"].as_u64()).context("`limiter stats`: no count of `banned`")
}

fn banned(limiter: &Limiter) -> Result<Vec<String>> {
    let bans = limiter.json(&["bans"])?;
    let entries = bans["entries"].as_array().context("`limiter bans`: no `entries`")?;
    Ok(entries.iter().filter_map(|ban| Some(ban["source"].as_str()?.to_owned())).collect())
}
