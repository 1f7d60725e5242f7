//! Nanoseconds a packet with everything on one CPU: generator, cable, and what drops it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use limiter_tests::interrupt::Interrupt;

use super::contender::{Limit, SHIPPED, Tool};
use super::effort::{Crowd, Effort, Mix};
use super::stand::{Run, Stand, twice};
use crate::spread::Spread;

/// The room of every table, where the shipped one of limiter is too small for the crowd.
const LARGE: u32 = 1 << 21;

/// How fast sources send their first packet. A set of nft that grows meanwhile refuses elements
/// when they come faster.
const FIRST_PER_SECOND: u32 = 200_000;

/// Caches are warm again after so long.
const SETTLED: Duration = Duration::from_millis(30);

/// Costs of every tool under a mix.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) mix: Mix,
    /// By tool: nanoseconds a packet, round by round.
    pub(super) costs: Vec<(Tool, Vec<f64>)>,
}

impl Table {
    fn of(&self, tool: Tool) -> Option<&[f64]> {
        self.costs.iter().find(|(of, _)| *of == tool).map(|(_, costs)| costs.as_slice())
    }

    pub(super) fn total(&self, tool: Tool) -> Option<Spread> {
        Spread::of(self.of(tool)?.iter().copied())
    }

    /// Costs of what only drops, at the hook of these tools.
    fn bare(&self) -> Option<&[f64]> {
        self.costs.iter().find(|(tool, _)| tool.is_bare()).map(|(_, costs)| costs.as_slice())
    }

    /// Round by round, what it took beside the bare drop of the same round.
    fn beside(&self, tool: Tool) -> Option<impl Iterator<Item = f64>> {
        Some(self.of(tool)?.iter().zip(self.bare()?).map(|(cost, drop)| cost - drop))
    }

    /// Cost beside the bare drop, over the rounds.
    pub(super) fn own(&self, tool: Tool) -> Option<Spread> {
        Spread::of(self.beside(tool)?)
    }

    /// The whole way over that of the bare drop, in each round.
    pub(super) fn over_drop(&self, tool: Tool) -> Option<Spread> {
        Spread::of(self.of(tool)?.iter().zip(self.bare()?).map(|(cost, drop)| cost / drop))
    }

    /// The own cost of the peer that takes least, over that of `ours`, in each round.
    pub(super) fn best_over(&self, ours: Tool) -> Option<Spread> {
        let own = |tool: &Tool| self.own(*tool).map(|own| own.median);
        let peers = Tool::PEERS.into_iter().filter_map(|tool| Some((tool, own(&tool)?)));
        let (best, _) = peers.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        self.own_over(best, ours)
    }

    /// The own cost of a tool, over that of `ours`, in each round.
    pub(super) fn own_over(&self, tool: Tool, ours: Tool) -> Option<Spread> {
        let ratios = self.beside(tool)?.zip(self.beside(ours)?);
        Spread::of(ratios.map(|(theirs, ours)| theirs / ours))
    }
}

/// Builds a stand for each tool; each of the sources has sent a packet at the end.
pub(super) fn build(
    crowd: &Crowd,
    limit: Limit,
    tools: &[Tool],
    interrupt: &Interrupt,
) -> Result<Vec<Stand>> {
    let entries = if crowd.sources > SHIPPED / 2 { LARGE } else { SHIPPED };
    let mut stands = Vec::new();
    for &tool in tools {
        ensure!(!interrupt.is_set(), "interrupted, no result");
        let stand = || {
            let stand = Stand::build(tool, limit, entries)?;
            stand.meet(crowd.sources, FIRST_PER_SECOND)?;
            Ok(stand)
        };
        stands.push(twice(|| format!("{}, {} sources", tool.name(), crowd.sources), stand)?);
    }
    Ok(stands)
}

/// Lets all of them take turns.
pub(super) fn measure(
    stands: &[Stand],
    mix: &Mix,
    effort: &Effort,
    interrupt: &Interrupt,
) -> Result<Table> {
    let mut costs: Vec<(Tool, Vec<f64>)> =
        stands.iter().map(|stand| (stand.tool, Vec::new())).collect();
    for round in 0..effort.rounds {
        // Nobody is always the first.
        for turn in 0..stands.len() {
            ensure!(!interrupt.is_set(), "interrupted, no result");
            let number = (round + turn) % stands.len();
            let (Some(stand), Some((_, costs))) = (stands.get(number), costs.get_mut(number))
            else {
                bail!("no stand {number}");
            };
            let what = || format!("{}, {}", stand.tool.name(), mix.name);
            let (settled, run) = twice(what, || once(stand, mix, effort.slice))?;
            let sent = run.sent;
            let all = settled.sent.frames + sent.frames;
            let passed = settled.passed + run.passed;
            let expected = if stand.tool == Tool::Nothing { all } else { 0 };
            // A minute may have ended.
            let most = expected + u64::from(stand.tool.is_police());
            let is_right = (expected..=most).contains(&passed);
            ensure!(is_right, "{}: {passed} passed, and not {expected}", what());
            #[expect(clippy::cast_precision_loss, reason = "under 2^52")]
            costs.push(sent.nanos as f64 / sent.frames as f64);
        }
    }
    Ok(Table { mix: *mix, costs })
}

/// A short run that warms the caches, and one in which all that was sent arrived.
fn once(stand: &Stand, mix: &Mix, slice: Duration) -> Result<(Run, Run)> {
    let settled = stand.run(&stand.load(mix.sources, None, SETTLED))?;
    let run = stand.run(&stand.load(mix.sources, None, slice))?;
    let Run { sent, link, .. } = run;
    ensure!(sent.frames > 0 && link.lost == 0, "{} sent, {} lost", sent.frames, link.lost);
    Ok((settled, run))
}
