//! The service that a source within its limit gets beside a flood: how many of its packets arrive,
//! and how old they are.
//!
//! The generator sends them amid the flood. A sender of its own on the generator's CPU would hold
//! the flood up whenever it sends, and find room in the queue that the flood had filled.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::rate;
use limiter_tests::interrupt::Interrupt;
use limiter_tests::live_frames::{Load, Regular, Sources};

use super::contender::{Limit, SHIPPED, Tool};
use super::effort::{Effort, Flood};
use super::service;
use super::stand::{RECEIVING_CPU, Run, Stand, twice};
use crate::spread::Spread;

pub(super) const FLOODING: u32 = 10;

/// Source that conforms: no part of the flood.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);

/// Packets a second of it: half of what a source may send.
pub(super) const PER_SECOND: u32 = 1_000;

/// How often the service looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// Nanoseconds that a flood may have lasted longer than the generator says.
const SLACK: u64 = 50_000_000;

/// With fewer packets in all rounds there is no telling the slowest of a thousand.
const FOR_A_THOUSANDTH: usize = 1_000;

/// One tool under one flood, all rounds.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) tool: Tool,
    pub(super) flood: Flood,
    /// Flood packets offered a second, round by round.
    offered: Vec<f64>,
    /// Shares of the conforming packets that arrived, round by round.
    shares: Vec<f64>,
    /// Shares of all packets that the cable's queue had no room for, round by round.
    unreceived: Vec<f64>,
    /// Nanoseconds that the conforming ones took, of all rounds, in order.
    ages: Vec<u64>,
}

impl Cell {
    pub(super) fn offered(&self) -> Option<Spread> {
        Spread::of(self.offered.iter().copied())
    }

    pub(super) fn share(&self) -> Option<Spread> {
        Spread::of(self.shares.iter().copied())
    }

    pub(super) fn unreceived(&self) -> Option<Spread> {
        Spread::of(self.unreceived.iter().copied())
    }

    /// Nanoseconds that so many of a thousand packets took at most; `None` where there were too
    /// few.
    pub(super) fn quantile(&self, of_a_thousand: usize) -> Option<u64> {
        let count = self.ages.len();
        if of_a_thousand > 990 && count < FOR_A_THOUSANDTH {
            return None;
        }
        let place = (count * of_a_thousand).div_ceil(1_000);
        self.ages.get(place.saturating_sub(1)).copied()
    }
}

/// Measures what every tool but the bare drop, which lets nobody pass, leaves a conforming source.
pub(super) fn measure(effort: &Effort, interrupt: &Interrupt) -> Result<Vec<Cell>> {
    let mut stands = Vec::new();
    for tool in Tool::ALL.into_iter().filter(|tool| *tool != Tool::Drop) {
        ensure!(!interrupt.is_set(), "interrupted, no result");
        let mut stand = Stand::build(tool, Limit::Wide, SHIPPED)?;
        stand.part()?;
        stands.push(stand);
    }
    let empty = |tool: Tool| {
        effort.floods.iter().map(move |flood| Cell {
            tool,
            flood: *flood,
            offered: Vec::new(),
            shares: Vec::new(),
            unreceived: Vec::new(),
            ages: Vec::new(),
        })
    };
    let mut cells: Vec<Cell> = stands.iter().flat_map(|stand| empty(stand.tool)).collect();
    for round in 0..effort.flood_rounds {
        for flood in effort.floods {
            for turn in 0..stands.len() {
                ensure!(!interrupt.is_set(), "interrupted, no result");
                let number = (round + turn) % stands.len();
                let stand = stands.get(number).context("no stand")?;
                let mut of = cells.iter_mut();
                let cell = of.find(|cell| cell.tool == stand.tool && cell.flood == *flood);
                let what = || format!("{}, {flood:?}", stand.tool.name());
                let cell = cell.context("no cell")?;
                let (run, ages) = twice(what, || once(stand, *flood, effort))?;
                keeps_its_promise(stand.tool, &run)?;
                note(cell, &run, ages)?;
            }
        }
    }
    for cell in &mut cells {
        cell.ages.sort_unstable();
    }
    for stand in stands {
        stand.close()?;
    }
    Ok(cells)
}

/// One flood: the run, and the nanoseconds that each conforming packet took.
fn once(stand: &Stand, flood: Flood, effort: &Effort) -> Result<(Run, Vec<u64>)> {
    let (per_second, frames) = match flood {
        Flood::None => (None, 0),
        Flood::PerSecond(rate) => (Some(rate), u64::MAX),
        Flood::Fastest => (None, u64::MAX),
    };
    let regular = vec![Regular { first: SOURCE.to_bits(), count: 1, per_second: PER_SECOND }];
    let load = stand.load(Sources::Uniform(FLOODING), per_second, effort.step);
    let load = Load { frames, regular, ..load };
    let socket = stand.socket();
    service::drain(socket)?;
    socket.set_read_timeout(Some(LOOK))?;
    let over = AtomicBool::new(false);
    let (run, ages) = thread::scope(|scope| {
        let service = scope.spawn(|| service::read(socket, RECEIVING_CPU, SOURCE, &over));
        // The generator counts when nothing is under way any more.
        let run = stand.run(&load);
        over.store(true, Ordering::Relaxed);
        let ages = service.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        anyhow::Ok((run?, ages?))
    })?;
    ensure!(run.sent.regular[0] > 0, "the conforming source sent nothing");
    Ok((run, ages))
}

/// Nobody passes limiter with more than what everybody had saved up, and what came in meanwhile;
/// and the conforming source.
fn keeps_its_promise(tool: Tool, run: &Run) -> Result<()> {
    let (limit, _, burst) = Limit::Wide.parts();
    let refilled = u64::from(limit) * (run.sent.nanos + SLACK) / 1_000_000_000;
    let most = u64::from(FLOODING) * (u64::from(burst) + refilled) + run.sent.regular[0];
    let held = run.passed <= most || !matches!(tool, Tool::Limiter | Tool::Lines | Tool::Generic);
    ensure!(held, "{}: {} passed, and at most {most} may", tool.name(), run.passed);
    Ok(())
}

fn note(cell: &mut Cell, Run { sent, link, .. }: &Run, ages: Vec<u64>) -> Result<()> {
    let conforming = sent.regular[0];
    cell.offered.push(rate(sent.frames, sent.nanos));
    cell.shares.push(share(ages.len().try_into()?, conforming));
    cell.unreceived.push(share(link.lost, sent.frames + conforming));
    cell.ages.extend(ages);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts are far under 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The flood at which less than `share` of the conforming packets arrive behind a tool, in each
/// round, along straight lines between the floods that were measured. Where more arrive under all
/// of them, it is the largest one.
pub(super) fn falls_under(cells: &[Cell], tool: Tool, share: f64) -> Vec<f64> {
    let of: Vec<&Cell> = cells.iter().filter(|cell| cell.tool == tool).collect();
    let rounds = of.first().map_or(0, |cell| cell.shares.len());
    let in_round = |round: usize| {
        let point = |cell: &&Cell| Some((*cell.offered.get(round)?, *cell.shares.get(round)?));
        let points: Vec<(f64, f64)> = of.iter().filter_map(point).collect();
        let falls = points.windows(2).find_map(|pair| {
            let [(from, above), (to, below)] = pair else { return None };
            let within = (*above - share) / (*above - *below);
            (*above >= share && *below < share).then_some(from + within * (to - from))
        });
        falls.or_else(|| points.iter().map(|(offered, _)| *offered).max_by(f64::total_cmp))
    };
    (0..rounds).filter_map(in_round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(offered: f64, share: f64) -> Cell {
        let (tool, flood) = (Tool::Limiter, Flood::None);
        Cell {
            tool,
            flood,
            offered: vec![offered],
            shares: vec![share],
            unreceived: Vec::new(),
            ages: (1..=2_000).collect(),
        }
    }

    #[test]
    fn where_it_falls_is_between_two_floods() {
        let cells = [cell(0.0, 1.0), cell(1e6, 1.0), cell(2e6, 0.5), cell(3e6, 0.2)];
        assert_eq!(falls_under(&cells, Tool::Limiter, 0.75), [1.5e6]);
        assert_eq!(falls_under(&cells, Tool::Limiter, 0.1), [3e6]);
        assert!(falls_under(&cells, Tool::Hashlimit, 0.5).is_empty());
    }

    #[test]
    fn quantiles_are_of_all_packets() {
        let cell = cell(0.0, 1.0);
        assert_eq!((cell.quantile(500), cell.quantile(990)), (Some(1_000), Some(1_980)));
        assert_eq!(cell.quantile(999), Some(1_998));
        let few = Cell { ages: (1..=100).collect(), ..cell };
        assert_eq!((few.quantile(990), few.quantile(999)), (Some(99), None));
    }
}
