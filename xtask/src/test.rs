//! `cargo xtask test`: every test there is, and one line that says how it went.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read as _, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::summary::{Reader, Tally, listed};
use crate::{process, vm, workspace};

/// Tells the end-to-end tests where the binary is, so that they all drive the same one.
const BINARY_VARIABLE: &str = "LIMITER_BIN";
const HOST_PACKAGES: [&str; 4] =
    ["limiter-common", "limiter-userspace", "limiter-fuzz-targets", "xtask"];
const KERNEL_PACKAGE: &str = "limiter-tests";

/// What `test` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only tests whose name contains this
    filter: Option<String>,
    /// Leave out the kernel and end-to-end tests, which need root
    #[arg(long)]
    host_only: bool,
}

/// Sets up, runs the tests, and fails if one failed or none was found.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let privilege = Privilege::find();
    let in_ci = env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    if in_ci && privilege == Privilege::None && !arguments.host_only {
        return Err(Refused::new(
            "the kernel tests need root, and CI does not skip them",
            "run as root or allow sudo without a password, or pass --host-only",
        )
        .into());
    }
    let tools = if arguments.host_only { Tools::None } else { Tools::Test };
    let toolchain = setup::ensure(tools)?;
    let mut tally = host(arguments, &toolchain)?;
    tally += if arguments.host_only || privilege == Privilege::None {
        let skipped = count(arguments, &toolchain)?;
        let why = if arguments.host_only { "--host-only" } else { "not root, and no sudo" };
        println!(
            "xtask: NOT RUN: {skipped} kernel and end-to-end tests of {KERNEL_PACKAGE} ({why})"
        );
        Tally { skipped, ..Tally::default() }
    } else {
        kernel(arguments, &toolchain, privilege)?
    };
    tally += other_kernels(arguments, in_ci)?;
    if let (Some(filter), 0) = (&arguments.filter, tally.total()) {
        return Err(Refused::new(
            format!("no test has `{filter}` in its name"),
            "see `cargo test --workspace -- --list`",
        )
        .into());
    }
    println!("{tally}");
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tests that need no privilege.
fn host(arguments: &Arguments, toolchain: &str) -> Result<Tally> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(["test", "--no-fail-fast"]);
    for package in HOST_PACKAGES {
        cargo.args(["--package", package]);
    }
    cargo.args(&arguments.filter);
    stream(&mut cargo, arguments, &mut io::stdout())
}

/// The tests against the kernel, one at a time: they share its namespaces, links and pins.
fn kernel(arguments: &Arguments, toolchain: &str, privilege: Privilege) -> Result<Tally> {
    let limiter = workspace::build(toolchain, "limiter-userspace", "limiter", false)?;
    let mut cargo = kernel_tests(arguments, toolchain)?;
    cargo.env(BINARY_VARIABLE, limiter);
    if privilege == Privilege::Sudo {
        // Cargo builds as the user; only the test binaries run as root.
        let [name, runner] = sudo_runner(&host_triple()?);
        cargo.env(name, runner);
    }
    stream(cargo.arg("--test-threads=1"), arguments, &mut io::stdout())
}

fn kernel_tests(arguments: &Arguments, toolchain: &str) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(["test", "--no-fail-fast", "--package", KERNEL_PACKAGE]);
    cargo.args(&arguments.filter).arg("--");
    Ok(cargo)
}

/// The kernel tests on other kernels. Where those cannot be had, that is said and counted; CI must have
/// them.
fn other_kernels(arguments: &Arguments, in_ci: bool) -> Result<Tally> {
    if arguments.host_only {
        return Ok(without_kernels("--host-only"));
    }
    match vm::quick(arguments.filter.as_deref()) {
        Err(error) if error.downcast_ref::<Refused>().is_some() && !in_ci => {
            Ok(without_kernels(&format!("{error:#}")))
        }
        result => result,
    }
}

fn without_kernels(why: &str) -> Tally {
    let kernels = vm::KERNELS;
    println!("xtask: NOT RUN: any test on Linux {} ({why})", kernels.join(" and "));
    // One for each kernel: what could not be set up cannot be counted.
    Tally { skipped: kernels.len() as u64, ..Tally::default() }
}

/// How many kernel tests there are, for those that are not run.
fn count(arguments: &Arguments, toolchain: &str) -> Result<u64> {
    let mut cargo = kernel_tests(arguments, toolchain)?;
    let list = process::output(cargo.args(["--list", "--format", "terse"]))?;
    Ok(listed(&list))
}

/// Runs cargo, shows its output as it comes, and adds up the closing lines in it.
fn stream(cargo: &mut Command, arguments: &Arguments, out: &mut impl Write) -> Result<Tally> {
    let shown = process::shown(cargo);
    let writing = "writing the tests' output";
    writeln!(out, "xtask: {shown}").context(writing)?;
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{shown} could not be started"))?;
    let mut output = child.stdout.take().context("cargo has no standard output")?;
    let mut reader = Reader::default();
    let mut piece = [0; 4096];
    loop {
        let length = output.read(&mut piece).with_context(|| format!("{shown}: reading"))?;
        let Some(read @ [_, ..]) = piece.get(..length) else { break };
        out.write_all(read).and_then(|()| out.flush()).context(writing)?;
        reader.push(read);
    }
    let status = child.wait().with_context(|| format!("{shown}: waiting for it"))?;
    let mut tally = reader.finish();
    let without = if !status.success() && tally.failed == 0 {
        // Not built, or a test binary ended before its closing line.
        format!("failed ({status}) without naming a test")
    } else if status.success() && tally.total() == 0 && arguments.filter.is_none() {
        "found no test".to_owned()
    } else {
        return Ok(tally);
    };
    tally.failed = 1;
    writeln!(out, "xtask: {shown} {without}: counted as one failure").context(writing)?;
    Ok(tally)
}

/// The variable that makes cargo start test binaries through sudo, and its value.
fn sudo_runner(triple: &str) -> [OsString; 2] {
    let triple = triple.to_uppercase().replace('-', "_");
    let mut runner = OsString::from("sudo -E env PATH=");
    runner.push(process::search_path());
    [format!("CARGO_TARGET_{triple}_RUNNER").into(), runner]
}

fn host_triple() -> Result<String> {
    let version = process::output(process::command("rustc").arg("-vV"))?;
    let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("`rustc -vV` names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, filter: Option<&str>) -> Tally {
        let arguments = Arguments { filter: filter.map(str::to_owned), host_only: true };
        // Not to standard output: an outer `cargo xtask test` would count the lines.
        stream(Command::new("sh").args(["-c", script]), &arguments, &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_run_without_a_result_is_a_failure() {
        assert_eq!(run("exit 101", None), Tally { failed: 1, ..Tally::default() });
        assert_eq!(run("exit 101", Some("x")), Tally { failed: 1, ..Tally::default() });
        assert_eq!(run("true", None), Tally { failed: 1, ..Tally::default() });
        assert_eq!(run("true", Some("x")), Tally::default());
    }

    #[test]
    fn results_are_added_up() {
        let line =
            "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'";
        let tally = run(&format!("{line}; {line}"), None);
        assert_eq!(tally, Tally { passed: 4, failed: 0, skipped: 2 });
    }

    #[test]
    fn the_runner_s_variable_is_cargo_s() {
        let [name, _] = sudo_runner("x86_64-unknown-linux-gnu");
        assert_eq!(name, "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER");
    }
}
