//! All of it, in turn.

use anyhow::Result;

use super::page;
use super::rules::Shape;
use super::sets::{self, Set};
use super::sources::{self, Counters};
use super::traffic::{self, Applied, Started};
use crate::crowd::MILLION;
use crate::figure::{Bound, Figure};
use crate::group::{Measured, Options};
use crate::spread::Spread;

const LIMITS: u32 = 100_000;

/// Nearly as many as may be replaced by as many others: `--max-rules` ends at 524,288.
const LISTED: u32 = 250_000;

pub(super) struct Results {
    pub(super) rounds: usize,
    pub(super) sets: Vec<Set>,
    pub(super) started: Vec<Started>,
    pub(super) applied: Applied,
    pub(super) counters: Counters,
}

/// Size of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Limits of the large rule sets.
    pub limits: u32,
    /// How often each is measured.
    pub rounds: usize,
    /// Limits of a list that is longer; with it all is measured that takes long.
    pub listed: Option<u32>,
    /// Sources whose counters are read.
    pub sources: u32,
}

/// Measures everything.
///
/// # Errors
///
/// When something of it fails.
pub fn run(options: &Options) -> Result<Measured> {
    let effort = Effort { limits: LIMITS, rounds: 5, listed: Some(LISTED), sources: MILLION };
    measure(&if options.quick { Effort { rounds: 3, listed: None, ..effort } } else { effort })
}

/// Measures everything, with fewer limits, or more.
///
/// # Errors
///
/// When something of it fails.
pub fn measure(effort: &Effort) -> Result<Measured> {
    let Effort { limits, rounds, listed, sources } = *effort;
    let counters = sources::measure(sources, rounds)?;
    let mut sets = sets::measure(&Shape::ALL, limits, rounds, listed.is_some())?;
    let mut started = vec![traffic::start(1, rounds)?];
    if let Some(listed) = listed {
        sets.extend(sets::measure(&[Shape::Listed], listed, 1, true)?);
        started.push(traffic::start(limits, rounds.div_ceil(2))?);
    }
    let applied = traffic::apply(limits, if listed.is_some() { rounds } else { 1 })?;
    let results = Results { rounds, sets, started, applied, counters };
    let page = page::markdown(&results);
    Ok(Measured { page, figures: figures(&results) })
}

fn figures(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut held = |what: String, ratio: Spread, budget: f64, held: f64| {
        let (budget, held) = (Some(Bound::AtMost(budget)), Bound::AtMost(held));
        figures.push(Figure { what, ratio, budget, held });
    };
    for set in results.sets.iter().filter(|set| set.limits == LIMITS) {
        let (seconds, ratio) = match set.shape {
            Shape::Listed => (0.5, 4.7),
            Shape::Sources => (1.05, 16.0),
            Shape::Named => (1.15, 17.0),
            Shape::Quoted => (1.2, 17.0),
            Shape::Keyed => (2.1, 28.0),
        };
        let name = format!("100,000 limits, {}", set.shape.name());
        held(format!("{name}: seconds to active"), set.apply, 1.0, seconds);
        let what = format!("{name}: processor time, over that of the raw update");
        held(what, set.processor_over_raw, 2.0, ratio);
    }
    let counters = &results.counters;
    let all = "1,000,000 counters, read and put in order";
    held(format!("{all}: seconds"), counters.by_rate, 1.0, 0.9);
    held(format!("{all}: seconds to the first 20"), counters.top, 0.5, 0.5);
    let what = format!("{all}: processor time, over that of the raw reading");
    held(what, counters.over_raw, 2.0, 1.7);
    figures
}
