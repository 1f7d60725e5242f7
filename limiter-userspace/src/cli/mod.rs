//! The command line: arguments, one request, one answer.
//!
//! Exit codes: 0 done; 2 refused, with one line on stderr that names the remedy; 1 a failure of the
//! daemon or the kernel.

mod args;
mod bans;
mod commands;
mod explain;
mod failure;
mod lists;
mod render;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::daemon::Backend;

pub use args::Args;
pub use failure::Failure;

/// Parses the arguments of this process and does what they say.
pub fn main(backend: &dyn Backend) -> ExitCode {
    // Wrong arguments end here, with clap's own words and exit code 2.
    let args = Args::parse();
    match commands::execute(&args, backend) {
        Ok(output) => print(&output),
        Err(failure) => {
            eprintln!("limiter: {failure}");
            failure.exit_code()
        }
    }
}

/// Prints the answer; a reader that went away early (`| head`) is no failure.
fn print(output: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("limiter: cannot write to standard output: {error}: check where it goes");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests;
