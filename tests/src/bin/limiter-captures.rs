//! Records the captures of the tests, and tshark's answers on them. Exit codes: 0 they are written;
//! 1 the run broke off; 2 it could not run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use limiter_tests::captures::record;
use limiter_tests::root::is_root;

/// Records captures of ping, dig, iperf3, hping3 and scapy.
#[derive(Debug, Parser)]
#[command(name = "limiter-captures", version)]
struct Args {
    /// The directory of the captures.
    #[arg(long, value_name = "DIRECTORY")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !is_root() {
        eprintln!("limiter-captures: it makes network namespaces: run it as root");
        return ExitCode::from(2);
    }
    match record::all(&args.output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limiter-captures: {error:#}");
            ExitCode::from(1)
        }
    }
}
