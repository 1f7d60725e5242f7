//! The whole measurement, from the first flood to the files.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::interrupt::Interrupt;

use super::contender::Tool;
use super::effort::{Effort, Rate};
use super::scene::{self, Ladder, Sample};
use super::{chart, report};
use crate::machine::Machine;
use crate::spread::Spread;
use crate::tsv;

/// The picture of the page.
pub const PICTURE: &str = "floods.svg";

/// Options of the measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory for the results and [`PICTURE`].
    pub output: PathBuf,
    /// Entries of every table.
    pub entries: u32,
    /// Fewer rates, shorter, once.
    pub quick: bool,
}

/// All that the report has.
#[derive(Clone, Debug)]
pub struct Results {
    /// Machine of the measurement.
    pub machine: Machine,
    /// How busy it was with other things, just before: the load average of a minute.
    pub load: String,
    /// True after a quick look.
    pub quick: bool,
    /// Entries of every table.
    pub entries: u32,
    /// How long each of them is.
    pub step: Duration,
    /// The floods, in order.
    pub rates: &'static [Rate],
    /// Every tool in every round.
    pub ladders: Vec<Ladder>,
}

impl Results {
    /// The tools that were measured.
    pub fn tools(&self) -> impl Iterator<Item = Tool> {
        Tool::ALL.into_iter().filter(|tool| self.ladders.iter().any(|ladder| ladder.tool == *tool))
    }

    /// A figure of one tool under one rate, over all rounds; `None` where there is none.
    pub fn spread(
        &self,
        tool: Tool,
        rate: Rate,
        figure: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Spread> {
        let ladders = self.ladders.iter().filter(|ladder| ladder.tool == tool);
        let samples = ladders.flat_map(|ladder| &ladder.samples);
        Spread::of(samples.filter(|sample| sample.rate == rate).filter_map(figure))
    }
}

/// Measures everything and writes both files.
///
/// # Errors
///
/// When something could not be measured, or on Ctrl-C; no file is written then.
pub fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    ensure!(options.output.is_dir(), "no directory {}", options.output.display());
    let mut programs: Vec<_> = Tool::ALL.iter().filter_map(|tool| tool.program()).collect();
    programs.dedup();
    let machine = Machine::look(&programs)?;
    let load = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    let load = load.split_whitespace().next().unwrap_or_default().to_owned();
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let tools: Vec<Tool> =
        Tool::ALL.into_iter().filter(|tool| machine.has(tool.program())).collect();
    let mut ladders = Vec::new();
    for round in 0..effort.rounds {
        // Nobody is always the first.
        for tool in tools.iter().cycle().skip(round).take(tools.len()) {
            eprintln!("floods: round {} of {}, {}", round + 1, effort.rounds, tool.name());
            let ladder = scene::run(*tool, options.entries, &effort, &interrupt)
                .with_context(|| tool.name())?;
            ladders.push(ladder);
        }
    }
    let Options { quick, entries, .. } = *options;
    let Effort { step, rates, .. } = effort;
    let results = Results { machine, load, quick, entries, step, rates, ladders };
    let path = options.output.join(PICTURE);
    fs::write(&path, chart::svg(&results)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    tsv::write(&options.output, "floods", &report::markdown(&results))
}
