//! `cargo xtask vm`: the kernel tests on other kernels than this machine's, each in an emulated
//! machine of its own. Needs neither root nor KVM; what it starts is Debian's packages, unpacked.
//! `bench/xtask` measures in such machines.

mod console;
mod emulator;
mod guest;
mod image;
mod modules;
mod newc;
mod package;
mod suite;
mod system;
mod userland;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::console::Ended;
use self::guest::Machine;
use self::package::{Flavour, Kernel};
use self::suite::BOUNDS;
use self::userland::Userland;
use crate::arch::Arch;
use crate::failure::Refused;
use crate::setup::{self, Tools};
use crate::summary::Tally;
use crate::workspace::Programs;
use crate::{cross, process, workspace};

pub use self::console::Outcome;
pub use self::emulator::Emulator;
pub use self::guest::{Report, Wiring};
pub use self::image::Content;
pub use self::package::DEVICE_MODULES;
pub use self::suite::{Part, Scope, parts};

/// The kernels that are tested when none is named.
pub const KERNELS: [&str; 2] = ["6.1", "6.12"];
/// The kernel that `cargo xtask test` has: its verifier refuses most.
pub(crate) const STRICTEST: &str = "6.1";
/// Directory, in the checkout, of what was downloaded.
const CACHE: &str = "target/vm";
/// Lines of a failed test's output that are shown.
const OUTPUT_LINES: usize = 30;

/// Arguments of `vm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Kernels of Debian's for clouds, as 6.1; without any, 6.1 and 6.12
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,
    /// Architecture of the emulated machines; programs for another one than this machine's are
    /// cross-built
    #[arg(long, value_enum, default_value_t = Arch::Amd64)]
    arch: Arch,
    /// Only what `cargo xtask test` has room for
    #[arg(long)]
    quick: bool,
    /// Only tests whose name, as `verdict::TEST`, contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Instead of the tests, the life of a package on a whole Debian with systemd; as root
    #[arg(long, conflicts_with_all = ["quick", "filter", "arch"])]
    system: bool,
}

/// Sets up, builds, starts every kernel, and fails if a test failed or none was found.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let named: Vec<&str> = arguments.kernels.iter().map(String::as_str).collect();
    let kernels = if named.is_empty() { &KERNELS[..] } else { &named };
    if arguments.system {
        return system::main(kernels);
    }
    let scope = if arguments.quick { Scope::Quick } else { Scope::Full };
    let prepared = Prepared::new(arguments.arch, scope, arguments.filter.as_deref())?;
    let tally = prepared.run(kernels)?.show();
    println!("{tally}");
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The part that `cargo xtask test` does: the quick tests on one kernel, with programs that are
/// built. No test with `filter` in its name is no error here.
pub(crate) fn quick(filter: Option<&str>, programs: &Programs) -> Result<Run> {
    let prepared = prepare(Arch::Amd64, Scope::Quick, filter, Some(programs))?;
    let kernels: &[&str] = if prepared.content.plan.is_empty() { &[] } else { &[STRICTEST] };
    prepared.run(kernels)
}

/// Runs on some kernels that have ended.
#[derive(Debug)]
pub struct Run {
    /// One of each kernel.
    pub reports: Vec<Report>,
    scope: Scope,
    /// Modules of tests that were not run.
    left_out: Vec<String>,
}

impl Run {
    /// Prints what came of it; the sum.
    pub fn show(&self) -> Tally {
        let mut tally = Tally::default();
        for report in &self.reports {
            tally += show_trouble(report);
        }
        // Together at the end, and on standard output.
        for report in &self.reports {
            show(report);
        }
        if !self.reports.is_empty() {
            println!("not run on other kernels: {}", self.left_out.join(", "));
            if self.scope == Scope::Quick {
                println!("`cargo xtask vm` runs more of them, which takes minutes");
            }
        }
        tally
    }
}

/// Tests that are built, and all that the guests have in common.
pub struct Prepared {
    arch: Arch,
    /// What is in the guests.
    pub content: Content,
    /// The program that runs them.
    pub emulator: Emulator,
    wiring: Option<Wiring>,
    cache: PathBuf,
    scope: Scope,
    /// Modules of tests that are not run.
    left_out: Vec<String>,
}

/// Fails on a machine that there are no kernels for.
fn check_architecture() -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Refused::new(
            format!("no kernels for a machine of {}", std::env::consts::ARCH),
            "run `cargo xtask vm` on x86-64",
        )
        .into());
    }
    Ok(())
}

fn prepare(
    arch: Arch,
    scope: Scope,
    filter: Option<&str>,
    programs: Option<&Programs>,
) -> Result<Prepared> {
    check_architecture()?;
    let toolchain = setup::ensure(match (arch.is_host(), scope) {
        (true, scope) if scope.is_of_tables() => Tools::VmDevices,
        (true, _) => Tools::Vm,
        (false, _) => Tools::VmCross,
    })?;
    let cache = workspace::root()?.join(CACHE);
    // The first of all: for another architecture it sees to it that apt knows it.
    let userland = Userland::find(&cache, arch)?;
    let emulator = Emulator::find(&cache, arch)?;
    let busybox = package::busybox(&cache, arch)?;
    let programs = match programs {
        Some(programs) => programs.clone(),
        None => workspace::programs(cargo(&toolchain, arch)?, &["--test", workspace::TESTS])?,
    };
    let (parts, mut left_out) = parts()?;
    left_out.extend(parts.iter().filter(|part| !part.is_in(scope)).map(|part| part.module.clone()));
    let parts: Vec<Part> = parts.into_iter().filter(|part| part.is_in(scope)).collect();
    let list = process::output(arch.run(&programs.tests).args(["--list", "--format", "terse"]))?;
    let plan = suite::plan(&list, &parts)
        .filter(|(test, _)| filter.is_none_or(|text| test.contains(text)))
        .map(|(test, seconds)| (test.to_owned(), seconds * slower(arch)))
        .collect();
    let mut environment: Vec<(&str, String)> =
        BOUNDS.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    if matches!(scope, Scope::Figures | Scope::Cards) {
        environment.push(("LIMITER_VM_OPTIONS", "--ignored".to_owned()));
    }
    environment.push(("LIMITER_BIN", image::LIMITER.to_owned()));
    environment.push(("LIMITER_VM_SERIAL", guest::serial(arch).to_owned()));
    // A little after we would have ended it.
    environment.push(("LIMITER_VM_SECONDS", (limit(scope, arch).as_secs() + 10).to_string()));
    // A guest holds all of its files in memory, twice.
    let Programs { limiter, cni, tests } =
        if arch.is_host() { stripped(&programs, &cache)? } else { programs };
    let tools = if scope.is_of_tables() { image::DEVICE_TOOLS } else { image::TOOLS };
    let content = Content { userland, busybox, limiter, cni, tests, tools, plan, environment };
    Ok(Prepared { arch, content, emulator, wiring: None, cache, scope, left_out })
}

/// Copies without symbols.
fn stripped(programs: &Programs, cache: &Path) -> Result<Programs> {
    let strip = |program: &Path, name: &str| {
        let copy = cache.join(name);
        process::run(process::command("strip").arg("-o").arg(&copy).arg(program))?;
        anyhow::Ok(copy)
    };
    Ok(Programs {
        limiter: strip(&programs.limiter, "limiter")?,
        cni: strip(&programs.cni, "limiter-cni")?,
        tests: strip(&programs.tests, workspace::TESTS)?,
    })
}

/// A build by cargo of programs for an architecture.
fn cargo(toolchain: &str, arch: Arch) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.arg("build");
    if !arch.is_host() {
        cross::prepare(&mut cargo, arch, toolchain)?;
        cargo.env("CARGO_ENCODED_RUSTFLAGS", cross::flags(arch)?.join("\x1f"));
        // The host's `strip` does not know them.
        cargo.envs([("CARGO_PROFILE_DEV_DEBUG", "none"), ("CARGO_PROFILE_DEV_STRIP", "symbols")]);
    }
    Ok(cargo)
}

/// How long a guest may take.
const fn limit(scope: Scope, arch: Arch) -> Duration {
    let seconds = match scope {
        Scope::Quick => 900,
        Scope::Full => 1_800,
        Scope::Figures | Scope::Devices | Scope::Cards => 3_600,
    };
    Duration::from_secs(seconds * slower(arch) as u64)
}

/// How many times as long a guest may take as one of x86-64: to load the programs takes longest,
/// and what is emulated for arm64 is built without optimisation.
const fn slower(arch: Arch) -> u32 {
    match arch {
        Arch::Amd64 => 1,
        Arch::Arm64 => 4,
    }
}

impl Prepared {
    /// Sets up, and builds the tests of a scope with `filter` in their names, of which there must
    /// be one.
    ///
    /// # Errors
    ///
    /// When something is missing, or a build fails.
    pub fn new(arch: Arch, scope: Scope, filter: Option<&str>) -> Result<Self> {
        let prepared = prepare(arch, scope, filter, None)?;
        if prepared.content.plan.is_empty() {
            return Err(Refused::new(
                "no test of the guest's has that in its name",
                "leave out --filter to see the names of all",
            )
            .into());
        }
        Ok(prepared)
    }

    /// Gives the machines a network, and their tests a variable that describes it.
    pub fn wire(&mut self, variable: (&'static str, String), wiring: Wiring) {
        self.content.environment.push(variable);
        self.wiring = Some(wiring);
    }

    /// Runs the tests on kernels of Debian's, on all of them at a time.
    ///
    /// # Errors
    ///
    /// When a kernel is not there, or its machine does not start.
    pub fn run(&self, kernels: &[&str]) -> Result<Run> {
        let unpacker = package::busybox(&self.cache, Arch::Amd64)?;
        // All of them are there before the first is started.
        let kernels = kernels
            .iter()
            .map(|version| {
                package::kernel(&self.cache, self.arch, (version, self.flavour()), &unpacker)
            })
            .collect::<Result<Vec<_>>>()?;
        let wanted: Vec<String> = self.content.plan.iter().map(|(test, _)| test.clone()).collect();
        // Together: a guest keeps one of its two CPUs busy most of the time.
        let run = |kernel| self.run_on(kernel, &wanted);
        let reports = thread::scope(|scope| {
            let runs: Vec<_> =
                kernels.iter().map(|kernel| scope.spawn(move || run(kernel))).collect();
            let ended = runs
                .into_iter()
                .map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            ended.collect::<Result<Vec<_>>>()
        })?;
        Ok(Run { reports, scope: self.scope, left_out: self.left_out.clone() })
    }

    /// The kernels that have what the tests need.
    fn flavour(&self) -> Flavour {
        if self.scope.is_of_tables() { Flavour::General } else { Flavour::Cloud }
    }

    /// Runs the tests on one kernel.
    fn run_on(&self, kernel: &Kernel, wanted: &[String]) -> Result<Report> {
        // Hundreds of megabytes, gone at the end.
        let archive = tempfile::NamedTempFile::new_in(&self.cache)
            .context("no file for the guest's file system could be made")?;
        self.content.write(kernel, archive.path())?;
        let log = self.cache.join(format!("{}.{}.log", kernel.version, self.arch.debian()));
        let (version, arch) = (&kernel.version, self.arch.debian());
        eprintln!("xtask: Linux {version}, {arch}: {} tests, emulated", wanted.len());
        let each = |outcome: &Outcome| eprintln!("xtask: {}", line(&kernel.version, outcome));
        let machine = Machine {
            emulator: &self.emulator,
            kernel,
            archive: archive.path(),
            disk: None,
            wiring: self.wiring.as_ref(),
            words: "",
            log: &log,
        };
        guest::run(&machine, wanted, limit(self.scope, self.arch), each)
    }
}

fn line(kernel: &str, Outcome { test, ended, seconds, .. }: &Outcome) -> String {
    let seconds = seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
    let ended = match ended {
        Ended::Passed => "passed",
        Ended::Ignored => "ignored",
        Ended::Failed(why) => why,
    };
    format!("{kernel:<28} {test:<72} {seconds:>9}  {ended}")
}

/// Shows what failed, with its words; the sum.
fn show_trouble(report: &Report) -> Tally {
    let mut tally = Tally::default();
    for outcome in &report.outcomes {
        match &outcome.ended {
            Ended::Passed => tally.passed += 1,
            Ended::Ignored => tally.skipped += 1,
            Ended::Failed(why) => {
                tally.failed += 1;
                println!("---- Linux {}: {}: {why}", report.release, outcome.test);
                print!("{}", guest::tail(&outcome.said, OUTPUT_LINES));
            }
        }
    }
    if let Some(trouble) = &report.trouble {
        println!("---- Linux {}: {}", report.release, trouble.trim_end());
        // Also when every test had ended by then.
        tally.failed = tally.failed.max(1);
    }
    tally
}

fn show(report: &Report) {
    for outcome in &report.outcomes {
        println!("{}", line(&report.release, outcome));
    }
    // Measurements of the tests go into the table too.
    for measured in report.outcomes.iter().flat_map(|outcome| measured(&outcome.said)) {
        println!("{:<28} {measured}", report.release);
    }
    println!("{:<28} {:.0} s in all", report.release, report.took.as_secs_f64());
}

/// `verified instructions: NUMBER, of what` in a test's output, which begins behind libtest's own
/// words.
fn measured(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter_map(|line| line.get(line.find("verified instructions")?..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ended: &[Ended], trouble: Option<&str>) -> Report {
        let outcome = |ended: &Ended| Outcome {
            test: "none::of_this_run".to_owned(),
            ended: ended.clone(),
            seconds: None,
            said: String::new(),
        };
        Report {
            release: "0".to_owned(),
            outcomes: ended.iter().map(outcome).collect(),
            trouble: trouble.map(str::to_owned),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn every_outcome_is_counted_and_trouble_is_a_failure() {
        let all =
            [Ended::Passed, Ended::Passed, Ended::Ignored, Ended::Failed("a test".to_owned())];
        let tally = Tally { passed: 2, failed: 1, skipped: 1 };
        assert_eq!(show_trouble(&report(&all, None)), tally);
        assert_eq!(show_trouble(&report(&all, Some("a test"))), tally);
        let tally = Tally { passed: 1, failed: 1, skipped: 0 };
        assert_eq!(show_trouble(&report(&[Ended::Passed], Some("a test"))), tally);
    }

    #[test]
    fn measurements_are_found_behind_libtest_s_words() {
        let said = "running 1 test\ntest a ... verified instructions: 12, of limiter\nok\n";
        assert_eq!(measured(said).collect::<Vec<_>>(), ["verified instructions: 12, of limiter"]);
    }
}
