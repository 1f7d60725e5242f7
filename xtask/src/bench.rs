//! `cargo xtask bench`: measures what limiter costs, and writes the parts of `docs/performance.md`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::measure;

const PAGE: &str = "performance.md";

/// What `bench` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to measure; all of it unless named
    groups: Vec<Group>,
    /// Fewer cases and rounds
    #[arg(long)]
    quick: bool,
    /// After a quick look, fail where a figure is not what it is held to, and leave the page as it is
    #[arg(long)]
    check: bool,
}

/// A part of the page.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Group {
    /// Nanoseconds a packet, by test-run, beside the least that a program could do; about five minutes
    Packets,
    /// The whole way of a packet over a cable, beside hashlimit, nft and tc; about eight minutes
    Path,
    /// What several CPUs get done on the same sources, over what one does; about two minutes
    Contention,
    /// Kernel memory for each source and each key, beside hashlimit and nft; about a minute
    Memory,
    /// From the command line to active, and back: large rule sets, a million counters; about three minutes
    Control,
    /// What the daemon takes at rest and under a flood of events; about four minutes
    Daemon,
}

impl Group {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The words behind `cargo xtask`.
    fn command(self) -> String {
        format!("bench {}", self.name())
    }
}

/// Measures, and puts the results into the checkout as this user.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { groups, quick, check } = arguments;
    let mut options: Vec<String> = groups.iter().copied().map(Group::name).collect();
    options.extend((*quick || *check).then(|| "--quick".to_owned()));
    options.extend(check.then(|| "--check".to_owned()));
    let command = ["bench".to_owned()].into_iter().chain(options.iter().cloned());
    let command = command.collect::<Vec<_>>().join(" ");
    let (code, output) = measure::run(&command, "limiter-bench", &options)?;
    if *check || code != ExitCode::SUCCESS {
        return Ok(code);
    }
    let groups = if groups.is_empty() { Group::value_variants() } else { groups };
    for group in groups {
        let part = format!("{}.md", group.name());
        measure::splice_part(&group.command(), PAGE, output.path(), &part)?;
    }
    for picture in pictures(output.path())? {
        measure::copy(&picture, output.path())?;
    }
    Ok(code)
}

/// The names of the pictures that were made.
fn pictures(output: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(output).context("the directory of the results is gone")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|extension| extension == "svg") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_marks_of_every_group() {
        for group in Group::value_variants() {
            assert!(measure::has_marks(&group.command(), PAGE).unwrap(), "{group:?}");
        }
    }
}
