//! `cargo xtask accuracy`: measures delivered against configured rates and writes
//! `docs/accuracy.md` and its chart.

use std::env;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::{process, supervise, workspace};

/// What the measurement writes.
const FILES: [&str; 2] = ["accuracy.md", "accuracy.svg"];

/// What `accuracy` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Fewer loads and shorter measurements: under two minutes instead of ten
    #[arg(long)]
    quick: bool,
}

/// Sets up, builds, measures as root, and puts the results into the checkout as this user.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let privilege = Privilege::find();
    if privilege == Privilege::None {
        return Err(Refused::new(
            "the measurement makes network namespaces and loads an XDP program, which needs root, \
             and there is no sudo that could be asked",
            "run `cargo xtask accuracy` as root or install sudo",
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::Accuracy)?;
    let limiter = workspace::build(&toolchain, "limiter-userspace", "limiter", false)?;
    let program = workspace::build(&toolchain, "limiter-tests", "limiter-accuracy", false)?;
    let output = tempfile::tempdir().context("no directory for the results could be made")?;
    let mut kept = vec![("LIMITER_BIN", limiter.into_os_string())];
    kept.extend(env::var_os("RUST_BACKTRACE").map(|value| ("RUST_BACKTRACE", value)));
    let mut command = process::as_root(privilege, program, &kept);
    command.arg("--output").arg(output.path());
    if arguments.quick {
        command.arg("--quick");
    }
    eprintln!("xtask: {}", process::shown(&command));
    let code = supervise::run(&mut command, privilege)?;
    // A limit that was not held is published too, and is the exit code.
    let docs = workspace::root()?.join("docs");
    for name in FILES {
        let (from, to) = (output.path().join(name), docs.join(name));
        if fs::exists(&from)? {
            fs::create_dir_all(&docs)
                .and_then(|()| fs::write(&to, fs::read(&from)?))
                .with_context(|| format!("cannot write {}", to.display()))?;
            println!("{}", to.display());
        }
    }
    Ok(code)
}
