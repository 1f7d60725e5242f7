//! `cargo xtask test`: every test there is, and one line that says how it went.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::summary::{self, Tally};
use crate::{process, vm, workspace};

/// Tells the end-to-end tests where the binary is, so that they all drive the same one.
const BINARY_VARIABLE: &str = "LIMITER_BIN";
const HOST_PACKAGES: [&str; 5] =
    ["limiter-common", "limiter-decision", "limiter-userspace", "limiter-fuzz-targets", "xtask"];
const KERNEL_PACKAGE: &str = "limiter-tests";

/// Variables that make tests longer than their usual time limit.
const LONGER: [&str; 3] = ["LIMITER_STEPS", "LIMITER_FAULTS", "LIMITER_FUZZ_ROUNDS"];

/// The seed of proptest. A test that fails once in hundreds of runs is no verdict on a change: the
/// suite draws the same inputs every time, the nightly run and plain `cargo nextest run` new ones.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Not done by set-up: from source it takes longer than it saves.
const INSTALL_NEXTEST: &str = "cargo install --locked cargo-nextest";

/// Options of `test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only tests whose name contains this
    filter: Option<String>,
    /// Leave out the kernel and end-to-end tests, which need root
    #[arg(long)]
    host_only: bool,
    /// Run the tests of the measurements in bench/ instead, which need root
    #[arg(long, conflicts_with = "host_only")]
    bench: bool,
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
    if arguments.bench {
        return measurements(arguments, privilege);
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
    Ok(closing(tally))
}

/// The tests of the measurements: that they work, and that their peers do what limiter is compared
/// with.
fn measurements(arguments: &Arguments, privilege: Privilege) -> Result<ExitCode> {
    let toolchain = setup::ensure(Tools::Peers)?;
    let limiter = workspace::build(&toolchain, "limiter-userspace", "limiter", false)?;
    let mut cargo = workspace::cargo(&toolchain)?;
    cargo.args(["test", "--manifest-path", workspace::BENCH, "--target-dir", "target"]);
    cargo.args(["--no-fail-fast", "--package", "limiter-bench"]).args(&arguments.filter);
    cargo.args(["--", "--test-threads=1"]).env(BINARY_VARIABLE, limiter).envs(runner(privilege)?);
    let tally = libtest(&mut cargo, arguments.filter.is_some(), &mut io::stdout())?;
    Ok(closing(tally))
}

/// Prints the closing line; whether all went well.
fn closing(tally: Tally) -> ExitCode {
    println!("{tally}");
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests that need no privilege.
fn host(arguments: &Arguments, toolchain: &str) -> Result<Tally> {
    tests(&HOST_PACKAGES, arguments, || workspace::cargo(toolchain))
}

/// The tests against the kernel, one at a time: they share its namespaces, links and pins.
fn kernel(arguments: &Arguments, toolchain: &str, privilege: Privilege) -> Result<Tally> {
    let limiter = workspace::build(toolchain, "limiter-userspace", "limiter", false)?;
    let runner = runner(privilege)?;
    tests(&[KERNEL_PACKAGE], arguments, || {
        let mut cargo = workspace::cargo(toolchain)?;
        cargo.env(BINARY_VARIABLE, &limiter).envs(runner.clone());
        Ok(cargo)
    })
}

/// Runs the tests of some packages by nextest, which has time limits and groups
/// (.config/nextest.toml), and what it leaves out by cargo; all by cargo where there is no nextest.
fn tests(
    packages: &[&str],
    arguments: &Arguments,
    cargo: impl Fn() -> Result<Command>,
) -> Result<Tally> {
    let of = |command: &[&str]| -> Result<Command> {
        let mut cargo = cargo()?;
        cargo.args(command);
        if env::var_os(SEED).is_none() {
            cargo.env(SEED, "1");
        }
        for package in packages {
            cargo.args(["--package", package]);
        }
        cargo.args(&arguments.filter);
        Ok(cargo)
    };
    if process::find("cargo-nextest").is_none() {
        eprintln!("xtask: no cargo-nextest: a test that hangs is not ended ({INSTALL_NEXTEST})");
        let mut cargo = of(&["test", "--no-fail-fast"])?;
        if packages == [KERNEL_PACKAGE] {
            cargo.args(["--", "--test-threads=1"]);
        }
        return libtest(&mut cargo, arguments.filter.is_some(), &mut io::stdout());
    }
    let longer = LONGER.iter().any(|name| env::var_os(name).is_some());
    let profile = if longer { "long" } else { "whole" };
    let mut run = of(&["nextest", "run", "--no-tests", "pass", "--profile", profile])?;
    let report = workspace::root()?.join("target/nextest").join(profile).join("junit.xml");
    let mut tally = nextest(&mut run, &report, arguments.filter.is_some())?;
    let list = process::output(&mut of(&[
        "nextest",
        "list",
        "--profile",
        profile,
        "--message-format",
        "json",
    ])?);
    // A build that fails is counted already.
    tally.skipped += list.ok().and_then(|list| summary::ignored(&list)).unwrap_or(0);
    if packages == HOST_PACKAGES {
        // Nextest has no doctests. There may be none.
        tally += libtest(&mut of(&["test", "--no-fail-fast", "--doc"])?, true, &mut io::stdout())?;
    }
    Ok(tally)
}

/// Runs nextest, and reads what it reports.
fn nextest(cargo: &mut Command, report: &Path, may_be_none: bool) -> Result<Tally> {
    let shown = process::shown(cargo);
    println!("xtask: {shown}");
    if report.exists() {
        fs::remove_file(report).with_context(|| format!("removing {}", report.display()))?;
    }
    let status = cargo.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("{shown} could not be started"))?;
    let tally = fs::read_to_string(report).ok().and_then(|report| Tally::from_junit(&report));
    judged(tally.unwrap_or_default(), status, &shown, may_be_none, &mut io::stdout())
}

/// The kernel tests on other kernels. Where those cannot be had, that is said and counted; CI must
/// have them.
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
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(["test", "--package", KERNEL_PACKAGE]).args(&arguments.filter);
    let list = process::output(cargo.args(["--", "--list", "--format", "terse"]))?;
    Ok(summary::listed(&list))
}

/// Runs cargo, shows its output as it comes, and adds up libtest's closing lines in it.
fn libtest(cargo: &mut Command, may_be_none: bool, out: &mut impl Write) -> Result<Tally> {
    let shown = process::shown(cargo);
    let writing = "writing the tests' output";
    writeln!(out, "xtask: {shown}").context(writing)?;
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{shown} could not be started"))?;
    let mut output = BufReader::new(child.stdout.take().context("cargo has no standard output")?);
    let (mut tally, mut line) = (Tally::default(), Vec::new());
    while output.read_until(b'\n', &mut line).with_context(|| format!("{shown}: reading"))? > 0 {
        out.write_all(&line).and_then(|()| out.flush()).context(writing)?;
        tally += Tally::from_line(&String::from_utf8_lossy(&line)).unwrap_or_default();
        line.clear();
    }
    let status = child.wait().with_context(|| format!("{shown}: waiting for it"))?;
    judged(tally, status, &shown, may_be_none, out)
}

/// The tally of a run; one failure more for one that broke off without naming any, or had no test.
fn judged(
    mut tally: Tally,
    status: ExitStatus,
    shown: &str,
    may_be_none: bool,
    out: &mut impl Write,
) -> Result<Tally> {
    let without = if !status.success() && tally.failed == 0 {
        // Not built, or a test binary ended before its closing line.
        format!("failed ({status}) without naming a test")
    } else if status.success() && tally.total() == 0 && !may_be_none {
        "found no test".to_owned()
    } else {
        return Ok(tally);
    };
    tally.failed = 1;
    writeln!(out, "xtask: {shown} {without}: counted as one failure")
        .context("writing the tests' output")?;
    Ok(tally)
}

/// Has cargo start test binaries as root where it is not: it builds as the user.
fn runner(privilege: Privilege) -> Result<Option<(OsString, OsString)>> {
    Ok(match privilege {
        Privilege::Sudo => Some(sudo_runner(&host_triple()?)),
        _ => None,
    })
}

/// The variable that makes cargo start test binaries through sudo, and its value.
fn sudo_runner(triple: &str) -> (OsString, OsString) {
    let triple = triple.to_uppercase().replace('-', "_");
    let mut runner = OsString::from("sudo -E env PATH=");
    runner.push(process::search_path());
    (format!("CARGO_TARGET_{triple}_RUNNER").into(), runner)
}

fn host_triple() -> Result<String> {
    let version = process::output(process::command("rustc").arg("-vV"))?;
    let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("`rustc -vV` names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, may_be_none: bool) -> Tally {
        // Not to standard output: an outer `cargo xtask test` would count the lines.
        libtest(Command::new("sh").args(["-c", script]), may_be_none, &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_run_without_a_result_is_a_failure() {
        assert_eq!(run("exit 101", false), Tally { failed: 1, ..Tally::default() });
        assert_eq!(run("exit 101", true), Tally { failed: 1, ..Tally::default() });
        assert_eq!(run("true", false), Tally { failed: 1, ..Tally::default() });
        assert_eq!(run("true", true), Tally::default());
    }

    #[test]
    fn results_are_added_up() {
        let line =
            "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'";
        let tally = run(&format!("{line}; {line}"), false);
        assert_eq!(tally, Tally { passed: 4, failed: 0, skipped: 2 });
    }

    #[test]
    fn a_report_of_an_earlier_run_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("junit.xml");
        let write = "<testsuites tests='3' failures='1' errors='0'>".replace('\'', "\"");
        fs::write(&report, &write).unwrap();
        let broken = nextest(Command::new("sh").args(["-c", "exit 101"]), &report, false).unwrap();
        assert_eq!(broken, Tally { failed: 1, ..Tally::default() });
        let script = format!("printf '%s' '{write}' > {}; exit 100", report.display());
        let whole = nextest(Command::new("sh").args(["-c", &script]), &report, false).unwrap();
        assert_eq!(whole, Tally { passed: 2, failed: 1, skipped: 0 });
    }

    #[test]
    fn the_runner_s_variable_is_cargo_s() {
        let (name, _) = sudo_runner("x86_64-unknown-linux-gnu");
        assert_eq!(name, "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER");
    }
}
