//! The whole measurement, from the first limit to the files.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::accuracy::range::{self, Entry, Multiple};
use limiter_tests::accuracy::simulated;
use limiter_tests::accuracy::simulated::Steady;
use limiter_tests::interrupt::Interrupt;
use limiter_tests::program::Program;

use super::contender::{CONTENDERS, Tool};
use super::{real, report};
use crate::machine::Machine;
use crate::tsv;

/// Promise P3, in percent.
pub const PROMISE: f64 = 1.0;

/// Options of the measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for the results.
    pub output: PathBuf,
    /// Fewer loads, shorter.
    pub quick: bool,
}

/// One limit in virtual time.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The limit.
    pub entry: Entry,
    /// The share of the rate that rounding costs.
    pub rounding: f64,
    /// Loads on the limit.
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

/// All that the report has.
#[derive(Clone, Debug)]
pub struct Results {
    /// Machine of the measurement.
    pub machine: Machine,
    /// True after a quick look.
    pub quick: bool,
    /// The whole range in virtual time.
    pub simulated: Vec<Simulated>,
    /// Real packets.
    pub real: Vec<real::Row>,
}

/// Measures everything and writes the results; says whether every limit of ours was held.
///
/// # Errors
///
/// When something could not be measured at all, or on Ctrl-C; no file is written then.
pub fn run(options: &Options) -> Result<bool> {
    let interrupt = Interrupt::watch()?;
    ensure!(options.output.is_dir(), "no directory {}", options.output.display());
    let mut programs: Vec<_> = Tool::ALL.iter().filter_map(|tool| tool.program()).collect();
    programs.dedup();
    let machine = Machine::look(&programs)?;
    let simulated = simulate(options.quick, &interrupt)?;
    let mut rows = Vec::new();
    let (multiples, effort) = if options.quick {
        (&[Multiple::ALL[0], Multiple::ALL[3], Multiple::ALL[5]][..], real::Effort::QUICK)
    } else {
        (&Multiple::ALL[..], real::Effort::FULL)
    };
    for contender in CONTENDERS.iter().filter(|contender| machine.has(contender.tool.program())) {
        eprintln!("accuracy: {}, {}", contender.tool.name(), contender.limit());
        let row = real::measure(contender, multiples, effort, &interrupt)
            .with_context(|| format!("{}, {}", contender.tool.name(), contender.limit()))?;
        rows.push(row);
    }
    let results = Results { machine, quick: options.quick, simulated, real: rows };
    tsv::write(&options.output, "accuracy", &report::markdown(&results))?;
    let broken = broken(&results);
    for limit in &broken {
        eprintln!("accuracy: not held to {PROMISE} %: {limit}");
    }
    Ok(broken.is_empty())
}

/// Limits of ours that were not held.
fn broken(results: &Results) -> Vec<String> {
    let simulated = results.simulated.iter().filter(|row| row.worst().abs() > PROMISE);
    let simulated = simulated.map(|row| format!("{} by {:+.3} %", row.entry.text, row.worst()));
    let ours = results.real.iter().filter(|row| row.contender.tool == Tool::Limiter);
    let real = ours.filter_map(|row| {
        let cell = row.worst().filter(|cell| cell.error().abs() > PROMISE)?;
        let limit = row.contender.limit();
        Some(format!("{limit} with real packets at {} by {:+.3} %", cell.multiple, cell.error()))
    });
    simulated.chain(real).collect()
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
        rows.push(Simulated { entry, rounding: simulated::rounding(&entry)?, loads });
    }
    Ok(rows)
}
