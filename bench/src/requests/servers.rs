//! Each server in turn, asked by the same proxies over gRPC.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt::Write as _, thread};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cluster::redis_server::RedisServer;
use limiter_tests::netns::Netns;
use limiter_tests::process;
use limiter_tests::sandbox::format::thousands;

use super::asked::{self, AT_ONCE, CONNECTIONS};
use super::contender::Contender;
use super::page::spread;
use super::served::{Peer, Served};
use crate::figure::{Bound, Figure};
use crate::spread::Spread;

/// The CPU of those that ask, and of the server.
pub(super) const ASKING: usize = 0;
pub(super) const ANSWERING: usize = 1;

/// Users of limits in memory, and of those that are shared, where each is asked about often.
const USERS: usize = 10_000;
const SHARED_USERS: usize = 100;

/// What was measured of a server, a value for each round.
#[derive(Clone, Debug, Default)]
struct Measured {
    /// Microseconds of the server's processor time for an answer.
    cost: Vec<f64>,
    /// Answers a second of the clock.
    answers: Vec<f64>,
    /// Microseconds to the answer at half load, of which 50 and 99 of 100 take no longer.
    middle: Vec<f64>,
    late: Vec<f64>,
}

/// How long.
pub(super) struct Effort {
    pub(super) rounds: usize,
    pub(super) time: Duration,
}

/// Measures all servers; the part of the page, and the ratios.
pub(super) fn measure(effort: &Effort) -> Result<(String, Vec<Figure>)> {
    let cpus = thread::available_parallelism()?.get();
    ensure!(cpus > ANSWERING, "the servers and those that ask have a CPU each, and there is one");
    let netns = Arc::new(Netns::create("bench-requests")?);
    let directory = tempfile::tempdir()?;
    let redis = RedisServer::start(&netns, directory.path())?;
    let socket = redis.socket().display().to_string();
    let servers: Vec<Served> = Peer::ALL
        .iter()
        .map(|peer| Served::start(*peer, ANSWERING, &socket))
        .collect::<Result<_>>()?;
    let mut all = vec![Measured::default(); servers.len()];
    let mut rates = [f64::INFINITY; 2];
    for round in 0..=effort.rounds {
        for ((peer, server), measured) in Peer::ALL.iter().zip(&servers).zip(&mut all) {
            let before = process::processor(server.pid())?;
            let answers = asked::fast(ASKING, server.address, users(*peer), effort.time)?;
            let spent = process::processor(server.pid())? - before;
            let answers = f64::from(u32::try_from(answers)?);
            let rate = answers / effort.time.as_secs_f64();
            eprintln!(
                "round {round} of {}: {peer}: {rate:.0} a second, {:.1} us each",
                effort.rounds,
                spent * 1e6 / answers
            );
            // The first round warms up, and shows how much is half of the load.
            if round == 0 {
                let rate_of = &mut rates[usize::from(is_shared(*peer))];
                *rate_of = rate_of.min(rate / 2.0);
                continue;
            }
            measured.cost.push(spent * 1e6 / answers);
            measured.answers.push(rate);
            let rate = rates[usize::from(is_shared(*peer))];
            let times = asked::paced(ASKING, server.address, users(*peer), rate, effort.time)?;
            measured.middle.push(asked::quantile(&times, 0.5)?);
            measured.late.push(asked::quantile(&times, 0.99)?);
        }
    }
    let page = markdown(&all, rates, effort)?;
    Ok((page, figures(&all)?))
}

fn is_shared(peer: Peer) -> bool {
    matches!(peer, Peer::Shared | Peer::Call)
}

fn users(peer: Peer) -> usize {
    if is_shared(peer) { SHARED_USERS } else { USERS }
}

fn of(all: &[Measured], peer: Peer) -> Result<&Measured> {
    let at = Peer::ALL.iter().position(|one| *one == peer).context("a server of the list")?;
    all.get(at).context("a server that was measured")
}

fn figures(all: &[Measured]) -> Result<Vec<Figure>> {
    let ratio = |over: &[f64], under: &[f64]| {
        Spread::of(over.iter().zip(under).map(|(over, under)| over / under)).context("no rounds")
    };
    let (serve, crate_) = (of(all, Peer::Serve)?, of(all, Peer::Memory(Contender::Limiter))?);
    let limitador = of(all, Peer::Memory(Contender::Limitador))?;
    let governor = of(all, Peer::Memory(Contender::Governor))?;
    let (nothing, shared, call) =
        (of(all, Peer::Nothing)?, of(all, Peer::Shared)?, of(all, Peer::Call)?);
    let figure =
        |what: &str, ratio, budget, held| Figure { what: what.to_owned(), ratio, budget, held };
    Ok(vec![
        figure(
            "gRPC: the small server with limitador over `limiter serve`, time of the processor",
            ratio(&limitador.cost, &serve.cost)?,
            Some(Bound::AtLeast(1.3)),
            Bound::AtLeast(0.9),
        ),
        figure(
            "gRPC: the small server with limitador over the same with limiter's crate, likewise",
            ratio(&limitador.cost, &crate_.cost)?,
            Some(Bound::AtLeast(1.3)),
            Bound::AtLeast(1.0),
        ),
        figure(
            "gRPC: the small server with governor over the same with limiter's crate, likewise",
            ratio(&governor.cost, &crate_.cost)?,
            None,
            Bound::AtLeast(0.65),
        ),
        figure(
            "gRPC: the small server with limitador over the same without a limiter: most to gain",
            ratio(&limitador.cost, &nothing.cost)?,
            None,
            Bound::AtLeast(1.05),
        ),
        figure(
            "gRPC, p99 at half load: `limiter serve` over the small server with limitador",
            ratio(&serve.late, &limitador.late)?,
            Some(Bound::AtMost(1.0)),
            Bound::AtMost(1.5),
        ),
        figure(
            "gRPC over Redis: a call for each request over `limiter serve`, time of the processor",
            ratio(&call.cost, &shared.cost)?,
            Some(Bound::AtLeast(20.0)),
            Bound::AtLeast(0.85),
        ),
        figure(
            "gRPC over Redis: a call for each request over no limiter at all: most to gain",
            ratio(&call.cost, &nothing.cost)?,
            None,
            Bound::AtLeast(1.0),
        ),
        figure(
            "gRPC over Redis, p99 at half load: `limiter serve` over a call for each request",
            ratio(&shared.late, &call.late)?,
            Some(Bound::AtMost(0.1)),
            Bound::AtMost(1.0),
        ),
    ])
}

fn markdown(all: &[Measured], rates: [f64; 2], effort: &Effort) -> Result<String> {
    let rate = |rate: f64| format!("{rate:.0}");
    let mut page = format!(
        "### Over gRPC\n\nEnvoy's service over gRPC, {CONNECTIONS} connections with {AT_ONCE} requests each under \
         way: {} rounds of {} s for each server, in turn. A server has one thread on one CPU; the \
         proxies that ask, and Redis, have another. *A request* is the processor time of the \
         server alone. *Half load* is half of what the slowest answers, sent at a steady rate: {} \
         a second for limits in memory ({} users), {} for those over Redis ({} users, about whom \
         it is asked more often than leases end). The *small server* is one of tonic with the \
         crate behind it, which answers with the verdict only; `limiter serve` also answers with \
         limits, what is left and when it resets, counts by rule, and is bounded.\n\n\
         | | a request, µs | answers a second | half of the answers within, µs | 99 of 100 within, \
         µs |\n|---|--:|--:|--:|--:|\n",
        effort.rounds,
        effort.time.as_secs(),
        rate(rates[0]),
        thousands(u64::try_from(USERS)?),
        rate(rates[1]),
        thousands(u64::try_from(SHARED_USERS)?),
    );
    for (peer, Measured { cost, answers, middle, late }) in Peer::ALL.iter().zip(all) {
        let of = |values: &Vec<f64>| {
            Spread::of(values.iter().copied()).context("no rounds").map(|values| spread(values, 0))
        };
        let cost = Spread::of(cost.iter().copied()).context("no rounds")?;
        writeln!(
            page,
            "| {} | {} | {} | {} | {} |",
            peer.shown(),
            spread(cost, 1),
            of(answers)?,
            of(middle)?,
            of(late)?
        )?;
    }
    Ok(page)
}
