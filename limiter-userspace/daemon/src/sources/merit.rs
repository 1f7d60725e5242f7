//! Finds sources that may stand out quickly, without resolving their rules.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use limiter_api::sources::By;
use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::Algorithm;
use limiter_datapath::Datapath;

use super::account::{Account, Unreported};
use super::counters::Rates;
use super::known::Entry;

/// Value by which a source stands out, followed by values that order sources with the same first
/// one.
pub(super) type Measure = [u64; 3];

/// The measure of a source from its account, for the direction with the larger value. The closeness
/// to its limit is not included.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is a few millions"
)]
pub(super) fn measure(by: By, account: &Account, unreported: Unreported) -> Measure {
    // Thousandths of packets, so that slow sources are ordered as well.
    let whole = |rate: f64| (rate * 1000.0) as u64;
    let of = |direction| {
        let total = account.total_in(direction);
        let rates: Rates = account.rates(direction).unwrap_or_default();
        let first = match by {
            By::Dropped => total.dropped,
            By::Passed => total.passed,
            By::Rate => whole(rates.passed + rates.dropped),
            By::DropRate => whole(account.estimate(direction, unreported)),
            By::Utilization => 0,
        };
        [first, total.dropped, total.passed]
    };
    account.directions().into_iter().map(of).max().unwrap_or_default()
}

/// The largest of many values, in bounded memory. Among equal measures the smaller source stays.
#[derive(Debug)]
pub(super) struct Best {
    room: usize,
    heap: BinaryHeap<Reverse<(Measure, Reverse<Source>)>>,
}

impl Best {
    /// Keeps at most `room` sources.
    pub(super) fn new(room: usize) -> Self {
        Self { room, heap: BinaryHeap::new() }
    }

    /// Takes a source, if it is among the best.
    pub(super) fn offer(&mut self, measure: Measure, source: Source) {
        let entry = Reverse((measure, Reverse(source)));
        if self.heap.len() < self.room {
            self.heap.push(entry);
        } else if let Some(mut least) = self.heap.peek_mut()
            && entry < *least
        {
            *least = entry;
        }
    }

    /// All kept sources, the best first.
    pub(super) fn into_sources(self) -> Vec<Source> {
        // Ascending in the reversed values means that the largest measure comes first.
        self.heap
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((_, Reverse(source)))| source)
            .collect()
    }
}

/// Used shares of bursts, each by the limit under which the bucket was last charged.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// The debt that uses up a burst, by slot and by whether the slot is in a keyed table. The
    /// daemon's rules use few slots.
    bursts: HashMap<(u32, bool), Option<u64>>,
}

/// Most bursts that are cached; beyond that the cache is emptied.
const KEPT: usize = 4096;

impl Used {
    /// The used share in units of 2^-32.
    pub(super) fn share(&mut self, datapath: &dyn Datapath, entry: &Entry, now: Ticks) -> u64 {
        let Entry { bucket, keyed } = entry;
        let owed = Word::from_raw(bucket.word).tat().since(now).get();
        if owed == 0 {
            return 0;
        }
        let of = (Resolved::from_raw(bucket.resolved).slot(), *keyed);
        let known = (of.0.index(), of.1);
        if self.bursts.len() >= KEPT && !self.bursts.contains_key(&known) {
            self.bursts.clear();
        }
        match self.bursts.entry(known).or_insert_with(|| burst(datapath, of)) {
            Some(burst) => {
                let share = (u128::from(owed) << 32) / u128::from(*burst);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            None => 0,
        }
    }

    /// Clears the cache. Called when rules may have changed, because a slot may then hold another
    /// limit.
    pub(super) fn forget(&mut self) {
        self.bursts.clear();
    }
}

/// The debt in ticks that uses up the burst of the limit in a slot, if that is a token bucket.
fn burst(datapath: &dyn Datapath, (slot, keyed): (Slot, bool)) -> Option<u64> {
    let tolerance = if keyed {
        let record = datapath.record(slot).ok().flatten()?;
        let [first, ..] = &record.limits;
        let counts = record.count > 0 && first.algorithm() == Algorithm::TokenBucket;
        counts.then(|| first.rate().tolerance)?
    } else {
        let limit = datapath.limit(slot).ok().flatten()?;
        (!limit.is_unlimited()).then_some(limit.tolerance)?
    };
    (tolerance > 0).then_some(tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> Source {
        Source::V4([192, 0, 2, number])
    }

    #[test]
    fn the_best_of_many_stay_in_order() {
        let mut best = Best::new(3);
        for (measure, number) in [(5, 1), (9, 2), (1, 3), (9, 0), (7, 4), (0, 5)] {
            best.offer([measure, 0, 0], source(number));
        }
        assert_eq!(best.into_sources(), [source(0), source(2), source(4)]);
        let mut none = Best::new(0);
        none.offer([1, 0, 0], source(1));
        assert!(none.into_sources().is_empty());
    }
}
