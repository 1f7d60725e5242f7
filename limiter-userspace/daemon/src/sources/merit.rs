//! Finding quickly who may stand out, without asking which rule a source falls under.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::Algorithm;
use limiter_datapath::Datapath;

use super::account::Account;
use super::counters::Rates;
use super::known::Entry;
use crate::api::sources::By;

/// Measure by which a source stands out, and others for sources with the same first one.
pub(super) type Measure = [u64; 3];

/// The measure of a source by its account, of the direction that has most of it. How near it is to
/// its limit is not among that.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is a few millions"
)]
pub(super) fn measure(by: By, account: &Account) -> Measure {
    // Thousandths of packets, so that slow ones have an order, too.
    let whole = |rate: f64| (rate * 1000.0) as u64;
    let of = |direction| {
        let total = account.total_in(direction);
        let rates: Rates = account.rates(direction).unwrap_or_default();
        let first = match by {
            By::Dropped => total.dropped,
            By::Passed => total.passed,
            By::Rate => whole(rates.passed + rates.dropped),
            By::DropRate => whole(rates.dropped),
            By::Utilization => 0,
        };
        [first, total.dropped, total.passed]
    };
    account.directions().into_iter().map(of).max().unwrap_or_default()
}

/// The most of many, in bounded room. Of those with the same measure the smaller source stays.
#[derive(Debug)]
pub(super) struct Best {
    room: usize,
    heap: BinaryHeap<Reverse<(Measure, Reverse<Source>)>>,
}

impl Best {
    /// At most `room` sources.
    pub(super) fn new(room: usize) -> Self {
        Self { room, heap: BinaryHeap::new() }
    }

    /// Takes one, if it is among the best.
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

    /// All sources, the first one first.
    pub(super) fn into_sources(self) -> Vec<Source> {
        // Ascending by what is reversed: the largest measure first.
        self.heap
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((_, Reverse(source)))| source)
            .collect()
    }
}

/// Used shares of bursts, each by the limit that the bucket was charged under last.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// The debt that uses a burst up, by slot and by whether that is one of a keyed table: the
    /// daemon's rules have few in use.
    bursts: HashMap<(u32, bool), Option<u64>>,
}

/// Bursts that are kept; past that all are read anew.
const KEPT: usize = 4096;

impl Used {
    /// The used share in 2^-32.
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

    /// Forgets all bursts. Called when rules may have changed: a slot may hold another limit.
    pub(super) fn forget(&mut self) {
        self.bursts.clear();
    }
}

/// The debt in ticks that uses the burst up of the limit in a slot, if that is a token bucket.
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
