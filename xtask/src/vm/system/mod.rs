//! `cargo xtask vm --system`: the life of a package on a whole machine: a Debian on a disk, with
//! systemd as its first process, that is installed on, started again, upgraded and cleaned up.

mod disk;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::disk::Disk;
use super::console::Outcome;
use super::emulator::Emulator;
use super::guest::{self, Machine};
use super::newc::Archive;
use super::package::{self, Flavour, Kernel, name};
use super::{CACHE, check_architecture, line, show, show_trouble};
use crate::arch::Arch;
use crate::dist::{self, Programs};
use crate::failure::Refused;
use crate::setup::{self, Tools};
use crate::summary::Tally;
use crate::{process, workspace};

/// The first process in the memory that a machine starts with.
const INIT: &str = include_str!("init.sh");

/// Steps of each boot, by the names of their functions in steps.sh.
pub(super) const BOOTS: [&[&str]; 2] = [
    &[
        "installed",
        "as_the_package_leaves_it",
        "enabled",
        "metrics_drop_in",
        "hooks_drop_in",
        "filled",
    ],
    &[
        "after_boot",
        "upgraded",
        "upgraded_to_another_layout",
        "downgraded",
        "removed",
        "installed_again",
        "purged",
    ],
];

/// Time that a boot with its steps may take, emulated, on a busy machine.
const LIMIT: Duration = Duration::from_mins(30);

/// Variable that makes a program of another layout: `limiter_common::wire::ABI_VERSION`.
const ANOTHER_LAYOUT: &str = "LIMITER_ANOTHER_LAYOUT";

/// Makes packages and a disk, starts a machine with each kernel, twice, and prints what became of
/// the steps.
pub(super) fn main(kernels: &[&str]) -> Result<ExitCode> {
    check_architecture()?;
    if !rustix::process::geteuid().is_root() {
        return Err(Refused::new(
            "debootstrap makes the machine's system, and needs root",
            "run `cargo xtask vm --system` as root",
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::System)?;
    let cache = workspace::root()?.join(CACHE);
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let emulator = Emulator::find(&cache, Arch::Amd64)?;
    let busybox = package::busybox(&cache, Arch::Amd64)?;
    let kernels = kernels
        .iter()
        .map(|version| package::kernel(&cache, Arch::Amd64, (version, Flavour::Cloud), &busybox))
        .collect::<Result<Vec<_>>>()?;
    let packages = tempfile::tempdir_in(&cache).context("no directory for packages")?;
    // The other one first: what is left in the build's directory is the usual one.
    let another = build(&toolchain, true, packages.path())?;
    let usual = build(&toolchain, false, packages.path())?;
    let debs = [(&usual, "1"), (&usual, "2"), (&another, "3")]
        .into_iter()
        .map(|(programs, revision)| dist::deb_of(programs, revision, packages.path()))
        .collect::<Result<Vec<_>>>()?;
    let disk = Disk::make(&cache, &debs)?;

    let mut tally = Tally::default();
    for kernel in &kernels {
        tally += run(&emulator, kernel, &busybox, &cache, &disk)?;
    }
    println!("{tally}");
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the programs of a package as the inner loop does, and puts them, without symbols, into a
/// directory.
fn build(toolchain: &str, another_layout: bool, to: &Path) -> Result<Programs> {
    let name = if another_layout { "another" } else { "usual" };
    let put = |package, program| {
        let mut cargo = workspace::cargo(toolchain)?;
        cargo.args(["build", "--package", package, "--bin", program]);
        if another_layout {
            cargo.env(ANOTHER_LAYOUT, "1");
        } else {
            cargo.env_remove(ANOTHER_LAYOUT);
        }
        let built = workspace::built(cargo, program)?;
        let stripped = to.join(format!("{name}-{program}"));
        process::run(process::command("strip").arg("-o").arg(&stripped).arg(built))?;
        anyhow::Ok(stripped)
    };
    Ok(Programs {
        limiter: put("limiter-userspace", "limiter")?,
        sandbox: put("limiter-sandbox", "limiter-sandbox")?,
        cni: put("limiter-cni", "limiter-cni")?,
    })
}

/// Runs all boots with one kernel, on a disk of their own, and prints their steps.
fn run(
    emulator: &Emulator,
    kernel: &Kernel,
    busybox: &Path,
    cache: &Path,
    disk: &Disk,
) -> Result<Tally> {
    let archive = tempfile::NamedTempFile::new_in(cache).context("no file to start from")?;
    write_archive(kernel, busybox, archive.path())?;
    let disk = disk.copy()?;
    let mut tally = Tally::default();
    for (boot, steps) in (1..).zip(BOOTS) {
        let wanted: Vec<String> = steps.iter().map(|step| format!("boot{boot}::{step}")).collect();
        let log = cache.join(format!("{}.system{boot}.log", kernel.version));
        eprintln!("xtask: Linux {}: boot {boot}, emulated", kernel.version);
        let machine = Machine {
            emulator,
            kernel,
            archive: archive.path(),
            disk: Some(disk.path()),
            wiring: None,
            words: &format!("limiter.boot={boot}"),
            log: &log,
        };
        let each = |outcome: &Outcome| eprintln!("xtask: {}", line(&kernel.version, outcome));
        let report = guest::run(&machine, &wanted, LIMIT, each)?;
        let of_boot = show_trouble(&report);
        show(&report);
        for measured in report.outcomes.iter().flat_map(|outcome| measured(&outcome.said)) {
            println!("{:<28} {measured}", report.release);
        }
        tally += of_boot;
    }
    Ok(tally)
}

/// Lines that a step prints for the table.
fn measured(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter_map(|line| line.strip_prefix("measured: "))
}

fn write_archive(kernel: &Kernel, busybox: &Path, to: &Path) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    archive.file("init", INIT.as_bytes())?;
    for directory in ["proc", "dev", "disk"] {
        archive.directory(directory)?;
    }
    archive.file("busybox/busybox", &read(busybox)?)?;
    for module in &kernel.disk_modules {
        archive.file(&format!("modules/{}", name(module)), &read(module)?)?;
    }
    archive.finish().with_context(|| format!("cannot write {}", to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_function_of_the_script_and_every_function_of_a_step_is_run() {
        let steps = BOOTS.concat();
        let marked: Vec<&str> =
            disk::STEPS.lines().filter_map(|line| line.strip_suffix("() { # step")).collect();
        assert_eq!(marked, steps);
    }

    #[test]
    fn measurements_are_lines_of_their_own() {
        let said = "a\nmeasured: 3 packets\nnot measured: 4\n";
        assert_eq!(measured(said).collect::<Vec<_>>(), ["3 packets"]);
    }
}
