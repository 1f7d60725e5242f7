//! Measures what a packet costs, and writes a part of `performance.md`. Exit codes: 0 it was measured; 1 the run broke
//! off; 2 it could not run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use limiter_tests::bench::packets::run::{self, Options};
use limiter_tests::root::is_root;

/// Measures nanoseconds a packet, by test-run.
#[derive(Debug, Parser)]
#[command(name = "limiter-bench", version)]
struct Args {
    /// The directory of performance.md.
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    output: PathBuf,
    /// Fewer cases and rounds.
    #[arg(long)]
    quick: bool,
    /// Only the cases under this heading.
    #[arg(long, value_name = "HEADING")]
    only: Option<String>,
}

fn main() -> ExitCode {
    let Args { output, quick, only } = Args::parse();
    if !is_root() {
        eprintln!("limiter-bench: it loads BPF programs: run it as root");
        return ExitCode::from(2);
    }
    match run::run(&Options { output, quick, only }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limiter-bench: {error:#}");
            ExitCode::from(1)
        }
    }
}
