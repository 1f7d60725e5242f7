//! `limiter doctor`: looks at the machine, and says what keeps limits from holding, each with its
//! remedy. Changes nothing, and needs no daemon.
//!
//! The facts are from [`limiter_datapath::machine`]; each file here judges those of one subject.

mod attaching;
pub(super) mod command;
mod daemon;
mod finding;
mod frames;
mod host;
mod kernel;
mod kinds;
mod neighbours;
mod pins;
mod place;
mod ssh;

use std::path::{Path, PathBuf};
use std::time::Duration;

use limiter_api::client::Client;
use limiter_api::lists::{ListName, Lists};
use limiter_api::render;
use limiter_api::status::Status;
use limiter_common::header::Direction;
use limiter_daemon::ssh::own_session;
use limiter_datapath::machine::{self, Link};
use limiter_datapath::{DatapathError, Wanted, offloads, queueing};

use super::answer::Answer;
use super::args::defaults::PIN_DIR;
use super::failure::Failure;
use super::output::Output;
use super::shell::completion_values;
use attaching::Owner;
use finding::{Finding, Report};
use frames::Peer;

/// Time that a daemon has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code: 0 without a problem, 1 with one.\n\
    problem: limits cannot be put in force, or are not. warning: they may not do what they say. \
    unknown: something could not be seen, as without root. note: good to know. Commands are to be \
    typed as root.")]
pub(super) struct Ask {
    /// Interface to look at, or a shell pattern of names; may be repeated [default: those that can
    /// be meant: up, and neither the loopback nor a container's]
    #[arg(long, value_name = "IFACE", add = completion_values::interfaces())]
    iface: Vec<String>,
    /// Directory of the pinned maps and links [default: the daemon's; without one,
    /// /sys/fs/bpf/limiter]
    #[arg(long, value_name = "DIR")]
    pin_dir: Option<PathBuf>,
    /// Show the checks that found nothing, too
    #[arg(long)]
    verbose: bool,
    /// Same as --output json: all checks
    #[arg(long)]
    json: bool,
}

/// What is known of limiter on this machine, whatever interface is looked at.
struct Here<'a> {
    pin_dir: &'a Path,
    /// True if this process may look at programs.
    may_bpf: bool,
    /// Numbers of the programs that the daemon says are its own.
    programs: Vec<u32>,
    /// Answer of the daemon.
    status: Option<&'a Status>,
}

/// Looks at the machine. A problem is an answer, with exit code 1.
pub(super) fn doctor(ask: &Ask, client: &Client, output: Output) -> Result<Answer, Failure> {
    let report = Report::of(look(ask, client), ask.verbose);
    let output = if ask.json { Output::Json } else { output };
    let text = output.document(&report)?.unwrap_or_else(|| render::text(&report));
    Ok(Answer { text, code: u8::from(!report.ok), ..Answer::default() })
}

fn look(ask: &Ask, client: &Client) -> Vec<Finding> {
    let client = client.within(PATIENCE);
    let status = client.get::<Status>("/v1/status");
    let reported =
        status.as_ref().ok().and_then(|status| status.pin_dir.as_ref()).map(PathBuf::from);
    let pin_dir = ask.pin_dir.clone().or(reported).unwrap_or_else(|| PathBuf::from(PIN_DIR));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut findings = Vec::new();
    let may_bpf = match machine::privileges() {
        Ok(held) => {
            findings.push(kernel::capabilities(held, &release));
            held.check().is_ok()
        }
        Err(error) => {
            findings.push(Finding::unseen("capabilities", &error));
            false
        }
    };
    let features = may_bpf.then(machine::features);
    findings.push(kernel::kernel(&release, features.as_ref()));
    findings.push(kernel::memlock(&release));
    findings.push(pins::place(&pin_dir, machine::pin_place(&pin_dir), may_bpf));
    findings.push(pins::pinned(&pin_dir, &machine::pinned(&pin_dir), may_bpf));
    // In another mount namespace the pins of the daemon that answers are not seen.
    let programs = status.as_ref().map_or(&[][..], |status| &status.interfaces).iter();
    let programs = programs.map(|at| at.program_id).collect();
    let here = Here { pin_dir: &pin_dir, may_bpf, programs, status: status.as_ref().ok() };
    match machine::links() {
        Ok(links) => findings.extend(interfaces(ask, &links, &here)),
        Err(error) => findings.push(Finding::unseen("interfaces", &error)),
    }
    findings.push(host::conntrack(host::tracked()));
    findings.push(host::clock(host::clocks()));
    findings.push(host::time_namespace(&machine::clock_ahead()));
    findings.extend(session(&client, status.as_ref().ok()));
    findings.extend(daemon::daemon(client.socket(), &status));
    findings
}

/// Findings about interfaces, and about what stands on them.
fn interfaces(ask: &Ask, links: &[Link], here: &Here<'_>) -> Vec<Finding> {
    let mut findings = vec![host::docker(links)];
    let Wanted { names, patterns } = Wanted::of(&ask.iface);
    for pattern in patterns {
        let is_meant = |link: &&Link| !link.is_loopback && pattern.matches(&link.name);
        let matching: Vec<&Link> = links.iter().filter(is_meant).collect();
        if matching.is_empty() {
            let seen = format!("no interface is here whose name matches {pattern}");
            findings.push(Finding::note("interface", seen).remedy(
                "a start with the pattern limits interfaces as they appear: look again then",
            ));
        }
        for link in matching {
            findings.extend(interface(link, links, here, true));
        }
    }
    for name in &names {
        match machine::link(name, links) {
            Ok(link) => findings.extend(interface(link, links, here, true)),
            Err(DatapathError::NoInterface(name)) => {
                let error = machine::missing(name.clone(), &names, here.pin_dir);
                findings.push(Finding::refused("interface", &error).on(&name));
            }
            Err(error) => findings.push(Finding::unseen("interface", &error).on(name)),
        }
    }
    if ask.iface.is_empty() {
        let candidates: Vec<&Link> =
            links.iter().filter(|link| is_candidate(link, links)).collect();
        if candidates.is_empty() {
            let seen = "no interface is up but the loopback and those of containers";
            findings.push(Finding::note("interface", seen).remedy("name one with --iface"));
        }
        for link in candidates {
            findings.extend(interface(link, links, here, false));
        }
    }
    findings
}

/// True for an interface that somebody may want to limit: not for the loopback, for one that is
/// down, or for a port or bridge that is there for containers and machines within this one.
fn is_candidate(link: &Link, links: &[Link]) -> bool {
    let is_inner = |link: &Link| link.is("veth") || link.is("tun");
    let mut ports = links.iter().filter(|port| port.controller == Some(link.index));
    let is_inner_port = link.controller.is_some() && is_inner(link);
    let is_inner_bridge = link.is("bridge") && ports.all(is_inner);
    let is_usable = link.is_up && !link.is_loopback && link.interface.is_ok();
    is_usable && !is_inner_port && !is_inner_bridge
}

fn interface(link: &Link, links: &[Link], here: &Here<'_>, asked: bool) -> Vec<Finding> {
    let &Here { pin_dir, may_bpf, ref programs, status } = here;
    let name = &link.name;
    let state = match &link.interface {
        Ok(state) => state,
        Err(error) => return vec![Finding::refused("interface", error).on(name)],
    };
    let owner = match state.program {
        None => Owner::Nobody,
        Some((mode, id)) if programs.contains(&id) => Owner::Ours(mode),
        Some((_, id)) if !may_bpf => Owner::Unseen(id),
        Some(_) => match machine::owner(state, pin_dir) {
            Ok(mode) => mode.map_or(Owner::Nobody, Owner::Ours),
            Err(error) => Owner::Other(error),
        },
    };
    let at_tc: Vec<_> = [Direction::In, Direction::Out]
        .into_iter()
        .filter(|direction| machine::is_at_tc(state, *direction, programs, pin_dir))
        .collect();
    let native = machine::native_mode(link);
    let changes = offloads(name);
    let filters = machine::filters(link);
    let neighbours = machine::neighbours(state, programs, pin_dir);
    let mut findings = vec![
        attaching::program(name, &owner, &at_tc),
        attaching::native(link, &owner, &native, asked, &at_tc),
        attaching::mtu(state, &owner, &native, &at_tc),
        place::device(link, links, asked),
        frames::tags(name, &changes, &peer(link, links)),
        frames::joined(name, &changes, attaching::is_generic(&owner, &native)),
        frames::queues(name, &machine::queues(link), machine::cpus()),
        neighbours::behind(name, &filters, &neighbours, may_bpf),
        neighbours::before(name, &neighbours, may_bpf),
        neighbours::limiters(name, &neighbours, may_bpf),
    ];
    findings.extend(frames::waiting(name, &queueing(name), status));
    findings
}

/// The other end of a veth pair.
fn peer(link: &Link, links: &[Link]) -> Peer {
    let Some(below) = link.below.filter(|_| link.is("veth")) else { return Peer::None };
    match links.iter().find(|other| below.is_here && other.index == below.index) {
        Some(peer) => Peer::Here(peer.name.clone(), offloads(&peer.name)),
        None => Peer::Elsewhere,
    }
}

fn session(client: &Client, status: Option<&Status>) -> Vec<Finding> {
    let peer = own_session().map(|session| session.peer);
    let spared: Option<Vec<String>> = status.map(|status| {
        let lists = client.get::<Lists>("/v1/lists").unwrap_or_default().entries;
        let allowed = lists.into_iter().filter(|entry| entry.list == ListName::Allow);
        status.management.iter().cloned().chain(allowed.map(|entry| entry.source)).collect()
    });
    let mut findings = vec![ssh::session(peer, spared.as_deref(), client.socket())];
    if let Some(peer) = peer {
        findings.push(way(peer));
    }
    findings
}

fn way(peer: std::net::IpAddr) -> Finding {
    let by = match machine::interface_towards(peer) {
        Ok(index) => index,
        Err(error) => return ssh::way(peer, Err(error.to_string())),
    };
    match machine::links() {
        Ok(links) => {
            let link = links.iter().find(|link| Some(link.index) == by);
            ssh::way(peer, Ok(link.map(|link| link.name.as_str())))
        }
        Err(error) => ssh::way(peer, Err(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
