//! `cargo xtask build`.

use std::process::ExitCode;

use anyhow::Result;

use crate::setup::{self, Tools};
use crate::workspace;

/// Options of `build`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Build without optimisation
    #[arg(long)]
    debug: bool,
}

/// Sets up, builds, and prints where the program is.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let toolchain = setup::ensure(Tools::None)?;
    let limiter = workspace::build(&toolchain, "limiter-userspace", "limiter", arguments.debug)?;
    println!("{}", limiter.display());
    Ok(ExitCode::SUCCESS)
}
