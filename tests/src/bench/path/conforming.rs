//! What a source that keeps to its limit gets beside a flood: how long its questions take, and how many are answered.

use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::contender::{Limit, SHIPPED, Tool};
use super::echo::{self, Asked};
use super::effort::{Effort, Flood};
use super::stand::{RECEIVING_CPU, SENDING_CPU, Stand};
use crate::cpu;
use crate::generator::rate;
use crate::interrupt::Interrupt;
use crate::live_frames::cable::WATCHING;
use crate::live_frames::{LiveFrames, Sources};
use crate::spread::Spread;
use crate::veth::SENDER;

/// Who floods.
pub(super) const FLOODING: u32 = 10;

/// Questions a second: half of what a source may send.
pub(super) const QUESTIONS: u32 = 1_000;

/// Nanoseconds that a flood may have lasted longer than the generator says.
const SLACK: u64 = 50_000_000;

/// Under this many answers in all rounds there is no telling the slowest of a thousand.
const FOR_A_THOUSANDTH: usize = 1_000;

/// One tool under one flood, all rounds.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) tool: Tool,
    pub(super) flood: Flood,
    /// Flood packets offered a second, round by round.
    offered: Vec<f64>,
    /// Shares of the questions that were answered, round by round.
    shares: Vec<f64>,
    /// Nanoseconds of all answers, in order.
    answers: Vec<u64>,
}

impl Cell {
    pub(super) fn offered(&self) -> Option<Spread> {
        Spread::of(self.offered.iter().copied())
    }

    pub(super) fn share(&self) -> Option<Spread> {
        Spread::of(self.shares.iter().copied())
    }

    /// Nanoseconds that so many of a thousand answers took at most; `None` where there were too few.
    pub(super) fn quantile(&self, of_a_thousand: usize) -> Option<u64> {
        let count = self.answers.len();
        if of_a_thousand > 990 && count < FOR_A_THOUSANDTH {
            return None;
        }
        let place = (count * of_a_thousand).div_ceil(1_000);
        self.answers.get(place.saturating_sub(1)).copied()
    }
}

/// What every tool but the bare drop, which lets nobody pass, leaves a conforming source.
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
            answers: Vec::new(),
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
                once(stand, cell.context("no cell")?, effort).with_context(what)?;
            }
        }
    }
    for cell in &mut cells {
        cell.answers.sort_unstable();
    }
    for stand in stands {
        stand.close()?;
    }
    Ok(cells)
}

fn once(stand: &Stand, cell: &mut Cell, effort: &Effort) -> Result<()> {
    let cpus = [SENDING_CPU, RECEIVING_CPU];
    let ask = || echo::ask(stand.bed(), cpus, QUESTIONS, effort.step);
    let per_second = match cell.flood {
        Flood::None => {
            note(cell, 0.0, &ask()?);
            return Ok(());
        }
        Flood::PerSecond(rate) => Some(rate),
        Flood::Fastest => None,
    };
    let load = stand.load(Sources::Uniform(FLOODING), per_second, effort.step * 10);
    let before = stand.delivered()?;
    let (sent, asked) = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // As what ends a step.
            cpu::real_time(None, WATCHING)?;
            let mut flood = LiveFrames::start(&stand.bed().sender, SENDER.interface, &load)?;
            let asked = ask()?;
            flood.stop();
            anyhow::Ok((flood.finish()?, asked))
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    note(cell, rate(sent.frames, sent.nanos), &asked);
    let passed = stand.delivered()? - before;
    if stand.tool == Tool::Limiter {
        // The promise: burst and rate of everybody, and the questions.
        let (limit, _, burst) = Limit::Wide.parts();
        let refilled = u128::from(limit) * u128::from(sent.nanos + SLACK) / 1_000_000_000;
        let most =
            u128::from(FLOODING) * (u128::from(burst) + refilled) + u128::from(asked.questions);
        ensure!(u128::from(passed) <= most, "{passed} passed, and at most {most} may");
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "thousands")]
fn note(cell: &mut Cell, offered: f64, asked: &Asked) {
    cell.offered.push(offered);
    cell.shares.push(asked.answers.len() as f64 / asked.questions.max(1) as f64);
    cell.answers.extend(&asked.answers);
}

/// The flood at which a tool leaves less than `share` of the answers, along straight lines between the floods that
/// were measured; `None` where it leaves more under all of them.
pub(super) fn falls_under(cells: &[Cell], tool: Tool, share: f64) -> Option<f64> {
    let points: Vec<(f64, f64)> = cells
        .iter()
        .filter(|cell| cell.tool == tool)
        .filter_map(|cell| Some((cell.offered()?.median, cell.share()?.median)))
        .collect();
    points.windows(2).find_map(|pair| {
        let [(from, above), (to, below)] = pair else { return None };
        let within = (*above - share) / (*above - *below);
        (*above >= share && *below < share).then_some(from + within * (to - from))
    })
}

/// The largest flood that a tool was measured under.
pub(super) fn largest(cells: &[Cell], tool: Tool) -> Option<f64> {
    let of = cells.iter().filter(|cell| cell.tool == tool);
    of.filter_map(|cell| Some(cell.offered()?.median)).max_by(f64::total_cmp)
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
            answers: (1..=2_000).collect(),
        }
    }

    #[test]
    fn where_it_falls_is_between_two_floods() {
        let cells = [cell(0.0, 1.0), cell(1e6, 1.0), cell(2e6, 0.5), cell(3e6, 0.2)];
        assert_eq!(falls_under(&cells, Tool::Limiter, 0.75), Some(1.5e6));
        assert_eq!(falls_under(&cells, Tool::Limiter, 0.1), None);
        assert_eq!(falls_under(&cells, Tool::Hashlimit, 0.5), None);
        assert_eq!(largest(&cells, Tool::Limiter), Some(3e6));
    }

    #[test]
    fn quantiles_are_of_all_answers() {
        let cell = cell(0.0, 1.0);
        assert_eq!((cell.quantile(500), cell.quantile(990)), (Some(1_000), Some(1_980)));
        assert_eq!(cell.quantile(999), Some(1_998));
        let few = Cell { answers: (1..=100).collect(), ..cell };
        assert_eq!((few.quantile(990), few.quantile(999)), (Some(99), None));
    }
}
