//! Takes the pictures of `limiter top` and of the page for the documentation. Exit codes: 0 they
//! were taken; 1 the run broke off; 2 it could not run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use limiter_bench::screenshots::take;
use limiter_tests::root::is_root;

/// Takes the pictures of `limiter top` and of the page.
#[derive(Debug, Parser)]
#[command(name = "limiter-screenshots", version)]
struct Args {
    /// The directory of top.svg, top-source.svg and page.png.
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let Args { output } = Args::parse();
    if !is_root() {
        eprintln!("limiter-screenshots: it makes network namespaces and loads BPF: run it as root");
        return ExitCode::from(2);
    }
    if let Err(error) = limiter_tests::limiter::binary() {
        eprintln!("limiter-screenshots: {error:#}");
        return ExitCode::from(2);
    }
    match take::run(&output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limiter-screenshots: {error:#}");
            ExitCode::from(1)
        }
    }
}
