//! The account of one shared limit in the store: what `lease.lua` does with a key, in exact
//! integers. Tests compare the script with this model; the memory store uses it.
//!
//! Units are in one of three places: free, *held* by nodes (granted and neither reported nor
//! returned), or *owed* (used). Only owed units drain, at the limit's rate:
//!
//! ```text
//! owed + held <= burst          whenever units are granted
//! ```
//!
//! Units of a silent node become owed at the end of the next epoch after their grant. An epoch is
//! two lives of a token, so nobody can use them any more by then.

use super::limit::SharedLimit;
use super::rate::{Rate, Tat};

/// Numbers of a limit that the store needs; each call includes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Central {
    /// Rate at which owed units drain.
    pub rate: Rate,
    /// Largest sum of held and owed units.
    pub burst: u64,
    /// Length of an epoch in microseconds.
    pub epoch: u64,
    /// Units of the largest packet. Smaller grants are made only if less is wanted.
    pub largest: u64,
}

impl Central {
    /// Numbers of a limit for the store.
    pub fn of(limit: &SharedLimit) -> Self {
        let (rate, burst) = limit.central();
        Self { rate, burst, epoch: limit.epoch(), largest: limit.settings().largest }
    }

    /// Time in microseconds in which an empty bucket is full again.
    pub fn refill(&self) -> u64 {
        self.rate.micros_of(self.burst)
    }
}

/// Units of one epoch that a node accounts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Units that packets used.
    pub used: u64,
    /// Units returned unused.
    pub back: u64,
}

/// Report and request of a node for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Latest epoch from which the node has units.
    pub epoch: u64,
    /// Units of that epoch.
    pub latest: Report,
    /// Units of the previous epoch.
    pub before: Report,
    /// Units that the node's share owes from the time without a lease.
    pub owed: u64,
    /// Units wanted in addition to those held.
    pub want: u64,
}

/// Answer of the store for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Units granted, at most what was wanted.
    pub grant: u64,
    /// Microseconds until another request makes sense; 0 for at once.
    pub wait: u64,
    /// Epoch of the grant.
    pub epoch: u64,
    /// Microseconds until the key disappears if nobody asks for more; 0 if it does not exist, and
    /// nodes use their shares.
    pub rest: u64,
    /// Microseconds of the store's clock for which the grant may be used; `u64::MAX` if only the
    /// token's own life ends it.
    pub until: u64,
}

/// State of a key in the store. A key with nothing held or owed does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Time at which nothing will be owed.
    pub tat: Tat,
    /// Epoch of `held`.
    pub epoch: u64,
    /// Units held from `epoch`.
    pub held: u64,
    /// Units held from the previous epoch.
    pub held_before: u64,
}

impl Account {
    /// State of a new key, at `now` microseconds of the store's clock.
    pub fn new(central: &Central, now: u64) -> Self {
        Self { tat: Tat::at(now), epoch: now / central.epoch, held: 0, held_before: 0 }
    }

    /// Advances the account to `now`. A clock that was set back leaves at most an empty bucket.
    fn catch_up(&mut self, central: &Central, now: u64) {
        let current = now / central.epoch;
        if self.epoch > current + 1 {
            // Held units may have been granted just now.
            self.held = self.held.saturating_add(self.held_before);
            self.held_before = 0;
            self.epoch = current;
        }
        let end = (self.epoch + 1) * central.epoch;
        if self.held_before > 0 && now >= end {
            self.tat = self.tat.not_before(end).plus(central.rate, self.held_before);
            self.held_before = 0;
        }
        let end = end + central.epoch;
        if self.held > 0 && now >= end {
            self.tat = self.tat.not_before(end).plus(central.rate, self.held);
            self.held = 0;
        }
        if current > self.epoch {
            self.held_before = self.held;
            self.held = 0;
            self.epoch = current;
        }
        self.tat = self.tat.not_before(now);
        // The shares of nodes may be owed beyond the burst: up to twice as much if they are the
        // whole limit.
        if self.tat.owed(central.rate, now) > 4 * central.burst {
            self.tat = Tat::at(now).plus(central.rate, central.burst);
        }
    }

    /// Books a node's report on held units. Returns how many of them were used.
    fn book(held: &mut u64, report: Report) -> u64 {
        let used = report.used.min(*held);
        *held -= used;
        *held -= report.back.min(*held);
        used
    }

    /// Handles one call of a node at `now` microseconds of the store's clock.
    pub fn exchange(&mut self, central: &Central, now: u64, demand: &Demand) -> Answer {
        self.catch_up(central, now);
        let mut owed = demand.owed.min(2 * central.burst);
        for (epoch, report) in
            [(demand.epoch, demand.latest), (demand.epoch.wrapping_sub(1), demand.before)]
        {
            if epoch == self.epoch {
                owed += Self::book(&mut self.held, report);
            } else if epoch.wrapping_add(1) == self.epoch {
                owed += Self::book(&mut self.held_before, report);
            }
        }
        self.tat = self.tat.plus(central.rate, owed);
        let taken = self.tat.owed(central.rate, now) + self.held + self.held_before;
        let free = central.burst.saturating_sub(taken);
        // Grant half of what is left, so that other nodes also get some, but no part of a packet.
        let half = free.div_ceil(2).max(central.largest).min(free);
        let least = demand.want.min(central.largest);
        let grant = if free < least { 0 } else { demand.want.min(half) };
        self.held += grant;
        let lacking = (taken + least).saturating_sub(central.burst);
        let wait = if grant < least { central.rate.micros_of(lacking) } else { 0 };
        let rest = self.end(central).micros - now;
        Answer { grant, wait, epoch: self.epoch, rest, until: u64::MAX }
    }

    /// Time at which nothing will be held or owed if nobody calls: rounded up to a microsecond, and
    /// never before the last call.
    fn end(&self, central: &Central) -> Tat {
        let mut tat = self.tat;
        let mut end = (self.epoch + 1) * central.epoch;
        for held in [self.held_before, self.held] {
            if held > 0 {
                tat = tat.not_before(end).plus(central.rate, held);
            }
            end += central.epoch;
        }
        if tat.part > 0 { Tat::at(tat.micros + 1) } else { tat }
    }
}
