//! Large rule sets: put in force, compared, listed, exported; beside the raw update of the maps in
//! the same round.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use limiter_tests::limiter::Limiter;
use limiter_tests::process;
use limiter_tests::testbed::Testbed;

use super::raw;
use super::rules::{self, Shape};
use crate::spread::Spread;

/// Seconds of one shape.
pub(super) struct Set {
    pub(super) shape: Shape,
    pub(super) limits: u32,
    /// By the clock, and the processor time of daemon and command line together.
    pub(super) apply: Spread,
    pub(super) processor: Spread,
    /// The raw update by the clock, and apply over it in each round, by the clock and by the
    /// processor.
    pub(super) raw: Spread,
    pub(super) over_raw: Spread,
    pub(super) processor_over_raw: Spread,
    /// Unless it was a quick look.
    pub(super) others: Option<Others>,
}

/// Seconds of what only reads.
pub(super) struct Others {
    pub(super) diff: Spread,
    pub(super) list: Spread,
    pub(super) export: Spread,
}

/// Seconds by the clock and by the processors.
#[derive(Clone, Copy, Debug)]
struct Took {
    clock: f64,
    processor: f64,
}

fn took(limiter: &Limiter, work: impl FnOnce() -> Result<()>) -> Result<Took> {
    let pid = limiter.pid().context("the daemon does not run")?;
    let used = || -> Result<f64> { Ok(process::processor(pid)? + process::of_children()?) };
    let (before, began) = (used()?, Instant::now());
    work()?;
    Ok(Took { clock: began.elapsed().as_secs_f64(), processor: used()? - before })
}

/// Measures every shape with so many limits.
pub(super) fn measure(
    shapes: &[Shape],
    limits: u32,
    rounds: usize,
    with_others: bool,
) -> Result<Vec<Set>> {
    let bed = Testbed::create("sets")?;
    let mut limiter = bed.limiter("descriptors: []\n")?;
    // Limits in force and limits that take their place, and a few.
    let room = 2 * limits + 1_024;
    limiter.options(["--max-rules".to_owned(), room.to_string()]).start()?;
    let mut sets = Vec::new();
    for shape in shapes {
        let first = bed.dir.write("first.yaml", rules::file(*shape, limits, 5))?;
        let second = bed.dir.write("second.yaml", rules::file(*shape, limits, 7))?;
        let set = one(&limiter, *shape, limits, [&first, &second], rounds, with_others)
            .with_context(|| format!("{limits} limits, {}", shape.name()))?;
        eprintln!(
            "{limits} limits, {}: {:.2} s, raw {:.2} s",
            shape.name(),
            set.apply.median,
            set.raw.median
        );
        sets.push(set);
    }
    limiter.close()?;
    bed.close()?;
    Ok(sets)
}

fn one(
    limiter: &Limiter,
    shape: Shape,
    limits: u32,
    files: [&Path; 2],
    rounds: usize,
    with_others: bool,
) -> Result<Set> {
    let files = files.map(|file| file.to_string_lossy().into_owned());
    let mut times: [Vec<f64>; 5] = Default::default();
    let mut others: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        let raw = raw::measure(limits)?;
        // Each finds the other in force: every limit is another.
        let [applied, other] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let [applied, other] = [&files[applied], &files[other]];
        let apply = took(limiter, || limiter.ok(["apply", applied]).map(drop))?;
        if with_others {
            // `diff` says by its exit code that there are differences.
            let diff = took(limiter, || limiter.cli(["diff", other]).map(drop))?;
            let list = took(limiter, || limiter.ok(["list"]).map(drop))?;
            let export = took(limiter, || limiter.ok(["export"]).map(drop))?;
            let values = [diff, list, export].map(|took| took.clock);
            others.iter_mut().zip(values).for_each(|(times, value)| times.push(value));
        }
        let values = [
            apply.clock,
            apply.processor,
            raw.clock,
            apply.clock / raw.clock,
            apply.processor / raw.processor,
        ];
        times.iter_mut().zip(values).for_each(|(times, value)| times.push(value));
    }
    let mut spreads = times.into_iter().map(Spread::of);
    let mut next = || spreads.next().flatten().context("no rounds");
    Ok(Set {
        shape,
        limits,
        apply: next()?,
        processor: next()?,
        raw: next()?,
        over_raw: next()?,
        processor_over_raw: next()?,
        others: match others.map(Spread::of) {
            [Some(diff), Some(list), Some(export)] => Some(Others { diff, list, export }),
            _ => None,
        },
    })
}
