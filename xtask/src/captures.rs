//! `cargo xtask captures`: records the captures of the tests again, with tshark's answers.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::{process, supervise, workspace};

/// Directory of the captures, in the checkout.
const DIRECTORY: &str = "tests/captures";

/// Options of `captures`: none.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// Sets up, records as root, and puts the captures into the checkout as this user.
pub(crate) fn main(_arguments: &Arguments) -> Result<ExitCode> {
    let privilege = Privilege::find();
    if privilege == Privilege::None {
        return Err(Refused::new(
            "recording makes network namespaces, which needs root, and there is no sudo that could \
             be asked",
            "run `cargo xtask captures` as root or install sudo",
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::Captures)?;
    let program = workspace::build(&toolchain, "limiter-tests", "limiter-captures", true)?;
    let output = tempfile::tempdir().context("no directory for the captures could be made")?;
    let mut command = process::as_root(privilege, program, &[]);
    command.arg("--output").arg(output.path());
    eprintln!("xtask: {}", process::shown(&command));
    let code = supervise::run(&mut command, privilege)?;
    if code != ExitCode::SUCCESS {
        // Half of them would not be of one run.
        return Ok(code);
    }
    let directory = workspace::root()?.join(DIRECTORY);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for entry in fs::read_dir(output.path()).context("the captures cannot be listed")? {
        let from = entry.context("the captures cannot be listed")?;
        let to = directory.join(from.file_name());
        fs::read(from.path())
            .and_then(|bytes| fs::write(&to, bytes))
            .with_context(|| format!("cannot write {}", to.display()))?;
        println!("{}", to.display());
    }
    Ok(code)
}
