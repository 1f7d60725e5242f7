//! `limiter demo`: the sandbox, which is a program of its own, so that nothing of it is in the
//! daemon.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use super::failure::Failure;
use super::output::Output;

const PROGRAM: &str = "limiter-sandbox";

/// Place of the program in the packages, from the directory of `limiter`.
const PACKAGED: &str = "../libexec/limiter";

/// Longest run, in seconds, that the sandbox has room for.
const LONGEST: u64 = 600;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Two network namespaces, a cable between them, a daemon on it, six \
    senders and a table: what each may send, and what arrives. With --requests: nginx, which has \
    to be installed, asks `limiter serve` before a small server answers, and a sender that does \
    not stop is dropped by the XDP program. With --delay: datagrams and a TCP stream over their \
    limits wait, which takes a kernel with fq. Daemon and nginx have sockets, pins and files of \
    their own.\n\n\
    Exit code: 0 if every sender was held to its limit, 1 if one was not or the run broke off, 2 \
    if it could not run, 130 if it was interrupted.")]
pub(super) struct Ask {
    /// How long to send [default: 10, or 5 with --requests or --delay]
    #[arg(long, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    duration: Option<u64>,
    /// Limit requests to a web server, instead of packets
    #[arg(long, conflicts_with_all = ["rules", "keep_going"])]
    requests: bool,
    /// Let what goes out wait instead of dropping it
    #[arg(long, conflicts_with_all = ["rules", "keep_going", "requests"])]
    delay: bool,
    /// Rule file in the place of the built-in one; it must limit the addresses that the demo sends
    /// from
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Keep all of it until Ctrl-C when the measurement is over, for a look inside
    #[arg(long)]
    keep_going: bool,
}

/// Replaces this process by the sandbox; returns only if that fails.
pub(super) fn demo(ask: &Ask, output: Output) -> Failure {
    let mut sandbox = match sandbox() {
        Ok(sandbox) => sandbox,
        Err(failure) => return failure,
    };
    if let Some(duration) = ask.duration {
        sandbox.args(["--duration", &duration.to_string()]);
    }
    if ask.requests {
        sandbox.arg("--requests");
    }
    if ask.delay {
        sandbox.arg("--delay");
    }
    if let Some(rules) = &ask.rules {
        sandbox.arg("--rules").arg(rules);
    }
    if ask.keep_going {
        sandbox.arg("--keep-going");
    }
    if let Err(failure) = printing(&mut sandbox, output) {
        return failure;
    }
    become_it(sandbox)
}

/// The sandbox, which uses this program.
pub(super) fn sandbox() -> Result<Command, Failure> {
    let limiter = env::current_exe()
        .map_err(|error| Failure::Demo(format!("cannot find this program: {error}")))?;
    let places = places(&limiter);
    let Some(program) = places.iter().find(|place| place.is_file()) else {
        let looked = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>();
        return Err(Failure::Demo(format!(
            "{PROGRAM} is not installed (looked for {}): it is in the packages; in a checkout run \
             `cargo xtask run`",
            looked.join(" and ")
        )));
    };
    let mut sandbox = Command::new(program);
    sandbox.arg("--limiter").arg(&limiter);
    Ok(sandbox)
}

/// Tells the sandbox how to print.
pub(super) fn printing(sandbox: &mut Command, output: Output) -> Result<(), Failure> {
    match output {
        Output::Table => {}
        Output::Json => {
            sandbox.arg("--json");
        }
        Output::Yaml => {
            return Err(Failure::Demo("it prints no YAML: ask for --output json".to_owned()));
        }
    }
    Ok(())
}

/// Replaces this process by the sandbox; returns only if that fails.
pub(super) fn become_it(mut sandbox: Command) -> Failure {
    let error: io::Error = sandbox.exec();
    let program = sandbox.get_program().display().to_string();
    Failure::Demo(format!("{program}: cannot be started: {error}"))
}

/// Places of the program: beside `limiter`, as it is built, and where packages have it.
fn places(limiter: &Path) -> [PathBuf; 2] {
    let directory = limiter.parent().unwrap_or(Path::new("/"));
    [directory.join(PROGRAM), directory.join(PACKAGED).join(PROGRAM)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_is_looked_for_beside_and_where_packages_have_it() {
        let places = places(Path::new("/usr/bin/limiter"));
        assert_eq!(places[0], Path::new("/usr/bin/limiter-sandbox"));
        assert_eq!(places[1], Path::new("/usr/bin/../libexec/limiter/limiter-sandbox"));
    }
}
