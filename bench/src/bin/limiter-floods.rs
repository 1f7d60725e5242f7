//! Floods limiter and its peers with packets from sources that were never seen, and writes
//! `floods.tsv` and `floods.svg`. Exit codes: 0 it was measured; 1 the run broke off; 2 it could
//! not run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use limiter_bench::floods::run::{self, Options};
use limiter_tests::root::is_root;

/// Measures what conforming sources get in a flood of new sources.
#[derive(Debug, Parser)]
#[command(name = "limiter-floods", version)]
struct Args {
    /// The directory for the results and the picture.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/results")]
    output: PathBuf,
    /// Entries of every table.
    #[arg(long, value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1_024..=1 << 20))]
    entries: u32,
    /// Fewer rates, shorter, once: under a minute.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let Args { output, entries, quick } = Args::parse();
    if !is_root() {
        eprintln!("limiter-floods: it makes network namespaces and loads BPF: run it as root");
        return ExitCode::from(2);
    }
    if let Err(error) = limiter_tests::limiter::binary() {
        eprintln!("limiter-floods: {error:#}");
        return ExitCode::from(2);
    }
    match run::run(&Options { output, entries, quick }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limiter-floods: {error:#}");
            ExitCode::from(1)
        }
    }
}
