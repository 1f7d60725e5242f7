//! `cargo xtask vm --devices` and `--cards`: which device takes which hook in which mode, and what
//! limiter does on cards, of the cells that the tests print, as the tables of docs/devices.md.

mod table;

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use anyhow::{Context as _, Result};

use self::table::{Cell, Release, Tables};
use super::{Arguments, Prepared};
use crate::failure::Refused;
use crate::summary::Tally;
use crate::{process, workspace};

/// Programs that the tests and their harness call.
pub(super) const TOOLS: &[&str] = &["ip", "ping", "tc", "ethtool", "wg"];

/// The page, in the checkout.
const PAGE: &str = "docs/devices.md";

/// Runs the tests, one kernel after the other, prints the tables, and writes them or compares them
/// with the page. A difference counts as a failure.
pub(super) fn run(prepared: &Prepared, kernels: &[&str], arguments: &Arguments) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut measured = BTreeMap::new();
    if arguments.here {
        tally += here(prepared, arguments.filter.as_deref(), &mut measured)?;
    }
    for kernel in kernels {
        let run = prepared.run(&[kernel])?;
        for report in &run.reports {
            let release = Release::of(&report.release)?;
            for outcome in &report.outcomes {
                measured.extend(table::cells(&outcome.said, release));
            }
        }
        tally += run.show();
    }
    let path = workspace::root()?.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let before = Tables::read(&page)?;
    let mut after = before.clone();
    after.take(&measured)?;
    print!("{after}");
    if arguments.write {
        fs::write(&path, after.written(&page)).with_context(|| path.display().to_string())?;
        return Ok(tally);
    }
    for (cell, value) in &measured {
        let said = before.get(cell).unwrap_or("nothing");
        if said != value {
            println!("{PAGE} has {said:?} for {cell}: it is {value:?}. `--write` writes it");
            tally.failed += 1;
        }
    }
    Ok(tally)
}

/// Runs the tests on this machine.
fn here(
    prepared: &Prepared,
    filter: Option<&str>,
    measured: &mut BTreeMap<Cell, String>,
) -> Result<Tally> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refused::new(
            "the tests make network namespaces and load programs",
            "run `cargo xtask vm --devices --here` as root",
        )
        .into());
    }
    let content = &prepared.content;
    let mut tests = process::command(&content.tests);
    let wanted = content.plan.iter().map(|(test, _)| test.as_str());
    tests.arg("--exact").args(wanted.filter(|test| filter.is_none_or(|text| test.contains(text))));
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
    let name = rustix::system::uname();
    measured.extend(table::cells(&said, Release::of(&name.release().to_string_lossy())?));
    Ok(tally)
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
