//! Each server in turn, started anew for each round, so that its keys are new.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::process;
use limiter_tests::sandbox::format::thousands;

use super::asked::{self, BURST, CONNECTIONS, Keys, Until};
use super::served::Peer;
use crate::figure::{Bound, Figure};
use crate::requests::asked::quantile;
use crate::requests::page::spread;
use crate::requests::servers::{ANSWERING, ASKING, Effort};
use crate::spread::Spread;

/// Keys of which a part of the hits is over the limit, and those whose memory is measured.
const KEYS: Keys = Keys { many: 10_000, hits: 10 };
const MILLION: Keys = Keys { many: 1_000_000, hits: 1 };

/// Commands of a connection that are under way at once.
const ONE: usize = 1;
const PIPELINE: usize = 16;

/// What was measured of a server, a value for each round.
#[derive(Clone, Debug, Default)]
struct Measured {
    /// Microseconds of the server's processor time for an answer, one by one and in pipelines.
    cost: [Vec<f64>; 2],
    /// Answers a second of the clock, likewise.
    answers: [Vec<f64>; 2],
    /// Microseconds to the answer at half load, of which 50 and 99 of 100 take no longer.
    middle: Vec<f64>,
    late: Vec<f64>,
    /// Megabytes that are resident with a million keys, once.
    memory: Vec<f64>,
}

/// Measures all servers; the part of the page, and the ratios.
pub(crate) fn measure(effort: &Effort) -> Result<(String, Vec<Figure>)> {
    let mut all = vec![Measured::default(); Peer::ALL.len()];
    let mut half = f64::INFINITY;
    for round in 0..=effort.rounds {
        for (peer, measured) in Peer::ALL.iter().zip(&mut all) {
            // The first round warms up, and shows how much is half of the load.
            if round == 0 {
                let mut first = Measured::default();
                first.fast(*peer, effort).with_context(|| peer.shown())?;
                if peer.decides_alone() {
                    half = half.min(first.answers[0][0] / 2.0);
                }
                measured.memory(*peer).with_context(|| peer.shown())?;
            } else {
                measured.fast(*peer, effort).with_context(|| peer.shown())?;
                measured.paced(*peer, effort, half).with_context(|| peer.shown())?;
            }
            let last = measured.cost.each_ref().map(|cost| cost.last().copied());
            eprintln!("round {round} of {}: {}: {last:.2?} us", effort.rounds, peer.shown());
        }
    }
    Ok((markdown(&all, half, effort)?, figures(&all)?))
}

impl Measured {
    /// As fast as it answers.
    fn fast(&mut self, peer: Peer, effort: &Effort) -> Result<()> {
        for (at, pipeline) in [ONE, PIPELINE].into_iter().enumerate() {
            let (server, ask) = peer.start(ANSWERING)?;
            let before = process::processor(server.pid())?;
            let until = Until::Time(effort.time);
            let answers = asked::fast(ASKING, server.address, ask, (KEYS, pipeline, until))?;
            let spent = process::processor(server.pid())? - before;
            let answers = f64::from(u32::try_from(answers)?);
            self.cost[at].push(spent * 1e6 / answers);
            self.answers[at].push(answers / effort.time.as_secs_f64());
        }
        Ok(())
    }

    /// At a rate, if it decides on a CPU of its own.
    fn paced(&mut self, peer: Peer, effort: &Effort, rate: f64) -> Result<()> {
        if peer.decides_alone() {
            let (server, ask) = peer.start(ANSWERING)?;
            let times = asked::paced(ASKING, server.address, ask, KEYS, (rate, effort.time))?;
            self.middle.push(quantile(&times, 0.5)?);
            self.late.push(quantile(&times, 0.99)?);
        }
        Ok(())
    }

    /// With a million keys, likewise.
    fn memory(&mut self, peer: Peer) -> Result<()> {
        if peer.decides_alone() {
            let (server, ask) = peer.start(ANSWERING)?;
            let until = Until::Commands(MILLION.many);
            let answers = asked::fast(ASKING, server.address, ask, (MILLION, ONE, until))?;
            ensure!(answers >= MILLION.many, "{answers} keys");
            self.memory.push(process::memory(server.pid())?.resident / 1e6);
        }
        Ok(())
    }
}

fn figures(all: &[Measured]) -> Result<Vec<Figure>> {
    let [ours, ping, two, throttlecrab, redis] = all else {
        anyhow::bail!("{} servers were measured", all.len());
    };
    let figure = |what: &str, over: &[f64], under: &[f64], budget, held| {
        let ratio = Spread::of(over.iter().zip(under).map(|(over, under)| over / under));
        let what = format!("RESP, {what}");
        anyhow::Ok(Figure { what, ratio: ratio.context("no rounds")?, budget, held })
    };
    let better = |at: usize| -> Vec<f64> {
        let both = throttlecrab.cost[at].iter().zip(&redis.cost[at]);
        both.map(|(one, other)| one.min(*other)).collect()
    };
    Ok(vec![
        figure(
            "one by one: the better peer over `limiter serve`, time of the processor",
            &better(0),
            &ours.cost[0],
            Some(Bound::AtLeast(1.4)),
            Bound::AtLeast(1.0),
        )?,
        figure(
            "one by one: the better peer over `PING`, likewise: most to gain",
            &better(0),
            &ping.cost[0],
            None,
            Bound::AtLeast(1.0),
        )?,
        figure(
            "pipelines of 16: the better peer over `limiter serve`, likewise",
            &better(1),
            &ours.cost[1],
            Some(Bound::AtLeast(4.0)),
            Bound::AtLeast(3.1),
        )?,
        figure(
            "pipelines of 16: the better peer over `PING`, likewise: most to gain",
            &better(1),
            &ping.cost[1],
            None,
            Bound::AtLeast(7.2),
        )?,
        figure(
            "pipelines of 16: answers of two threads over those of one, if each had a CPU",
            &ours.cost[1].iter().map(|cost| 2.0 * cost).collect::<Vec<_>>(),
            &two.cost[1],
            Some(Bound::AtLeast(1.7)),
            Bound::AtLeast(1.3),
        )?,
        figure(
            "p99 at half load: `limiter serve` over throttlecrab-server",
            &ours.late,
            &throttlecrab.late,
            Some(Bound::AtMost(1.0)),
            Bound::AtMost(0.5),
        )?,
        figure(
            "a million keys: `limiter serve` over throttlecrab-server, resident memory",
            &ours.memory,
            &throttlecrab.memory,
            Some(Bound::AtMost(1.0)),
            Bound::AtMost(0.8),
        )?,
    ])
}

fn markdown(all: &[Measured], half: f64, effort: &Effort) -> Result<String> {
    let mut page = format!(
        "### Over RESP\n\nThe protocol of Redis, {CONNECTIONS} connections, each with one command under way or \
         with {PIPELINE} in a pipeline: {} rounds of {} s for each server, in turn, each time a new process. A \
         server has one CPU, the applications that ask have another. The server with two threads \
         has both, and its processor time says what threads cost each other. *An answer* is the \
         processor time of the \
         server alone. Of {} hits of a key, {BURST} pass, {} keys at a time; a run counts what passes, and \
         breaks off if that is wrong. *Half load* is half of what the slowest answers one by one, sent at a \
         steady rate: {half:.0} a second. limiter and throttlecrab-server are asked by `THROTTLE`, Redis by \
         `EVALSHA` with the same arithmetic. Memory is all that is resident, of one process.\n\n\
         | | one by one: an answer, µs | pipelines of 16: an answer, µs | one by one: answers a second \
         | pipelines of 16: answers a second | half of the answers within, µs | 99 of 100 within, µs \
         | a million keys, MB |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
        effort.rounds,
        effort.time.as_secs(),
        KEYS.hits,
        thousands(u64::try_from(KEYS.many)?),
    );
    for (peer, measured) in Peer::ALL.iter().zip(all) {
        let of = |values: &Vec<f64>, digits| {
            let values = Spread::of(values.iter().copied());
            values.map_or_else(String::new, |values| spread(values, digits))
        };
        let Measured { cost: [one, many], answers: [ones, manys], middle, late, memory } = measured;
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            peer.shown(),
            of(one, 1),
            of(many, 2),
            of(ones, 0),
            of(manys, 0),
            of(middle, 0),
            of(late, 0),
            of(memory, 0),
        )?;
    }
    Ok(page)
}
