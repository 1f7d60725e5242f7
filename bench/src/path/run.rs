//! The whole measurement.

use anyhow::{Result, ensure};
use limiter_tests::interrupt::Interrupt;

use super::capacity::{self, Capacity};
use super::conforming::{self, Cell};
use super::contender::{Limit, Tool, iptables};
use super::cost::{self, Table};
use super::effort::{Crowd, Effort};
use super::stand::Stand;
use super::steal::Steal;
use super::{page, ratios};
use crate::group::{Measured, Options};
use crate::machine::Machine;

#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) effort: Effort,
    /// Of every tool its rule, under the first crowd and under the last.
    pub(super) rules: Vec<(Tool, String)>,
    pub(super) tables: Vec<Table>,
    /// With a rule by port and source, and with four rules.
    pub(super) keyed: Vec<Table>,
    pub(super) capacities: Vec<Capacity>,
    pub(super) cells: Vec<Cell>,
    /// The share of the time that the host gave to others.
    pub(super) steal: f64,
}

/// The crowd whose packets are taken by a CPU of their own.
const CAPACITY_CROWD: u32 = 10_000;

/// Measures everything.
///
/// # Errors
///
/// When something of it fails, or was not what it was meant to be.
pub fn run(options: &Options) -> Result<Measured> {
    ensure!(options.only.is_none(), "this group has no headings to choose from: leave out --only");
    let interrupt = Interrupt::watch()?;
    let machine = Machine::look(&[iptables(), "nft"])?;
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let steal = Steal::begin()?;
    let (mut rules, mut tables, mut capacities) = (Vec::new(), Vec::new(), Vec::new());
    for crowd in effort.crowds {
        eprintln!("path: sources: {}, rounds: {}", crowd.sources, effort.rounds);
        let mut stands = cost::build(crowd, Limit::Once, &Tool::ALL, &interrupt)?;
        tables.extend(costs(&stands, crowd, &effort, &interrupt)?);
        if let (CAPACITY_CROWD, [mix, ..]) = (crowd.sources, crowd.mixes) {
            eprintln!("path: the receive side alone");
            capacities = capacity::measure(&mut stands, mix, &effort, &interrupt)?;
        }
        rules = stands.iter().map(|stand| (stand.tool, stand.listed().to_owned())).collect();
        for stand in stands {
            stand.close()?;
        }
    }
    let mut keyed = Vec::new();
    let crowds = effort.keyed.iter().map(|crowd| (crowd, Limit::OnceToPort));
    for (crowd, limit) in crowds.chain([(&effort.four, Limit::Four)]) {
        eprintln!("path: keys: {}, rounds: {}", crowd.sources, effort.rounds);
        let stands = cost::build(crowd, limit, &Tool::KEYED, &interrupt)?;
        keyed.extend(costs(&stands, crowd, &effort, &interrupt)?);
        for stand in stands {
            stand.close()?;
        }
    }
    eprintln!("path: a conforming source beside {} floods", effort.floods.len() - 1);
    let cells = conforming::measure(&effort, &interrupt)?;
    let steal = steal.end()?;
    let results = Results { machine, effort, rules, tables, keyed, capacities, cells, steal };
    Ok(Measured { page: page::markdown(&results), figures: ratios::of(&results) })
}

/// The costs of all tools under each mix of a crowd.
pub(super) fn costs(
    stands: &[Stand],
    crowd: &Crowd,
    effort: &Effort,
    interrupt: &Interrupt,
) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for mix in crowd.mixes {
        let table = cost::measure(stands, mix, effort, interrupt)?;
        for stand in stands {
            if let Some(total) = table.total(stand.tool) {
                eprintln!("path: {}: {}: {:.0} ns", mix.name, stand.tool.name(), total.median);
            }
        }
        tables.push(table);
    }
    Ok(tables)
}
