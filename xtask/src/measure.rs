//! What the measurements have in common: they are built, and run as root into a directory of their own.

use std::env;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::{process, supervise, workspace};

/// Sets up, builds and runs a measuring program of limiter-tests; returns its exit code, and the
/// directory with what it wrote.
pub(crate) fn run(command: &str, program: &str, options: &[String]) -> Result<(ExitCode, TempDir)> {
    let privilege = Privilege::find();
    if privilege == Privilege::None {
        return Err(Refused::new(
            "the measurement makes network namespaces and loads an XDP program, which needs root, \
             and there is no sudo that could be asked",
            format!("run `cargo xtask {command}` as root or install sudo"),
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::Peers)?;
    let limiter = workspace::build(&toolchain, "limiter-userspace", "limiter", false)?;
    let program = workspace::build(&toolchain, "limiter-tests", program, false)?;
    let output = tempfile::tempdir().context("no directory for the results could be made")?;
    let mut kept = vec![("LIMITER_BIN", limiter.into_os_string())];
    kept.extend(env::var_os("RUST_BACKTRACE").map(|value| ("RUST_BACKTRACE", value)));
    let mut command = process::as_root(privilege, program, &kept);
    command.arg("--output").arg(output.path()).args(options);
    eprintln!("xtask: {}", process::shown(&command));
    let code = supervise::run(&mut command, privilege)?;
    Ok((code, output))
}
