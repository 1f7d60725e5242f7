//! The groups of measurements: each has its part of `docs/performance.md`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::figure::{self, Figure};
use super::{contention, control, daemon, memory, packets, path};
use crate::machine::Machine;

/// One group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Nanoseconds a packet, by test-run, beside the least that a program could do.
    Packets,
    /// The whole way over a cable, beside hashlimit, nft and tc.
    Path,
    /// Packets a second of several CPUs on the same sources, over those of one.
    Contention,
    /// Kernel memory for each source and each key, beside hashlimit and nft.
    Memory,
    /// From the command line to active, and back.
    Control,
    /// What the daemon takes at rest, and under a flood of events.
    Daemon,
}

/// How to measure.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Few cases, few rounds.
    pub quick: bool,
    /// Only the cases under this heading.
    pub only: Option<String>,
}

/// What a group found.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Its part of the page, without the machine and the figures: these are put before it.
    pub page: String,
    /// Its pictures: the name of a file, and the SVG.
    pub pictures: Vec<(String, String)>,
    /// The ratios that have a budget, or are held without one.
    pub figures: Vec<Figure>,
}

impl Group {
    /// Its word on the command line: the name of its part, too.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Measures it.
    ///
    /// # Errors
    ///
    /// When something of it fails, or was not what it was meant to be.
    pub fn measure(self, options: &Options) -> Result<Measured> {
        match self {
            Self::Packets => packets::run::run(options),
            Self::Path => path::run::run(options),
            Self::Contention => contention::run::run(options),
            Self::Memory => memory::run::run(options),
            Self::Control => control::run::run(options),
            Self::Daemon => daemon::run::run(options),
        }
    }

    /// Measures it and writes its part of the page, as `NAME.md`, and its pictures.
    ///
    /// # Errors
    ///
    /// As [`Group::measure`], and when a file cannot be written.
    pub fn report(self, options: &Options, output: &Path) -> Result<Vec<Figure>> {
        let name = self.name();
        let machine = Machine::look(&[])?.markdown();
        let load = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
        let load = load.split_whitespace().next().unwrap_or_default().to_owned();
        let Measured { page, pictures, figures } = self.measure(options)?;
        let quick = if options.quick {
            "> A quick look (`--quick`): few cases, few rounds.\n\n"
        } else {
            ""
        };
        let ratios = figure::table(&figures);
        let text = format!(
            "{quick}Made by `cargo xtask bench {name}`; do not edit up to the next heading. The figures are those of \
             one run on one machine.\n\n{machine}| load average before | {load} |\n\n{ratios}\n{page}"
        );
        let write = |name: &str, text: &str| {
            let path = output.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write(&format!("{name}.md"), &text)?;
        for (name, svg) in &pictures {
            write(name, svg)?;
        }
        Ok(figures)
    }
}
