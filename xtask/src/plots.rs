//! `cargo xtask plots`: what each algorithm admits, drawn by its own code and side by side, what
//! nodes that share a limit pass, by the simulator of their tests, and the tables of pages, out of
//! `bench/results`.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::setup::{self, Tools};
use crate::{process, workspace};

/// Directory of the plots, in the checkout.
const DIRECTORY: &str = "docs/plots";

/// Options of `plots`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing, and fail if a plot or a table is not what the code makes
    #[arg(long)]
    check: bool,
}

/// Draws or checks all plots and tables.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let toolchain = setup::ensure(Tools::None)?;
    process::run(&mut command(&toolchain, arguments.check)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The program that draws or checks them.
pub(crate) fn command(toolchain: &str, check: bool) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(["run", "--manifest-path", workspace::BENCH, "--target-dir", "target"]);
    cargo.args(["--package", "limiter-plots", "--", DIRECTORY]);
    if check {
        cargo.arg("--check");
    }
    Ok(cargo)
}
