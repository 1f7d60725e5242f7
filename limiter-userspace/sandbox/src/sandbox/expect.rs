//! Computes the packets that should arrive from a sender, while it sends.

use anyhow::Result;

use crate::oracle::Oracle;
use crate::sandbox::plan::Sender;

/// One oracle for each source of a sender.
#[derive(Debug)]
pub struct Expectation {
    oracles: Vec<Oracle>,
    /// Frames offered so far.
    offered: usize,
}

impl Expectation {
    /// Starts with no frame sent.
    ///
    /// # Errors
    ///
    /// When the limit is out of the oracle's range.
    pub fn new(sender: &Sender) -> Result<Self> {
        let oracles = sender
            .sources
            .iter()
            .map(|_| Oracle::new(&sender.rule.limit, sender.cost))
            .collect::<Result<_>>()?;
        Ok(Self { oracles, offered: 0 })
    }

    /// Adds the times of the next frames, in the order in which they were sent.
    ///
    /// # Errors
    ///
    /// When a frame costs more than the burst.
    pub fn offer(&mut self, times: &[u64]) -> Result<()> {
        let sources = self.oracles.len();
        for time in times {
            if let Some(oracle) = self.oracles.get_mut(self.offered % sources) {
                oracle.offer(*time)?;
            }
            self.offered += 1;
        }
        Ok(())
    }

    /// Frames offered so far.
    pub fn offered(&self) -> usize {
        self.offered
    }

    /// Frames that should have arrived so far, over all sources.
    pub fn delivered(&self) -> u64 {
        self.oracles.iter().map(Oracle::delivered).sum()
    }

    /// Frames that should have arrived so far, by source.
    pub fn by_source(&self) -> impl Iterator<Item = u64> + '_ {
        self.oracles.iter().map(Oracle::delivered)
    }
}
