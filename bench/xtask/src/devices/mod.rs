//! `cargo xtask bench devices` and `cards`: which device takes which hook in which mode, and what
//! limiter does on cards, of the cells that the tests print, as the tables of docs/devices.md.

mod table;

use std::collections::BTreeMap;
use std::fs;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result};
use xtask::arch::Arch;
use xtask::failure::Refused;
use xtask::summary::Tally;
use xtask::vm::{KERNELS, Prepared, Scope};
use xtask::{process, workspace};

use self::table::{Cell, Release, Tables};

/// The page, in the checkout.
const PAGE: &str = "docs/devices.md";

/// Options of both.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Kernels of Debian's for all machines, as 6.1; without any, 6.1 and 6.12
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,
    /// Only tests whose name, as `devices_kernels::TEST`, contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Write the table instead of comparing it
    #[arg(long)]
    write: bool,
}

impl Run {
    pub(crate) fn filter(&self) -> Option<&str> {
        self.filter.as_deref()
    }

    /// Those that are named, or else the usual ones.
    pub(crate) fn kernels(&self) -> Vec<&str> {
        let named: Vec<&str> = self.kernels.iter().map(String::as_str).collect();
        if named.is_empty() { KERNELS.to_vec() } else { named }
    }
}

/// Options of `bench devices`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: Run,
    /// On this machine's kernel, and on others only if they are named; as root
    #[arg(long)]
    here: bool,
}

/// Runs the tests on kernels; writes their table or compares it.
pub(crate) fn main(Arguments { run, here }: &Arguments) -> Result<ExitCode> {
    let prepared = Prepared::new(Arch::Amd64, Scope::Devices, run.filter())?;
    let mut page = Page::default();
    if *here {
        page.measure_here(&prepared)?;
    }
    if !*here || !run.kernels.is_empty() {
        page.measure(&prepared, &run.kernels())?;
    }
    page.end(run)
}

/// The cells of a run, for the page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    measured: BTreeMap<Cell, String>,
    tally: Tally,
}

impl Page {
    /// Runs the tests on kernels, one after the other.
    pub(crate) fn measure(&mut self, prepared: &Prepared, kernels: &[&str]) -> Result<()> {
        for kernel in kernels {
            let run = prepared.run(&[kernel])?;
            for report in &run.reports {
                let release = Release::of(&report.release)?;
                for outcome in &report.outcomes {
                    self.measured.extend(table::cells(&outcome.said, release));
                }
            }
            self.tally += run.show();
        }
        Ok(())
    }

    /// Runs the tests on this machine.
    fn measure_here(&mut self, prepared: &Prepared) -> Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refused::new(
                "the tests make network namespaces and load programs",
                "run `cargo xtask bench devices --here` as root",
            )
            .into());
        }
        let content = &prepared.content;
        let mut tests = process::command(&content.tests);
        tests.arg("--exact").args(content.plan.iter().map(|(test, _)| test));
        tests.args(["--test-threads=1", "--nocapture"]).env("LIMITER_BIN", &content.limiter);
        let output = tests.stderr(Stdio::inherit()).output().context("running the tests here")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut tally = Tally::default();
        for line in said.lines() {
            if let Some(more) = Tally::from_line(line) {
                tally += more;
            }
        }
        if !output.status.success() {
            tally.failed = tally.failed.max(1);
            print!("---- on this machine:\n{said}");
        }
        self.tally += tally;
        let name = rustix::system::uname();
        let release = Release::of(&name.release().to_string_lossy())?;
        self.measured.extend(table::cells(&said, release));
        Ok(())
    }

    /// Prints the tables, and writes them or compares them with the page. A difference counts as a
    /// failure.
    pub(crate) fn end(self, run: &Run) -> Result<ExitCode> {
        let Self { measured, mut tally } = self;
        let path = workspace::root()?.join(PAGE);
        let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let before = Tables::read(&page)?;
        let mut after = before.clone();
        after.take(&measured)?;
        print!("{after}");
        if run.write {
            fs::write(&path, after.written(&page)).with_context(|| path.display().to_string())?;
        } else {
            for (cell, value) in &measured {
                let said = before.get(cell).unwrap_or("nothing");
                if said != value {
                    println!(
                        "{PAGE} has {said:?} for {cell}: it is {value:?}. `--write` writes it"
                    );
                    tally.failed += 1;
                }
            }
        }
        println!("{tally}");
        Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_as_it_would_be_written() {
        let page = fs::read_to_string(workspace::root().unwrap().join(PAGE)).unwrap();
        assert_eq!(Tables::read(&page).unwrap().written(&page), page);
    }
}
