//! `cargo xtask bench`, `accuracy`, `floods` and `screenshots`: start the programs of `bench/`, and
//! put the results that they write into `bench/results`, and the pictures into `docs/`. What
//! measures checkouts and other kernels writes its page itself.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::{process, supervise, workspace};

/// Options of a measurement.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Passed on to the program; `--help` says which there are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// A peer that no package of Debian has.
const THROTTLECRAB: &str = "throttlecrab-server@0.4.40";

/// Words behind `bench` that begin the arguments of `limiter-bench-xtask`.
const OF_XTASK: [&str; 4] = ["build", "cards", "devices", "figures"];

/// Runs the program of a measurement: `limiter-bench`, or the one for [`OF_XTASK`].
pub(crate) fn bench(arguments: &Arguments) -> Result<ExitCode> {
    let first = arguments.arguments.first();
    if !first.is_some_and(|word| OF_XTASK.iter().any(|own| word == own)) {
        return main("limiter-bench", arguments);
    }
    let program = workspace::build_light(&setup::ensure(Tools::None)?, "limiter-bench-xtask")?;
    let mut command = process::command(program);
    command.args(&arguments.arguments);
    let status = command.status().with_context(|| process::shown(&command))?;
    Ok(supervise::code_of(status))
}

/// Sets up, builds, runs `program` as root, and puts what it wrote into the checkout as this user.
/// A program writes nothing that is not to be published.
pub(crate) fn main(program: &str, arguments: &Arguments) -> Result<ExitCode> {
    let privilege = Privilege::find();
    if privilege == Privilege::None {
        return Err(Refused::new(
            "the measurement makes network namespaces and loads an XDP program, which needs root, \
             and there is no sudo that could be asked",
            "run it as root or install sudo",
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::Peers)?;
    let limiter = workspace::build(&toolchain, "limiter-userspace", "limiter", false)?;
    let root = workspace::root()?;
    let peers = root.join("target/peers");
    if program == "limiter-bench" {
        // Nothing happens if it is there.
        let mut install = workspace::cargo(&toolchain)?;
        install.args(["install", "--locked", THROTTLECRAB, "--root"]).arg(&peers);
        process::run(&mut install)?;
    }
    let program = workspace::build_measurement(&toolchain, program)?;
    let output = tempfile::tempdir().context("no directory for the results could be made")?;
    let throttlecrab = peers.join("bin/throttlecrab-server").into_os_string();
    let mut kept = vec![("LIMITER_BIN", limiter.into_os_string())];
    kept.push(("LIMITER_THROTTLECRAB", throttlecrab));
    kept.extend(env::var_os("RUST_BACKTRACE").map(|value| ("RUST_BACKTRACE", value)));
    let mut command = process::as_root(privilege, program, &kept);
    command.arg("--output").arg(output.path()).args(&arguments.arguments);
    command.current_dir(&root);
    eprintln!("xtask: {}", process::shown(&command));
    let code = supervise::run(&mut command, privilege)?;
    let mut written: Vec<_> = fs::read_dir(output.path())
        .and_then(Iterator::collect)
        .context("the directory of the results is gone")?;
    written.sort_by_key(fs::DirEntry::file_name);
    let mut has_results = false;
    for from in written {
        let is_result = from.path().extension().is_some_and(|extension| extension == "tsv");
        has_results |= is_result;
        let to = root.join(if is_result { "bench/results" } else { "docs" });
        let to = to.join(from.file_name());
        fs::read(from.path())
            .and_then(|bytes| fs::write(&to, bytes))
            .with_context(|| format!("cannot write {}", to.display()))?;
        println!("{}", to.display());
    }
    if has_results {
        eprintln!("xtask: `cargo xtask plots` makes the tables and plots of these results");
    }
    Ok(code)
}
