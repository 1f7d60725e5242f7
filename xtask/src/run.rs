//! `cargo xtask run`: the sandbox, of packets or requests, of one node or of several, or the daemon
//! on a real interface.

use std::env;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::{process, supervise, workspace};

/// Options of `run`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Arguments {
    /// Protect this interface instead of running the sandbox
    #[arg(long, value_name = "IFACE", requires = "rules")]
    #[arg(conflicts_with_all = ["duration", "json", "cluster", "requests", "delay", "tune"])]
    iface: Option<String>,
    /// Rule file for --iface
    #[arg(long, requires = "iface", value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Run so many nodes that share a limit, and stop their redis-server for a while
    #[arg(long, value_name = "NODES", num_args = 0..=1, default_missing_value = "3")]
    #[arg(value_parser = clap::value_parser!(u8).range(2..=16))]
    cluster: Option<u8>,
    /// Limit requests that a real nginx asks `limiter serve` about, and drop a sender at the card
    #[arg(long, conflicts_with_all = ["cluster", "delay", "tune"])]
    requests: bool,
    /// Let what goes out wait instead of dropping it, and measure how long
    #[arg(long, conflicts_with_all = ["cluster", "tune"])]
    delay: bool,
    /// Observe the senders of the sandbox, put the limit in force that `limiter tune` proposes, and
    /// send again
    #[arg(long, conflicts_with = "cluster")]
    tune: bool,
    /// Limit what comes in, in the sandbox, or what goes out
    #[arg(long, value_parser = ["in", "out"])]
    #[arg(conflicts_with_all = ["iface", "cluster", "requests", "delay", "tune"])]
    direction: Option<String>,
    /// Seconds of traffic in the sandbox: 10, or 20 with --cluster, which takes 8 or more; 5 with
    /// --requests; with --delay or --tune 5, several times
    #[arg(long, value_name = "SECS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    duration: Option<u32>,
    /// Print the sandbox's result as one JSON document
    #[arg(long)]
    json: bool,
    /// Passed on to the sandbox, or with --iface to `limiter run`
    #[arg(last = true)]
    extra: Vec<OsString>,
}

/// Sets up, builds, runs, and passes on the exit code.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    // Before minutes of building: without root neither form can do anything.
    let privilege = Privilege::find();
    if privilege == Privilege::None {
        return Err(Refused::new(
            "loading an XDP program needs root, and there is no sudo that could be asked",
            "run `cargo xtask run` as root or install sudo",
        )
        .into());
    }
    let tools = match arguments.cluster {
        Some(_) => Tools::Cluster,
        None if arguments.requests => Tools::Requests,
        None => Tools::Run,
    };
    let toolchain = setup::ensure(tools)?;
    let mut command = match (&arguments.iface, &arguments.rules) {
        (Some(iface), Some(rules)) => {
            let [limiter] = workspace::binaries(&toolchain, ["limiter"])?;
            let mut command = process::as_root(privilege, limiter, &kept());
            command.args(["run", "--iface", iface, "--rules"]).arg(rules);
            if let Some(peer) = env::var("SSH_CONNECTION").ok().and_then(|value| ssh_peer(&value)) {
                eprintln!("xtask: {peer} is never limited: this session comes from there");
                command.args(["--management", &peer.to_string()]);
            }
            command
        }
        _ => sandbox(arguments, privilege, &toolchain)?,
    };
    command.args(&arguments.extra);
    eprintln!("xtask: {}", process::shown(&command));
    supervise::run(&mut command, privilege)
}

/// The sandbox: network namespaces, traffic and the table are the program's own.
fn sandbox(arguments: &Arguments, privilege: Privilege, toolchain: &str) -> Result<Command> {
    let [limiter, program] = workspace::binaries(toolchain, ["limiter", "limiter-sandbox"])?;
    let mut command = process::as_root(privilege, program, &kept());
    command.arg("--limiter").arg(limiter);
    match arguments.cluster {
        Some(nodes) => command.args(["--cluster", &nodes.to_string()]),
        None if arguments.requests => command.arg("--requests"),
        None if arguments.delay => command.arg("--delay"),
        None if arguments.tune => command.arg("--tune"),
        None if arguments.direction.as_deref() == Some("out") => {
            command.args(["--direction", "out"])
        }
        None => command.arg("--rules").arg(workspace::root()?.join("examples/sandbox.yaml")),
    };
    if let Some(seconds) = arguments.duration {
        command.args(["--duration", &seconds.to_string()]);
    }
    if arguments.json {
        command.arg("--json");
    }
    Ok(command)
}

/// Variables that sudo would drop and the programs read.
fn kept() -> Vec<(&'static str, OsString)> {
    ["RUST_BACKTRACE", "NO_COLOR", "TERM"]
        .into_iter()
        .filter_map(|name| Some((name, env::var_os(name)?)))
        .collect()
}

/// The address at the other end of `SSH_CONNECTION`: "peer port own port". sudo drops the variable,
/// so the daemon cannot see it by itself.
fn ssh_peer(connection: &str) -> Option<IpAddr> {
    let peer = connection.split_whitespace().next()?;
    // A link-local address carries its interface: fe80::1%eth0.
    let address = peer.split_once('%').map_or(peer, |(address, _)| address);
    Some(address.parse::<IpAddr>().ok()?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ssh_peer_is_read() {
        let cases = [
            ("192.0.2.9 50022 192.0.2.1 22", Some("192.0.2.9")),
            ("2001:db8::9 50022 2001:db8::1 22", Some("2001:db8::9")),
            ("fe80::9%eth0 50022 fe80::1%eth0 22", Some("fe80::9")),
            ("::ffff:192.0.2.9 50022 ::1 22", Some("192.0.2.9")),
            ("", None),
            ("UNKNOWN 1 2 3", None),
        ];
        for (connection, peer) in cases {
            let expected = peer.map(|peer| peer.parse().unwrap());
            assert_eq!(ssh_peer(connection), expected, "{connection}");
        }
    }
}
