//! `cargo xtask`: sets up, builds, runs, tests and checks limiter. Every command does the set-up it
//! needs by itself, says what it installs before it does, and writes its own talk to standard
//! error.
//!
//! The measurements of `bench/xtask` use the public part as a library.

pub mod arch;
mod build;
mod captures;
mod check;
mod cross;
mod dist;
pub mod failure;
mod fuzz;
mod lines;
mod measure;
mod partners;
mod plots;
mod privilege;
pub mod process;
mod run;
pub mod setup;
pub mod summary;
mod supervise;
mod test;
pub mod vm;
pub mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Sets up, builds, runs, tests and checks limiter.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find the eBPF toolchain and the tools of run and test, or install them
    Setup(setup::Arguments),
    /// Build the `limiter` binary with the XDP program in it
    Build(build::Arguments),
    /// Run the sandbox, or with --iface the daemon on a real interface
    Run(run::Arguments),
    /// Run the tests: host, kernel, end to end
    Test(test::Arguments),
    /// Try limiter beside real proxies, stores, engines and others: the table of docs/tested-on.md
    Partners(partners::Arguments),
    /// Run the kernel tests on other kernels, emulated
    Vm(vm::Arguments),
    /// Draw the plots of docs/ again, and write the tables of the results in bench/results into its
    /// pages, or check both
    Plots(plots::Arguments),
    /// Measure delivered against configured rates
    Accuracy(measure::Arguments),
    /// Measure what arrives in floods, beside hashlimit and nft
    Floods(measure::Arguments),
    /// Take the pictures of `limiter top` in docs/ again
    Screenshots(measure::Arguments),
    /// Measure what limiter costs, and write the results into bench/results; or with the word
    /// build, cards, devices or figures: the cost of building limiter, its cards, devices and
    /// figures on other kernels
    Bench(measure::Arguments),
    /// Record the captures of the tests again, with tshark's answers on them
    Captures(captures::Arguments),
    /// Run the fuzz targets for long: packet parser, rule files, decision, importer
    Fuzz(fuzz::Arguments),
    /// Make the packages of a release: deb, rpm, tarball, SBOM
    Dist(dist::Arguments),
    /// Check format, lints, documentation, licences, spelling and lines
    Check(check::Arguments),
}

/// Runs the command line; the code to end with.
pub fn main() -> ExitCode {
    // Clap ends with 2 on bad arguments by itself, as everything here does.
    let result = match Arguments::parse().command {
        Command::Setup(arguments) => setup::main(&arguments),
        Command::Build(arguments) => build::main(&arguments),
        Command::Run(arguments) => run::main(&arguments),
        Command::Test(arguments) => test::main(&arguments),
        Command::Partners(arguments) => partners::main(&arguments),
        Command::Vm(arguments) => vm::main(&arguments),
        Command::Plots(arguments) => plots::main(&arguments),
        Command::Accuracy(arguments) => measure::main("limiter-accuracy", &arguments),
        Command::Floods(arguments) => measure::main("limiter-floods", &arguments),
        Command::Screenshots(arguments) => measure::main("limiter-screenshots", &arguments),
        Command::Bench(arguments) => measure::bench(&arguments),
        Command::Captures(arguments) => captures::main(&arguments),
        Command::Fuzz(arguments) => fuzz::main(&arguments),
        Command::Dist(arguments) => dist::main(&arguments),
        Command::Check(arguments) => check::main(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        failure::exit_code(&error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = ["cargo xtask"].into_iter().chain(line.split(' '));
        Arguments::try_parse_from(words).map(|arguments| arguments.command)
    }

    #[test]
    fn words_behind_bench_are_handed_on() {
        for line in ["bench packets --quick", "bench --check packets path", "bench --help"] {
            let Command::Bench(arguments) = parse(line).unwrap() else { panic!("{line}") };
            let words: Vec<_> = line.split(' ').skip(1).collect();
            assert_eq!(arguments.arguments, words, "{line}");
        }
    }
}
