//! Each limiter in turn, with the same users in the same order.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::contender::{Contender, Decide};
use super::{page, resp, servers};
use crate::figure::{Bound, Figure};
use crate::group::{Measured, Options};
use crate::spread::Spread;

/// Users, and what the ratios to limitador and governor are held to.
const CASES: [(usize, [f64; 2]); 3] =
    [(1, [6.1, 0.12]), (10_000, [8.4, 0.17]), (1_000_000, [3.4, 0.35])];

/// One number of users.
pub(super) struct Row {
    pub(super) users: usize,
    /// Nanoseconds of a decision, in the order of [`Contender::ALL`].
    pub(super) each: Vec<Spread>,
    /// Those of the others over limiter's.
    pub(super) ratios: Vec<Spread>,
    /// The part that passed, in per cent.
    pub(super) passed: Vec<Spread>,
}

/// Rounds, and decisions in each.
pub(super) struct Effort {
    pub(super) rounds: usize,
    pub(super) decisions: usize,
}

/// Measures everything.
///
/// # Errors
///
/// When a limiter does not decide.
pub fn run(options: &Options) -> Result<Measured> {
    let (rounds, decisions) = if options.quick { (3, 100_000) } else { (11, 500_000) };
    let effort = Effort { rounds, decisions };
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for (users, held) in CASES {
        let row = measure(users, &effort).with_context(|| format!("{users} users"))?;
        let wanted = [4.0, 1.0];
        for (number, contender) in Contender::ALL.iter().skip(1).enumerate() {
            figures.push(Figure {
                what: format!("{users} users: a decision of {} over ours", contender.name()),
                ratio: row.ratios[number],
                budget: Some(Bound::AtLeast(wanted[number])),
                held: Bound::AtLeast(held[number]),
            });
        }
        rows.push(row);
    }
    let (rounds, seconds) = if options.quick { (1, 1) } else { (7, 3) };
    let effort_of_servers = servers::Effort { rounds, time: Duration::from_secs(seconds) };
    let (served, of_servers) = servers::measure(&effort_of_servers).context("servers")?;
    figures.extend(of_servers);
    let (of_resp, figures_of_resp) = resp::measure(&effort_of_servers).context("RESP")?;
    figures.extend(figures_of_resp);
    let page = format!("{}\n{served}\n{of_resp}", page::markdown(&rows, &effort));
    Ok(Measured { page, figures })
}

/// Numbers below `users`, by chance and the same in each run.
fn order(users: usize, many: usize) -> Result<Vec<usize>> {
    let below = u64::try_from(users)?;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Ok(usize::try_from(state % below)?)
    };
    (0..many).map(next).collect()
}

fn measure(users: usize, effort: &Effort) -> Result<Row> {
    let names: Vec<String> = (0..users).map(|user| format!("user-{user:08}")).collect();
    let order = order(users, effort.decisions)?;
    let limiters: Vec<Decide> =
        Contender::ALL.iter().map(|contender| contender.start(users)).collect::<Result<_>>()?;
    for decide in &limiters {
        for name in &names {
            ensure!(decide(name)?, "the first request of {name} did not pass");
        }
    }
    let mut each = vec![Vec::new(); limiters.len()];
    let mut passed = vec![Vec::new(); limiters.len()];
    for round in 0..effort.rounds {
        for (number, decide) in limiters.iter().enumerate() {
            let mut within = 0_u32;
            let begin = Instant::now();
            for user in &order {
                within += u32::from(decide(&names[*user])?);
            }
            let many = f64::from(u32::try_from(order.len())?);
            each[number].push(begin.elapsed().as_secs_f64() * 1e9 / many);
            passed[number].push(100.0 * f64::from(within) / many);
        }
        let shown: Vec<_> = each.iter().map(|times| format!("{:.0}", times[round])).collect();
        eprintln!(
            "{users} users, round {} of {}: {} ns",
            round + 1,
            effort.rounds,
            shown.join(", ")
        );
    }
    let spread = |values: &Vec<f64>| Spread::of(values.iter().copied()).context("no rounds");
    let ratio = |other: &Vec<f64>| {
        let ratios = other.iter().zip(&each[0]).map(|(other, ours)| other / ours);
        Spread::of(ratios).context("no rounds")
    };
    Ok(Row {
        users,
        ratios: each[1..].iter().map(ratio).collect::<Result<_>>()?,
        each: each.iter().map(spread).collect::<Result<_>>()?,
        passed: passed.iter().map(spread).collect::<Result<_>>()?,
    })
}
