//! Memory and processor time, state by state.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::process::{self, Memory};
use limiter_tests::testbed::Testbed;
use serde_json::Value;

use super::page;
use crate::control::rules::{self, Shape};
use crate::crowd::{self, Crowd, MILLION};
use crate::figure::{Bound, Figure};
use crate::group::{Measured, Options};
use crate::spread::Spread;

/// Drops a second, of so many sources, that the daemon is to report.
const DROPS: u32 = 500_000;
const DROPPED: u32 = 1_000;

/// Sources that a view has to find among all of them, and what they send a second together.
const OVER: u32 = 20_000;
const OVER_PER_SECOND: u32 = 200_000;

/// How often a view is asked for its first row, and for how long at most.
const GLANCE: Duration = Duration::from_millis(50);
const FOUND: Duration = Duration::from_secs(30);

/// A view asks once a second.
const LOOK: Duration = Duration::from_secs(1);

/// Time within which memory is given back.
const SETTLED: Duration = Duration::from_millis(2_500);

/// A state, and what the daemon took in it.
pub(super) struct State {
    pub(super) name: String,
    pub(super) memory: Memory,
    /// Percent of a CPU, where that was measured.
    pub(super) processor: Option<f64>,
}

/// Size of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How long each state is watched.
    pub watched: Duration,
    /// Sources that are tracked.
    pub sources: u32,
    /// Limits of the rule sets that come and go.
    pub limits: u32,
    /// How often each is put in force.
    pub applied: u32,
}

/// Measures everything.
///
/// # Errors
///
/// When something of it fails.
pub fn run(options: &Options) -> Result<Measured> {
    let (watched, applied) = if options.quick { (2, 1) } else { (15, 5) };
    let watched = Duration::from_secs(watched);
    measure(&Effort { watched, sources: MILLION, limits: 100_000, applied })
}

/// Measures everything, with fewer sources and limits, or more.
///
/// # Errors
///
/// When something of it fails.
pub fn measure(effort: &Effort) -> Result<Measured> {
    let mut states = Vec::new();
    let found = crowded(effort, &mut states)?;
    large_sets(effort, &mut states)?;
    let mut figures = figures(&states)?;
    figures.push(Figure {
        what: "from the first drop to the row of a dropped source, seconds".to_owned(),
        ratio: Spread { median: found, low: found, high: found },
        budget: Some(Bound::AtMost(1.0)),
        held: Bound::AtMost(3.0),
    });
    Ok(Measured { page: page::markdown(effort, &states), figures })
}

const AT_REST: &str = "at rest";
const AFTER: &str = "no rules any more";
const REPORTED: &str = "drops reported";

fn figures(states: &[State]) -> Result<Vec<Figure>> {
    let of = |name: &str| {
        let found = states.iter().find(|state| state.name.contains(name));
        found.with_context(|| format!("no state {name}"))
    };
    let exact = |value| Spread { median: value, low: value, high: value };
    let most = |what: &str, value, budget: Option<f64>, held| Figure {
        what: what.to_owned(),
        ratio: exact(value),
        budget: budget.map(Bound::AtMost),
        held: Bound::AtMost(held),
    };
    let processor = |name| of(name)?.processor.context("its processor time was not measured");
    Ok(vec![
        most(
            "resident at rest with all sources tracked, MB",
            of(AT_REST)?.memory.resident / 1e6,
            Some(20.0),
            38.0,
        ),
        most("processor time at rest, percent of a CPU", processor(AT_REST)?, Some(0.5), 0.55),
        most(
            "resident when large rule sets were in force and are no more, MB",
            of(AFTER)?.memory.resident / 1e6,
            None,
            55.0,
        ),
        most(
            "processor time under a flood of drops, percent of a CPU",
            processor(REPORTED)?,
            None,
            0.55,
        ),
    ])
}

fn watch(limiter: &Limiter, name: impl Into<String>, time: Duration) -> Result<State> {
    watch_while(limiter, name, time, || Ok(()))
}

/// Watches the daemon for a time in which something is done once a second.
fn watch_while(
    limiter: &Limiter,
    name: impl Into<String>,
    time: Duration,
    mut work: impl FnMut() -> Result<()>,
) -> Result<State> {
    let pid = limiter.pid().context("the daemon does not run")?;
    let (began, before) = (Instant::now(), process::of_threads(pid)?);
    while began.elapsed() < time {
        work()?;
        thread::sleep(LOOK.min(time));
    }
    let used = process::of_threads(pid)? - before;
    let processor = Some(used / began.elapsed().as_secs_f64() * 100.0);
    let state = State { name: name.into(), memory: process::memory(pid)?, processor };
    eprintln!(
        "{}: {:.1} MB, {:.2} % of a CPU",
        state.name,
        state.memory.resident / 1e6,
        used / began.elapsed().as_secs_f64() * 100.0
    );
    Ok(state)
}

/// A million sources: nobody asks, somebody looks, many are dropped.
///
/// Returns the seconds from the first drop to the row that names a source that is dropped.
fn crowded(effort: &Effort, states: &mut Vec<State>) -> Result<f64> {
    let Effort { watched, sources, .. } = *effort;
    let crowd = Crowd::gather(sources)?;
    let limiter = &crowd.limiter;
    thread::sleep(SETTLED);
    states.push(watch(limiter, format!("{AT_REST}, nobody asks"), watched)?);
    let look = || crowd::request(limiter, "/v1/top").map(drop);
    states.push(watch_while(limiter, "`limiter top` looks once a second", watched, look)?);
    let mut generator = crowd.go_on(OVER, OVER_PER_SECOND)?;
    let found = first_row(limiter)?;
    let name = format!("{OVER} of them are dropped, `limiter top` looks once a second");
    states.push(watch_while(limiter, name, watched, look)?);
    generator.stop();
    generator.finish()?;
    let list = || limiter.json(&["sources", "--top", "20"]).map(drop);
    states.push(watch_while(limiter, "`limiter sources --top 20` again and again", watched, list)?);
    let before = events(limiter)?;
    let mut generator = crowd.go_on(DROPPED, DROPS)?;
    // Until they are over their limits.
    thread::sleep(LOOK);
    states.push(watch(limiter, format!("{REPORTED}, of {DROPS} a second"), watched)?);
    let follow = || crowd::request(limiter, "/v1/events").map(drop);
    let name = "the same, and somebody reads the events once a second";
    states.push(watch_while(limiter, name, watched, follow)?);
    generator.stop();
    generator.finish()?;
    let reported = events(limiter)? - before;
    ensure!(reported > 0, "no drop was reported");
    thread::sleep(SETTLED);
    states.push(watch(limiter, "after all of that", watched)?);
    crowd.close()?;
    Ok(found)
}

/// Seconds from the first answer that counts a drop to the first whose first row is a source that
/// loses packets now.
fn first_row(limiter: &Limiter) -> Result<f64> {
    let before = crowd::number(&crowd::request(limiter, "/v1/top")?, "/dropped")?;
    let began = Instant::now();
    let mut dropped = None;
    while began.elapsed() < FOUND {
        let top = crowd::request(limiter, "/v1/top")?;
        if dropped.is_none() && crowd::number(&top, "/dropped")? > before {
            dropped = Some(Instant::now());
        }
        let first = top.pointer("/sources/0/dropped_per_second").and_then(Value::as_f64);
        if let Some(dropped) = dropped
            && first.is_some_and(|rate| rate > 0.0)
        {
            return Ok(dropped.elapsed().as_secs_f64());
        }
        thread::sleep(GLANCE);
    }
    bail!("no source that is dropped became the first row within {} s", FOUND.as_secs())
}

/// Drops that the program reported.
fn events(limiter: &Limiter) -> Result<u64> {
    let events = crowd::request(limiter, "/v1/events")?;
    crowd::number(&events, "/counts/sent")
}

/// Large rule sets, again and again, of every shape.
fn large_sets(effort: &Effort, states: &mut Vec<State>) -> Result<()> {
    let Effort { watched, limits, applied, .. } = *effort;
    let bed = Testbed::create("leftovers")?;
    let mut limiter = bed.limiter("descriptors: []\n")?;
    limiter.options(["--max-rules", "262144"]).start()?;
    thread::sleep(SETTLED);
    states.push(watch(&limiter, "no rule", watched)?);
    for shape in Shape::ALL {
        for round in 0..applied {
            // Each time every limit is another one.
            let file = bed.dir.write("large.yaml", rules::file(shape, limits, 5 + round % 2))?;
            limiter.ok(["apply", &file.to_string_lossy()])?;
        }
        thread::sleep(SETTLED);
        let name = format!("{limits} limits, {}, applied so often: {applied}", shape.name());
        states.push(watch(&limiter, name, watched)?);
    }
    let none = bed.dir.write("none.yaml", "descriptors: []\n")?;
    // Twice: what was in force before is kept until the next one.
    for _ in 0..2 {
        limiter.ok(["apply", &none.to_string_lossy()])?;
    }
    thread::sleep(SETTLED);
    states.push(watch(&limiter, AFTER, watched)?);
    limiter.close()?;
    bed.close()
}
