//! Sources that are read in more detail, because they may stand out.

use std::collections::{HashMap, HashSet};

use limiter_api::sources::By;
use limiter_common::source::Source;

use super::account::{Account, Unreported};
use super::merit::{Best, Measure, measure};

/// Number of outstanding sources that are kept for each measure.
pub(super) const KEPT: usize = 128;

/// An outstanding source as of its last reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    pub(super) account: Account,
    pub(super) used: u64,
    /// Number of rounds over all keys begun when the source was first read.
    pub(super) since: u64,
}

impl Candidate {
    pub(super) fn measure(&self, by: By, unreported: Unreported) -> Measure {
        let [first, second, third] = measure(by, &self.account, unreported);
        [if by == By::Utilization { self.used } else { first }, second, third]
    }
}

/// Keeps the first [`KEPT`] by each measure, and the sources in `always`.
pub(super) fn keep(
    pool: &mut HashMap<Source, Candidate>,
    always: &[Source],
    unreported: Unreported,
) {
    if pool.len() <= KEPT {
        return;
    }
    let mut kept: HashSet<Source> = always.iter().copied().collect();
    for by in By::ALL {
        let mut best = Best::new(KEPT);
        for (source, candidate) in &*pool {
            best.offer(candidate.measure(by, unreported), *source);
        }
        kept.extend(best.into_sources());
    }
    pool.retain(|source, _| kept.contains(source));
}
