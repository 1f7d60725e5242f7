//! Packets a second that one CPU takes while another one sends: the receive side alone.

use anyhow::{Result, bail, ensure};
use limiter_tests::generator::rate;
use limiter_tests::interrupt::Interrupt;

use super::contender::Tool;
use super::effort::{Effort, Mix};
use super::stand::{Run, Stand, twice};
use crate::spread::Spread;

/// Packets that a tool handled.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    pub(super) tool: Tool,
    /// Packets a second that were handled, round by round.
    handled: Vec<f64>,
    /// Packets a second that were offered, round by round.
    offered: Vec<f64>,
}

impl Capacity {
    /// Packets a second.
    pub(super) fn handled(&self) -> Option<Spread> {
        Spread::of(self.handled.iter().copied())
    }

    /// Packets a second that the generator offered.
    pub(super) fn offered(&self) -> Option<Spread> {
        Spread::of(self.offered.iter().copied())
    }

    /// Round by round over another's.
    pub(super) fn over(&self, other: &Self) -> Option<Spread> {
        Spread::of(self.handled.iter().zip(&other.handled).map(|(ours, theirs)| ours / theirs))
    }
}

/// Of several, the peer that takes most.
pub(super) fn best_peer(all: &[Capacity]) -> Option<&Capacity> {
    let median = |of: &Capacity| of.handled().map_or(0.0, |handled| handled.median);
    let peers = all.iter().filter(|of| Tool::PEERS.contains(&of.tool));
    peers.max_by(|a, b| median(a).total_cmp(&median(b)))
}

/// Parts the CPUs and lets all take turns.
pub(super) fn measure(
    stands: &mut [Stand],
    mix: &Mix,
    effort: &Effort,
    interrupt: &Interrupt,
) -> Result<Vec<Capacity>> {
    let mut all = Vec::new();
    for stand in &mut *stands {
        stand.part()?;
        all.push(Capacity { tool: stand.tool, handled: Vec::new(), offered: Vec::new() });
    }
    for round in 0..effort.rounds {
        for turn in 0..stands.len() {
            ensure!(!interrupt.is_set(), "interrupted, no result");
            let number = (round + turn) % stands.len();
            let (Some(stand), Some(capacity)) = (stands.get(number), all.get_mut(number)) else {
                bail!("no stand {number}");
            };
            let what = || format!("{}, the receive side alone", stand.tool.name());
            let load = stand.load(mix.sources, None, effort.slice);
            let Run { sent, link, passed } = twice(what, || stand.run(&load))?;
            let expected = if stand.tool == Tool::Nothing { link.received } else { 0 };
            ensure!(passed == expected, "{}: {passed} passed, and not {expected}", what());
            capacity.handled.push(rate(link.received, sent.nanos));
            capacity.offered.push(rate(sent.frames, sent.nanos));
        }
    }
    Ok(all)
}
