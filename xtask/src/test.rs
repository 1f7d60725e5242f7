//! `cargo xtask test`: the tests, the slowest of them, and one line that says how it went.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::{panic, thread};

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::setup::{self, Tools};
use crate::summary::{self, Tally, Time};
use crate::workspace::Programs;
use crate::{process, vm, workspace};

/// Tells the end-to-end tests where the binary is, so that they all drive the same one.
const BINARY_VARIABLE: &str = "LIMITER_BIN";
const KERNEL_PACKAGE: &str = "limiter-tests";

/// Variables that make tests longer than their usual time limit.
const LONGER: [&str; 3] = ["LIMITER_STEPS", "LIMITER_FAULTS", "LIMITER_FUZZ_ROUNDS"];

/// The seed of proptest. A test that fails once in hundreds of runs is no verdict on a change: the
/// suite draws the same inputs every time, the nightly run and plain `cargo nextest run` new ones.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Not done by set-up: from source it takes longer than it saves.
const INSTALL_NEXTEST: &str = "cargo install --locked cargo-nextest";

/// Tests that are named at the end, by how long they took.
const SLOWEST: usize = 20;

/// What the tests read from the environment.
const VARIABLES: &str = "\
Variables:
  CI=true                      a test that needs root fails without it, instead of being skipped
  LIMITER_BPF_TOOLCHAIN        the toolchain that builds for BPF
  LIMITER_BIN                  the binary that the tests start; `cargo xtask` sets it
  LIMITER_SHORTER=5            a fifth of the rounds of a race, for a slow machine
  LIMITER_ANOTHER_LAYOUT       build with the next ABI number, for tests of an upgrade

Longer, or other inputs:
  PROPTEST_RNG_SEED=7, PROPTEST_CASES=10000
  LIMITER_STEPS=4000000 cargo xtask test kernel_and_model_agree_on_every_table
  LIMITER_SEED                 the first sequence of these, or the faults of a cluster to repeat
  LIMITER_FAULTS=all cargo xtask test call_fails
  LIMITER_SWITCHES=1 cargo nextest run --profile long -p limiter-decision --test interleavings
  LOOM_MAX_PREEMPTIONS=2 cargo test -p limiter-decision --test interleavings
  LIMITER_FUZZ_ROUNDS=1000000 LIMITER_FUZZ_SEED=7 cargo test --release -p limiter-fuzz-targets
  LIMITER_CLUSTER_SEARCH=2000 cargo test -p limiter-cluster --test cluster worst -- --nocapture
  LIMITER_RULE_SETS=1000 LIMITER_RULE_SETS_SEED=7 cargo xtask test some_rule_sets
  LIMITER_IMPORT_CHAINS        random chains in the tests of the importer

Write what is expected, instead of comparing:
  LIMITER_FOLLOW_UPDATE        the output in pages whose commands are typed
  LIMITER_UPDATE_IMPORT        texts of the importer
  LIMITER_UPDATE_PAGES         tables of docs/design/line-table.md
  LIMITER_VERIFIER_WRITE       the rows of docs/design/verifier.md
  LIMITER_PAGE_PICTURES        a directory for pictures of the page";

/// Options of `test`.
#[derive(Debug, clap::Args)]
#[command(after_help = VARIABLES)]
pub(crate) struct Arguments {
    /// Only tests whose name contains this, long ones as well
    filter: Option<String>,
    /// Also the long tests, which hold none of the promises
    #[arg(long)]
    long: bool,
    /// Leave out the kernel and end-to-end tests, which need root
    #[arg(long)]
    host_only: bool,
    /// Run the tests of the measurements in bench/ instead, which need root
    #[arg(long, conflicts_with_all = ["host_only", "long"])]
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
    let mut build = workspace::cargo(&toolchain)?;
    let shown = process::shown(build.args(["build", "--tests"]));
    println!("xtask: {shown}");
    let programs = match workspace::programs(build, &[]) {
        Ok(programs) => programs,
        Err(error) => {
            println!("xtask: {error:#}: counted as one failure");
            return Ok(closing(Tally { failed: 1, ..Tally::default() }, &[]));
        }
    };
    let suite = Suite { arguments, toolchain, programs };
    let (mut tally, mut times) = (Tally::default(), Vec::new());
    let (first, rest) = parts(arguments, privilege);
    // The guest keeps one CPU busy, and the first part has nothing that must not be late.
    let guest = thread::scope(|scope| {
        let guest = scope.spawn(|| other_kernel(arguments, &suite.programs, in_ci));
        let of_first = suite.run(first, privilege, &mut times);
        let guest = guest.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked));
        tally += of_first?;
        guest
    })?;
    if let Some(part) = rest {
        tally += suite.run(part, privilege, &mut times)?;
    }
    if arguments.host_only || privilege == Privilege::None {
        let skipped = suite.count_kernel()?;
        let why = if arguments.host_only { "--host-only" } else { "not root, and no sudo" };
        println!(
            "xtask: NOT RUN: {skipped} kernel and end-to-end tests of {KERNEL_PACKAGE} ({why})"
        );
        tally.skipped += skipped;
    }
    tally += guest.show();
    if let (Some(filter), 0) = (&arguments.filter, tally.total()) {
        return Err(Refused::new(
            format!("no test has `{filter}` in its name"),
            "see `cargo test --workspace -- --list`",
        )
        .into());
    }
    Ok(closing(tally, &times))
}

/// The tests of the measurements: that they work, and that their peers do what limiter is compared
/// with.
fn measurements(arguments: &Arguments, privilege: Privilege) -> Result<ExitCode> {
    let toolchain = setup::ensure(Tools::Peers)?;
    let limiter = workspace::build(&toolchain, "limiter-userspace", "limiter", false)?;
    let mut cargo = workspace::cargo(&toolchain)?;
    cargo.args(["test", "--manifest-path", workspace::BENCH, "--target-dir", "target"]);
    cargo.args([
        "--no-fail-fast",
        "--package",
        "limiter-bench",
        "--package",
        "limiter-bench-xtask",
    ]);
    cargo.args(&arguments.filter);
    cargo.args(["--", "--test-threads=1"]).env(BINARY_VARIABLE, limiter).envs(runner(privilege)?);
    let tally = libtest(&mut cargo, arguments.filter.is_some(), &mut io::stdout())?;
    Ok(closing(tally, &[]))
}

/// Prints the slowest tests and the closing line; whether all went well.
fn closing(tally: Tally, times: &[Time]) -> ExitCode {
    for line in summary::slowest(times, SLOWEST) {
        println!("{line}");
    }
    println!("{tally}");
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tests that are run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All but [`Part::Alone`].
    Together,
    /// Tests that have the machine to themselves, one after the other: .config/nextest.toml.
    Alone,
    /// Tests that need no privilege.
    Host,
    Kernel,
}

impl Part {
    fn filter(self) -> String {
        match self {
            Self::Together => "not group(=alone)".to_owned(),
            Self::Alone => "group(=alone)".to_owned(),
            Self::Host => format!("not package({KERNEL_PACKAGE})"),
            Self::Kernel => format!("package({KERNEL_PACKAGE})"),
        }
    }

    /// Tests at once, but for the bounds of groups; nextest's own choice is one for each CPU. Most
    /// tests wait more than they compute: for daemons, links and the kernel's grace periods.
    fn threads(self) -> Option<usize> {
        (self == Self::Together).then(|| 2 * thread::available_parallelism().map_or(1, usize::from))
    }
}

/// The part that may have company, and the part that comes after it. Apart where the kernel tests
/// need what the others do not.
fn parts(arguments: &Arguments, privilege: Privilege) -> (Part, Option<Part>) {
    if arguments.host_only || privilege == Privilege::None {
        (Part::Host, None)
    } else if privilege == Privilege::Root && has_nextest() {
        (Part::Together, Some(Part::Alone))
    } else {
        (Part::Host, Some(Part::Kernel))
    }
}

fn has_nextest() -> bool {
    process::find("cargo-nextest").is_some()
}

struct Suite<'a> {
    arguments: &'a Arguments,
    toolchain: String,
    programs: Programs,
}

impl Suite<'_> {
    /// A cargo command on the tests of some packages, which `choice` names.
    fn cargo(
        &self,
        command: &[&str],
        choice: impl IntoIterator<Item = &'static str>,
    ) -> Result<Command> {
        let mut cargo = workspace::cargo(&self.toolchain)?;
        cargo.args(command).args(choice);
        if env::var_os(SEED).is_none() {
            cargo.env(SEED, "1");
        }
        cargo.env(BINARY_VARIABLE, &self.programs.limiter);
        Ok(cargo)
    }

    /// True if the long tests are run: who names a test means it.
    fn has_long(&self) -> bool {
        self.arguments.long || self.arguments.filter.is_some()
    }

    /// Runs a part by nextest, which has time limits and groups (.config/nextest.toml); by cargo
    /// where there is no nextest. Adds to the times of the tests.
    fn run(&self, part: Part, privilege: Privilege, times: &mut Vec<Time>) -> Result<Tally> {
        if !has_nextest() {
            return self.run_by_cargo(part, privilege);
        }
        let longer = self.arguments.long || LONGER.iter().any(|name| env::var_os(name).is_some());
        let profile = if longer { "long" } else { "whole" };
        let of = |command: &[&str]| -> Result<Command> {
            let mut cargo = self.cargo(command, workspace::host())?;
            cargo.args(["--profile", profile]).args(&self.arguments.filter);
            cargo.args(["--filterset", &part.filter()]);
            if part == Part::Kernel {
                cargo.envs(runner(privilege)?);
            }
            Ok(cargo)
        };
        let mut run = of(&["nextest", "run", "--no-tests", "pass"])?;
        if self.has_long() {
            run.args(["--run-ignored", "all"]);
        }
        if let Some(threads) = part.threads() {
            run.args(["--test-threads", &threads.to_string()]);
        }
        let report = workspace::root()?.join("target/nextest").join(profile).join("junit.xml");
        let may_be_none = self.arguments.filter.is_some();
        let (mut tally, of_run) = nextest(&mut run, &report, may_be_none)?;
        times.extend(of_run);
        if !self.has_long() {
            let list = process::output(&mut of(&["nextest", "list", "--message-format", "json"])?)?;
            let long = summary::ignored(&list).context("nextest's list is none")?;
            println!("xtask: NOT RUN: {long} long tests (`cargo xtask test --long`)");
            tally.skipped += long;
        }
        Ok(tally)
    }

    /// The kernel tests are run one at a time: they share the kernel's namespaces, links and pins.
    fn run_by_cargo(&self, part: Part, privilege: Privilege) -> Result<Tally> {
        eprintln!("xtask: no cargo-nextest: a test that hangs is not ended ({INSTALL_NEXTEST})");
        let command = ["test", "--no-fail-fast"];
        let mut options = Vec::new();
        let mut cargo = if part == Part::Kernel {
            options.push("--test-threads=1");
            let mut cargo = self.cargo(&command, ["--package", KERNEL_PACKAGE])?;
            cargo.envs(runner(privilege)?);
            cargo
        } else {
            self.cargo(&command, workspace::host().chain(["--exclude", KERNEL_PACKAGE]))?
        };
        if self.has_long() {
            options.push("--include-ignored");
        }
        cargo.args(&self.arguments.filter).arg("--").args(options);
        libtest(&mut cargo, self.arguments.filter.is_some(), &mut io::stdout())
    }

    /// How many kernel tests there are, for those that are not run.
    fn count_kernel(&self) -> Result<u64> {
        let mut cargo = self.cargo(&["test"], ["--package", KERNEL_PACKAGE])?;
        cargo.args(&self.arguments.filter);
        let list = process::output(cargo.args(["--", "--list", "--format", "terse"]))?;
        Ok(summary::listed(&list))
    }
}

/// Runs nextest, and reads what it reports.
fn nextest(cargo: &mut Command, report: &Path, may_be_none: bool) -> Result<(Tally, Vec<Time>)> {
    let shown = process::shown(cargo);
    println!("xtask: {shown}");
    if report.exists() {
        fs::remove_file(report).with_context(|| format!("removing {}", report.display()))?;
    }
    let status = cargo.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("{shown} could not be started"))?;
    // None where nothing was built, or nextest ended before its end.
    let report = fs::read_to_string(report).unwrap_or_default();
    let tally = Tally::from_junit(&report).unwrap_or_default();
    let tally = judged(tally, status, &shown, may_be_none, &mut io::stdout())?;
    Ok((tally, summary::times(&report)))
}

/// Tests on another kernel, to be reported when nothing else is shown.
enum Guest {
    Ran(vm::Run),
    /// Why not.
    NotRun(String),
}

/// Kernel tests on another kernel. Where that cannot be had, this is said and counted; CI must have
/// it.
fn other_kernel(arguments: &Arguments, programs: &Programs, in_ci: bool) -> Result<Guest> {
    if arguments.host_only {
        return Ok(Guest::NotRun("--host-only".to_owned()));
    }
    match vm::quick(arguments.filter.as_deref(), programs) {
        Err(error) if error.downcast_ref::<Refused>().is_some() && !in_ci => {
            Ok(Guest::NotRun(format!("{error:#}")))
        }
        result => result.map(Guest::Ran),
    }
}

impl Guest {
    fn show(&self) -> Tally {
        match self {
            Self::Ran(run) => run.show(),
            Self::NotRun(why) => {
                println!("xtask: NOT RUN: any test on Linux {} ({why})", vm::STRICTEST);
                // One for the kernel: what could not be set up cannot be counted.
                Tally { skipped: 1, ..Tally::default() }
            }
        }
    }
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
        Privilege::Sudo => Some(sudo_runner(&workspace::host_triple()?)),
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
        let (broken, _) =
            nextest(Command::new("sh").args(["-c", "exit 101"]), &report, false).unwrap();
        assert_eq!(broken, Tally { failed: 1, ..Tally::default() });
        let script = format!("printf '%s' '{write}' > {}; exit 100", report.display());
        let (whole, _) = nextest(Command::new("sh").args(["-c", &script]), &report, false).unwrap();
        assert_eq!(whole, Tally { passed: 2, failed: 1, skipped: 0 });
    }

    #[test]
    fn the_runner_s_variable_is_cargo_s() {
        let (name, _) = sudo_runner("x86_64-unknown-linux-gnu");
        assert_eq!(name, "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER");
    }
}
