//! Telling quickly who may stand out, without asking which rule a source falls under.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Limit};

use crate::datapath::Datapath;

/// By what a source stands out, and what decides between those of which that is the same.
pub(super) type Measure = [u64; 2];

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

    /// All of them, the first one first.
    pub(super) fn into_sources(self) -> Vec<Source> {
        // Ascending by what is reversed: the largest measure first.
        self.heap
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((_, Reverse(source)))| source)
            .collect()
    }
}

/// How much of its burst each bucket has used, by the limit that it was charged under last.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// By slot: the daemon's rules have few in use.
    limits: HashMap<u32, Option<Limit>>,
}

/// Limits that are kept; past that all are read anew.
const KEPT: usize = 4096;

impl Used {
    /// The used share in 2^-32.
    pub(super) fn share(&mut self, datapath: &dyn Datapath, bucket: &Bucket, now: Ticks) -> u64 {
        let owed = Word::from_raw(bucket.word).tat().since(now).get();
        if owed == 0 {
            return 0;
        }
        let slot = Resolved::from_raw(bucket.resolved).slot().index();
        if self.limits.len() >= KEPT && !self.limits.contains_key(&slot) {
            self.limits.clear();
        }
        let limit = self
            .limits
            .entry(slot)
            .or_insert_with(|| datapath.limit(Slot::new(slot)).ok().flatten());
        match limit {
            Some(limit) if !limit.is_unlimited() && limit.tolerance > 0 => {
                let share = (u128::from(owed) << 32) / u128::from(limit.tolerance);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }

    /// To be called when rules may have changed: a slot may hold another limit.
    pub(super) fn forget(&mut self) {
        self.limits.clear();
    }
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
            best.offer([measure, 0], source(number));
        }
        assert_eq!(best.into_sources(), [source(0), source(2), source(4)]);
        let mut none = Best::new(0);
        none.offer([1, 0], source(1));
        assert!(none.into_sources().is_empty());
    }
}
