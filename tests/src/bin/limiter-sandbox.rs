//! Runs limiter in a sandbox of network namespaces and measures it. Exit codes: 0 every source was
//! held to its limit; 1 one was not, or the run broke off; 2 it could not run; 130 interrupted.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use limiter_tests::sandbox::{self, Failure, LONGEST, Options, Outcome};

/// Limits traffic from several sources on a virtual cable, and measures what arrives.
#[derive(Debug, Parser)]
#[command(name = "limiter-sandbox", version)]
struct Args {
    /// The limiter binary.
    #[arg(long, value_name = "PATH", default_value = "target/release/limiter")]
    limiter: PathBuf,
    /// The rule file.
    #[arg(long, value_name = "FILE", default_value = "examples/sandbox.yaml")]
    rules: PathBuf,
    /// How long to send.
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    duration: u64,
    /// Print one JSON document instead of the last table.
    #[arg(long)]
    json: bool,
    /// Keep the sandbox until Ctrl-C when the measurement is over, for a look inside.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let options = Options {
        limiter: args.limiter,
        rules: args.rules,
        duration: Duration::from_secs(args.duration),
        json: args.json,
        keep_going: args.keep_going,
    };
    match sandbox::run(&options) {
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
