//! The groups of measurements: each has a file in `bench/results`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::figure::{self, Figure};
use super::{contention, control, daemon, memory, packets, path, requests, tsv};
use crate::machine::Machine;

/// Group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Nanoseconds a packet, by test-run, beside the least that a program could do.
    Packets,
    /// The whole way over a cable, beside hashlimit, nft and tc.
    Path,
    /// The whole way over a cable to a limit at tc, in and out, beside nft and tc.
    Tc,
    /// Packets a second of several CPUs on the same sources, over those of one.
    Contention,
    /// Kernel memory for each source and each key, beside hashlimit and nft.
    Memory,
    /// From the command line to active, and back.
    Control,
    /// Memory and processor time of the daemon, at rest and under a flood of events.
    Daemon,
    /// Decisions about requests, in process and over gRPC, beside limitador, governor and a call of
    /// Redis for each; and over RESP, beside throttlecrab-server and a script of Redis.
    Requests,
}

/// How to measure.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Few cases, few rounds.
    pub quick: bool,
    /// Only the cases under this heading.
    pub only: Option<String>,
}

/// Results of a group.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The report, in Markdown.
    pub page: String,
    /// Ratios that `--check` looks at.
    pub figures: Vec<Figure>,
}

impl Group {
    /// Name on the command line, and of the group's file.
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
            Self::Tc => path::at_tc::run(options),
            Self::Contention => contention::run::run(options),
            Self::Memory => memory::run::run(options),
            Self::Control => control::run::run(options),
            Self::Daemon => daemon::run::run(options),
            Self::Requests => requests::run::run(options),
        }
    }

    /// Measures it: the report is whole then, with the machine and the figures.
    ///
    /// # Errors
    ///
    /// As [`Group::measure`].
    pub fn report(self, options: &Options) -> Result<Measured> {
        let name = self.name();
        let machine = Machine::look(&[])?.markdown();
        let load = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
        let load = load.split_whitespace().next().unwrap_or_default().to_owned();
        let measured = self.measure(options)?;
        let quick =
            if options.quick { "A quick look (`--quick`): few cases, few rounds.\n\n" } else { "" };
        let ratios = figure::table(&measured.figures);
        let page = format!(
            "{quick}Made by `cargo xtask bench {name}`, in one run on one machine.\n\n### Machine\n\n\
             {machine}| load average before | {load} |\n\n### Figures\n\n{ratios}\n### \
             Measured\n\n{}",
            measured.page
        );
        Ok(Measured { page, ..measured })
    }

    /// Writes what [`Group::report`] measured into the group's file in `output`.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(self, measured: &Measured, output: &Path) -> Result<()> {
        tsv::write(output, &self.name(), &measured.page)
    }
}
