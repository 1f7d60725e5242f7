//! Data path of one node, as the kernel is to be: a lease line, the node's share, and what a
//! partition leaves.

use limiter_sharing::key::{Seen, Words};
use limiter_sharing::rate::{Rate, Tat};
use limiter_sharing::{OnPartition, SharedLimit};

/// Token bucket on the node's own clock.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Rate,
    burst: u64,
    tat: Tat,
}

impl Bucket {
    fn new((rate, burst): (Rate, u64)) -> Self {
        Self { rate, burst, tat: Tat::at(0) }
    }

    fn take(&mut self, now: u64, units: u64) -> bool {
        let tat = self.tat.not_before(now).plus(self.rate, units);
        let conforms = tat.owed(self.rate, now) <= self.burst;
        if conforms {
            self.tat = tat;
        }
        conforms
    }
}

#[derive(Debug)]
pub(crate) struct Path {
    words: Words,
    used: u64,
    denied: u64,
    shared: u64,
    share: Option<Bucket>,
    open: Bucket,
    strict: bool,
    on_partition: OnPartition,
    /// When the store is to be taken for lost, if nobody moves it on.
    lost_at: u64,
}

impl Path {
    pub(crate) fn new(limit: &SharedLimit) -> Self {
        let settings = limit.settings();
        Self {
            words: Words::default(),
            used: 0,
            denied: 0,
            shared: 0,
            share: limit.cold().map(Bucket::new),
            open: Bucket::new((settings.rate, settings.burst)),
            strict: settings.strict,
            on_partition: settings.on_partition,
            lost_at: 0,
        }
    }

    /// Sets the words that the owner of the key writes.
    pub(crate) fn write(&mut self, words: Words) {
        self.words = words;
    }

    /// Another share, for another number of nodes: what is owed stays.
    pub(crate) fn set_share(&mut self, limit: &SharedLimit) {
        if let (Some(bucket), Some((rate, burst))) = (&mut self.share, limit.cold()) {
            (bucket.rate, bucket.burst) = (rate, burst);
            bucket.tat.part = 0;
        }
    }

    pub(crate) fn lost_at(&mut self, time: u64) {
        self.lost_at = time;
    }

    /// Counts that the owner of the key reads.
    pub(crate) fn seen(&self, now: u64) -> Seen {
        let owed = self.share.map_or(0, |bucket| bucket.tat.owed(bucket.rate, now));
        Seen { used: self.used, denied: self.denied, shared: self.shared, owed }
    }

    fn of_share(&mut self, now: u64, units: u64) -> bool {
        let passes = self.share.as_mut().is_some_and(|bucket| bucket.take(now, units));
        if passes {
            self.shared += units;
        }
        passes
    }

    /// True if a packet passes.
    pub(crate) fn packet(&mut self, now: u64, units: u64) -> bool {
        let passes = if now < self.words.expires {
            if self.used + units <= self.words.granted {
                self.used += units;
                return true;
            }
            self.strict && self.of_share(now, units)
        } else if now < self.lost_at {
            self.of_share(now, units)
        } else {
            match self.on_partition {
                OnPartition::Share => self.of_share(now, units),
                OnPartition::Open => self.open.take(now, units),
                OnPartition::Closed => false,
            }
        };
        if !passes {
            self.denied += units;
        }
        passes
    }
}
