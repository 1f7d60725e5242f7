//! `cargo xtask bench build`, `cards`, `devices` and `figures`: measurements of whole checkouts and
//! of other kernels, by the library of xtask.

mod build;
mod cards;
mod devices;
mod figures;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::failure;

/// Measures checkouts and other kernels.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what building and testing limiter costs
    Build(build::Arguments),
    /// Try limiter on each card that the emulator has: a table of docs/devices.md, which is
    /// compared
    Cards(cards::Arguments),
    /// Try which device takes which hook: the other table of docs/devices.md, which is compared
    Devices(devices::Arguments),
    /// Measure on other kernels, and write the figures into the pages in docs/
    Figures(figures::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Build(arguments) => build::main(&arguments),
        Command::Cards(arguments) => cards::main(&arguments),
        Command::Devices(arguments) => devices::main(&arguments),
        Command::Figures(arguments) => figures::main(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        failure::exit_code(&error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measurement_has_options_of_its_own() {
        for line in [
            "build --against HEAD~1 --suite",
            "build --only units",
            "cards --write 6.12",
            "devices --here",
            "figures --arch arm64 --filter lane",
        ] {
            let words = ["bench"].into_iter().chain(line.split(' '));
            Arguments::try_parse_from(words).unwrap();
        }
        let help = Arguments::try_parse_from(["bench", "build", "--help"]).unwrap_err();
        assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
        Arguments::try_parse_from(["bench", "cards", "--here"]).unwrap_err();
    }
}
