//! The counters of all keys, added up by source, to order the sources.

use std::collections::HashMap;

use limiter_common::source::Source;
use limiter_datapath::Observed;

use super::account::Passed;
use super::counters::Counters;
use super::keys::{KeyPass, SLICE, Whose};
use super::ledger::Ledger;
use super::wanted::Wanted;
use crate::error::ServiceError;

/// The counters of one source, except those of its bucket in the source table.
#[derive(Debug, Default)]
pub(super) struct Sum {
    dropped: u64,
    passed: Passed,
    /// True once the source was found in a table of sources.
    met: bool,
}

impl Sum {
    const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// A pass over all keys.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pass: KeyPass,
    of: HashMap<Source, Sum>,
}

impl Sums {
    /// Reads the next slice; returns whether all was read.
    pub(super) fn step(
        &mut self,
        datapath: &dyn Observed,
        wanted: &Wanted,
    ) -> Result<bool, ServiceError> {
        for line in self.pass.read(datapath, SLICE)? {
            // Drops of a prefix belong to no single source; events report part of them by source.
            let Whose::One(source) = line.whose else { continue };
            if wanted.has(&source) {
                let sum = self.of.entry(source).or_default();
                sum.dropped = sum.dropped.saturating_add(line.counters.dropped);
                sum.passed.add_in(Some(line.key.table), line.counters.passed);
            }
        }
        Ok(self.pass.is_done())
    }

    /// Adds the reported drops that are in no counter.
    pub(super) fn add_reported(&mut self, ledger: &Ledger<'_>, wanted: &Wanted) {
        for (source, dropped) in ledger.reported().filter(|(source, _)| wanted.has(source)) {
            let sum = self.of.entry(*source).or_default();
            sum.dropped = sum.dropped.saturating_add(dropped);
        }
    }

    /// The counters of a source, including those of its bucket in the source table.
    pub(super) fn with(&mut self, source: &Source, own: Counters) -> Counters {
        let Some(sum) = self.of.get_mut(source) else { return own };
        sum.met = true;
        Counters {
            passed: own.passed.max(sum.passed.most()),
            dropped: own.dropped.saturating_add(sum.dropped()),
        }
    }

    /// The sources without a bucket in a table of sources.
    pub(super) fn rest(&self) -> impl Iterator<Item = (&Source, Counters)> {
        let counters = |sum: &Sum| Counters { passed: sum.passed.most(), dropped: sum.dropped() };
        self.of.iter().filter(|(_, sum)| !sum.met).map(move |(at, sum)| (at, counters(sum)))
    }
}
