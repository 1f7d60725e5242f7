//! Measures delivered against configured rates, of limiter and of its peers, and writes
//! `accuracy.tsv`. Exit codes: 0 every limit of ours was held; 1 one was not, or
//! the run broke off; 2 it could not run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use limiter_bench::accuracy::run::{self, Options};
use limiter_tests::root::is_root;

/// Measures what limits deliver against what they are configured to.
#[derive(Debug, Parser)]
#[command(name = "limiter-accuracy", version)]
struct Args {
    /// The directory for the results.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/results")]
    output: PathBuf,
    /// Fewer loads, and shorter: under two minutes.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !is_root() {
        eprintln!("limiter-accuracy: it makes network namespaces and loads BPF: run it as root");
        return ExitCode::from(2);
    }
    if let Err(error) = limiter_tests::limiter::binary() {
        eprintln!("limiter-accuracy: {error:#}");
        return ExitCode::from(2);
    }
    match run::run(&Options { output: args.output, quick: args.quick }) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("limiter-accuracy: {error:#}");
            ExitCode::from(1)
        }
    }
}
