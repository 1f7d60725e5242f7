//! `cargo xtask bench`: measures what limiter costs.

use std::process::ExitCode;

use anyhow::Result;

use crate::measure;

const PAGE: &str = "performance.md";

/// The words behind `cargo xtask`.
const PACKETS: &str = "bench packets";

/// What `bench` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// What is measured.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Nanoseconds a packet, by test-run, beside the least that a program could do; about four minutes
    Packets {
        /// Fewer cases and rounds: under a minute
        #[arg(long)]
        quick: bool,
    },
}

/// Measures, and puts the results into the checkout as this user.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let What::Packets { quick } = arguments.what;
    let options = if quick { vec!["--quick".to_owned()] } else { Vec::new() };
    let (code, output) = measure::run(PACKETS, "limiter-bench", &options)?;
    if code == ExitCode::SUCCESS {
        measure::splice_in(PACKETS, PAGE, output.path())?;
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_marks() {
        assert!(measure::has_marks(PACKETS, PAGE).unwrap());
    }
}
