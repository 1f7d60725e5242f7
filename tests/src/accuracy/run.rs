//! The whole measurement, from the first limit to the files.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::contender::CONTENDERS;
use super::machine::Machine;
use super::range::{self, Entry, Multiple};
use super::simulated::Steady;
use super::{chart, real, report, simulated};
use crate::interrupt::Interrupt;
use crate::program::Program;

/// Promise P3, in percent.
pub const PROMISE: f64 = 1.0;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where `accuracy.md` and `accuracy.svg` go.
    pub output: PathBuf,
    /// Fewer loads, shorter.
    pub quick: bool,
}

/// One limit in virtual time.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The limit.
    pub entry: Entry,
    /// Its loads.
    pub loads: Vec<(Multiple, Steady)>,
}

impl Simulated {
    /// Delivered against promised, in percent.
    pub fn error(&self, multiple: Multiple, steady: &Steady) -> f64 {
        (steady.rate / simulated::promised(&self.entry, multiple) - 1.0) * 100.0
    }

    /// The error furthest from zero.
    pub fn worst(&self) -> f64 {
        let errors = self.loads.iter().map(|(multiple, steady)| self.error(*multiple, steady));
        errors.fold(0.0, |worst: f64, error| if error.abs() > worst.abs() { error } else { worst })
    }
}

/// All results.
#[derive(Clone, Debug)]
pub struct Results {
    /// Where.
    pub machine: Machine,
    /// Whether it was a quick look.
    pub quick: bool,
    /// The whole range in virtual time.
    pub simulated: Vec<Simulated>,
    /// Real packets.
    pub real: Vec<real::Row>,
}

/// Measures everything and writes both files; tells whether every limit of ours was held in virtual
/// time.
///
/// # Errors
///
/// When something could not be measured at all, or on Ctrl-C; no file is written then.
pub fn run(options: &Options) -> Result<bool> {
    let interrupt = Interrupt::watch()?;
    ensure!(options.output.is_dir(), "no directory {}", options.output.display());
    let machine = Machine::look()?;
    let simulated = simulate(options.quick, &interrupt)?;
    let mut rows = Vec::new();
    let (multiples, effort) = if options.quick {
        (&[Multiple::ALL[0], Multiple::ALL[3], Multiple::ALL[5]][..], real::Effort::QUICK)
    } else {
        (&Multiple::ALL[..], real::Effort::FULL)
    };
    for contender in CONTENDERS.iter().filter(|contender| machine.has(contender.tool)) {
        eprintln!("accuracy: {}, {}", contender.tool.name(), contender.limit());
        let row = real::measure(contender, multiples, effort, &interrupt)
            .with_context(|| format!("{}, {}", contender.tool.name(), contender.limit()))?;
        rows.push(row);
    }
    let results = Results { machine, quick: options.quick, simulated, real: rows };
    for (name, text) in
        [("accuracy.md", report::markdown(&results)), ("accuracy.svg", chart::svg(&results)?)]
    {
        let path = options.output.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let broken: Vec<_> =
        results.simulated.iter().filter(|row| row.worst().abs() > PROMISE).collect();
    for row in &broken {
        eprintln!("accuracy: {} is {:+.3} % off", row.entry.text, row.worst());
    }
    Ok(broken.is_empty())
}

fn simulate(quick: bool, interrupt: &Interrupt) -> Result<Vec<Simulated>> {
    let effort = if quick { simulated::Effort::QUICK } else { simulated::Effort::FULL };
    let mut program = Program::load(1024, 16)?;
    let mut source = 0;
    let mut rows = Vec::new();
    for entry in range::entries()? {
        eprintln!("accuracy: {} in virtual time, frames of {} bytes", entry.text, entry.frame);
        program.apply(&simulated::rules(entry.limit))?;
        let mut loads = Vec::new();
        for multiple in Multiple::ALL {
            ensure!(!interrupt.is_set(), "interrupted, no result");
            source += 1;
            let steady = simulated::load(&program, &entry, multiple, effort, source)
                .with_context(|| format!("{} at {multiple}", entry.text))?;
            loads.push((multiple, steady));
        }
        rows.push(Simulated { entry, loads });
    }
    Ok(rows)
}
