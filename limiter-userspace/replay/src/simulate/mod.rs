//! Several rule sets before the same packets, side by side.

mod algorithms;
mod candidate;
mod figure;
mod peaks;
mod queue;
mod timeline;

use serde::Serialize;

pub use algorithms::in_every_algorithm;
use candidate::Candidate;
pub use candidate::Row;
pub use figure::figure;
pub use timeline::Timeline;

use limiter_rules::{PlanError, RuleSet};

use crate::explain::{Captured, ExplainError, Explainer, Settings};

/// The most rule sets side by side: each keeps the state of all sources.
pub const MAX_CANDIDATES: usize = 24;

/// A simulation: takes packets one by one.
#[derive(Debug)]
pub struct Simulation {
    candidates: Vec<Candidate>,
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
    /// Bytes of them.
    pub bytes: u64,
    /// Time from the first to the last packet, in seconds.
    pub seconds: f64,
    /// Rule sets, in the order in which they were given.
    pub candidates: Vec<Row>,
    /// Packets over the time.
    pub timeline: Timeline,
}

impl Simulation {
    /// A simulation of rule sets with their names, at most [`MAX_CANDIDATES`].
    ///
    /// # Errors
    ///
    /// When one cannot be installed, with its name.
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
        Ok(Self { candidates, timeline, packets: 0, bytes: 0, last: 0 })
    }

    /// Puts a packet before every rule set.
    ///
    /// # Errors
    ///
    /// When a rule set needs to keep more sources and keys than [`crate::explain::MAX_TRACKED`].
    pub fn packet(&mut self, captured: &Captured) -> Result<(), ExplainError> {
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(captured.length);
        self.last = self.last.max(captured.nanos);
        self.timeline.offered(captured.nanos);
        for (place, candidate) in self.candidates.iter_mut().enumerate() {
            if candidate.packet(captured)? {
                self.timeline.passed(captured.nanos, place);
            }
        }
        Ok(())
    }

    /// Outcome so far.
    pub fn report(&self) -> Report {
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let seconds = self.last.saturating_sub(self.timeline.began()) as f64 / 1e9;
        Report {
            packets: self.packets,
            bytes: self.bytes,
            seconds: if self.packets == 0 { 0.0 } else { seconds },
            candidates: self.candidates.iter().map(Candidate::row).collect(),
            timeline: self.timeline.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
