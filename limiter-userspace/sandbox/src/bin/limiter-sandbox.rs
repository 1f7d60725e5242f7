//! Runs limiter in a sandbox of network namespaces and measures it, on one node or on several that
//! share a limit; limits requests before a server; lets packets wait instead of dropping them;
//! observes its senders and limits them as is proposed; or compares the rules of another program
//! with their translation. Exit codes: 0 every source was held to its limit, or nothing differs
//! that was not named; 1 otherwise, or the run broke off; 2 it could not run; 130 interrupted.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Parser};
use limiter_sandbox::cluster;
use limiter_sandbox::cluster::nodes::MOST;
use limiter_sandbox::compare;
use limiter_sandbox::delay;
use limiter_sandbox::requests;
use limiter_sandbox::sandbox::plan::Direction;
use limiter_sandbox::sandbox::{self, Failure, LONGEST, Options, Outcome, tune};

/// Limits traffic from several sources on a virtual cable, and measures what arrives.
#[derive(Debug, Parser)]
#[command(name = "limiter-sandbox", version)]
#[command(group(ArgGroup::new("kind").args(["cluster", "requests", "delay", "tune", "compare"])))]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
struct Args {
    /// The limiter binary.
    #[arg(long, value_name = "PATH", default_value = "target/release/limiter")]
    limiter: PathBuf,
    /// The rule file; examples/sandbox.yaml as this was built, if none is given.
    #[arg(long, value_name = "FILE", conflicts_with = "kind")]
    rules: Option<PathBuf>,
    /// Run so many nodes that share a limit, and stop their redis-server for a while.
    #[arg(long, value_name = "NODES",
          value_parser = clap::value_parser!(u8).range(2..=i64::from(MOST)))]
    cluster: Option<u8>,
    /// Limit requests that a real nginx asks about, and drop one of the senders at the card.
    #[arg(long)]
    requests: bool,
    /// Let what goes out wait instead of dropping it, and measure how long.
    #[arg(long)]
    delay: bool,
    /// Observe senders, put the limit in force that `limiter tune` proposes, and send again.
    #[arg(long)]
    tune: bool,
    /// Limit what comes in, or what goes out.
    #[arg(long, default_value = "in", conflicts_with = "kind")]
    direction: Direction,
    /// How long to send: 10, or 20 with --cluster, which takes 8 or more; 5 with --requests; with
    /// --delay or --tune 5, several times.
    #[arg(long, value_name = "SECONDS", conflicts_with = "compare",
          value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    duration: Option<u64>,
    /// Print one JSON document instead of the last table.
    #[arg(long)]
    json: bool,
    /// Compare the rules of another program in this file with their translation.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// The format of that file, as `limiter import` names it; without it, it is looked for.
    #[arg(long, requires = "compare")]
    format: Option<String>,
    /// Keep the sandbox until Ctrl-C when the measurement is over, for a look inside.
    #[arg(long, conflicts_with = "kind")]
    keep_going: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seconds = |default| Duration::from_secs(args.duration.unwrap_or(default));
    if let Some(file) = args.compare {
        let Args { limiter, format, json, .. } = args;
        return ended(compare::run(&compare::Options { limiter, file, format, json }));
    }
    if args.requests {
        let Args { limiter, json, .. } = args;
        return ended(requests::run(&requests::Options { duration: seconds(5), limiter, json }));
    }
    if args.delay {
        let Args { limiter, json, .. } = args;
        return ended(delay::run(&delay::Options { duration: seconds(5), limiter, json }));
    }
    if args.tune {
        let Args { limiter, json, .. } = args;
        let duration = seconds(5);
        let (rules, keep_going, direction) = (None, false, Direction::In);
        return ended(tune::run(&Options {
            duration,
            limiter,
            rules,
            json,
            keep_going,
            direction,
        }));
    }
    let outcome = match args.cluster {
        Some(nodes) => cluster::run(&cluster::Options {
            duration: seconds(20),
            limiter: args.limiter,
            nodes,
            json: args.json,
        }),
        None => sandbox::run(&Options {
            duration: seconds(10),
            limiter: args.limiter,
            rules: args.rules,
            direction: args.direction,
            json: args.json,
            keep_going: args.keep_going,
        }),
    };
    ended(outcome)
}

fn ended(outcome: Result<Outcome, Failure>) -> ExitCode {
    match outcome {
        Ok(Outcome::Pass) => ExitCode::SUCCESS,
        Ok(Outcome::Fail) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => {
            eprintln!("limiter-sandbox: interrupted, no result");
            ExitCode::from(130)
        }
        Err(Failure::BrokeOff(error)) => {
            eprintln!("limiter-sandbox: {error:#}");
            ExitCode::from(1)
        }
        Err(Failure::CouldNotRun(error)) => {
            eprintln!("limiter-sandbox: cannot run: {error:#}");
            ExitCode::from(2)
        }
    }
}
