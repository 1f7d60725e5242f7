//! Applies several rule sets to the same packets, side by side.

mod algorithms;
mod candidate;
mod figure;
mod peaks;
mod queue;
mod timeline;

use std::collections::HashMap;

use limiter_common::source::Source;
use limiter_model::of_growing;
use serde::Serialize;

pub use algorithms::in_every_algorithm;
use candidate::Candidate;
pub use candidate::Row;
pub use figure::figure;
pub use timeline::Timeline;

use limiter_rules::{PlanError, RuleSet};

use crate::explain::{Captured, ExplainError, Explainer, LOOK, MAX_BYTES, Settings};

/// The most rule sets in a simulation: each keeps the state of all sources.
pub const MAX_CANDIDATES: usize = 24;

/// First packet of a source and its number of packets, the same for every rule set.
#[derive(Clone, Copy, Debug)]
struct First {
    /// Time, in nanoseconds; at least the time of earlier packets.
    now: u64,
    /// Bytes of the packet.
    length: u32,
    offered: u64,
}

/// A simulation: takes packets one by one.
#[derive(Debug)]
pub struct Simulation {
    candidates: Vec<Candidate>,
    /// Sources by number, and their first packets.
    numbers: HashMap<Source, u32>,
    firsts: Vec<First>,
    /// The latest time so far, in nanoseconds. Earlier times count as this.
    now: u64,
    /// [`MAX_BYTES`], except in tests.
    room: usize,
    timeline: Timeline,
    packets: u64,
    bytes: u64,
    last: u64,
}

/// Outcome of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Packets that were offered to each rule set.
    pub packets: u64,
    /// Bytes of these packets, on the wire.
    pub bytes: u64,
    /// Time from the first to the last packet, in seconds.
    pub seconds: f64,
    /// Rule sets, in the order in which they were given.
    pub candidates: Vec<Row>,
    /// Packets over time.
    pub timeline: Timeline,
}

impl Simulation {
    /// Makes a simulation of at most [`MAX_CANDIDATES`] rule sets with their names.
    ///
    /// # Errors
    ///
    /// If one cannot be installed; includes its name.
    pub fn new(
        sets: &[(String, RuleSet)],
        settings: &Settings,
    ) -> Result<Self, (String, PlanError)> {
        let candidates = sets.iter().map(|(name, set)| {
            let explainer = Explainer::new(set, settings.clone());
            let explainer = explainer.map_err(|error| (name.clone(), error))?;
            Ok(Candidate::new(name.clone(), explainer, set, settings.max_frame))
        });
        let candidates = candidates.collect::<Result<Vec<_>, _>>()?;
        let timeline = Timeline::new(candidates.len());
        Ok(Self {
            candidates,
            numbers: HashMap::new(),
            firsts: Vec::new(),
            now: 0,
            room: MAX_BYTES,
            timeline,
            packets: 0,
            bytes: 0,
            last: 0,
        })
    }

    /// Applies every rule set to a packet.
    ///
    /// # Errors
    ///
    /// If the rule sets together need to keep more than [`crate::explain::MAX_MEGABYTES`].
    pub fn packet(&mut self, captured: &Captured) -> Result<(), ExplainError> {
        if self.packets.is_multiple_of(LOOK) && self.kept() > self.room {
            let candidates = self.candidates.len();
            return Err(ExplainError::Full { packet: captured.number, candidates });
        }
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(captured.length);
        self.last = self.last.max(captured.nanos);
        self.now = self.now.max(captured.nanos);
        self.timeline.offered(captured.nanos);
        let first = captured.source().and_then(|source| self.first(source, captured.length));
        for (place, candidate) in self.candidates.iter_mut().enumerate() {
            if candidate.packet(captured, self.now, first)? {
                self.timeline.passed(captured.nanos, place);
            }
        }
        Ok(())
    }

    fn first(&mut self, source: Source, length: u64) -> Option<(usize, First)> {
        let next = u32::try_from(self.firsts.len()).ok()?;
        let place = *self.numbers.entry(source).or_insert(next) as usize;
        if place == self.firsts.len() {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            self.firsts.push(First { now: self.now, length, offered: 0 });
        }
        let first = self.firsts.get_mut(place)?;
        first.offered += 1;
        Some((place, *first))
    }

    /// Approximate bytes that are kept.
    fn kept(&self) -> usize {
        of_growing(self.numbers.len(), self.numbers.capacity(), size_of::<(Source, u32)>())
            + self.firsts.len() * size_of::<First>()
            + self.candidates.iter().map(Candidate::bytes).sum::<usize>()
    }

    /// Outcome so far.
    pub fn report(&self) -> Report {
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let seconds = self.last.saturating_sub(self.timeline.began()) as f64 / 1e9;
        Report {
            packets: self.packets,
            bytes: self.bytes,
            seconds: if self.packets == 0 { 0.0 } else { seconds },
            candidates: self
                .candidates
                .iter()
                .map(|candidate| candidate.row(&self.firsts))
                .collect(),
            timeline: self.timeline.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
