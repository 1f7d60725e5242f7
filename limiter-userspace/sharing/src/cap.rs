//! The node's own account of a shared limit. Whatever the store grants, the node takes no more than
//! one bucket of the limit allows: a store that forgets or lies cannot make it pass more.
//!
//! Units become owed when packets use them, and drain at the limit's rate; held units do not drain.
//! As in the store's account, which covers all nodes,
//!
//! ```text
//! owed + held <= burst          whenever units are taken
//! ```
//!
//! so the leases of one limit pass at most `burst + rate * window` on this node in any window. The
//! store's account owes this node's units at least as long as this one does, so a store that counts
//! correctly has nothing refused.

use super::rate::{Rate, Tat};
use super::window::Window;

/// Bucket of a limit on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    rate: Rate,
    burst: u64,
    tat: Tat,
    refused: u64,
}

impl Cap {
    /// An account in which nothing is owed.
    pub fn new(rate: Rate, burst: u64, now: u64) -> Self {
        Self { rate, burst, tat: Tat::at(now), refused: 0 }
    }

    /// The account of a window. The end of one window and the beginning of the next may come at
    /// once, each with a quota. So the burst is two quotas, plus a packet because the windows
    /// follow the store's clock.
    pub fn of_window(window: &Window, now: u64) -> Self {
        // A shared window's numbers have been checked to be in range.
        let rate = Rate::new(window.quota, window.length).unwrap_or(Rate::SLOWEST);
        let burst = window.quota.saturating_mul(2).saturating_add(window.largest);
        Self::new(rate, burst, now)
    }

    /// Changes the numbers of the limit: owed units stay owed.
    pub fn change(&mut self, now: u64, to: &Self) {
        let owed = self.tat.owed(self.rate, now);
        self.tat = Tat::at(now).plus(to.rate, owed);
        self.rate = to.rate;
        self.burst = to.burst;
    }

    /// Records that packets used units.
    pub fn used(&mut self, now: u64, units: u64) {
        if units > 0 {
            self.tat = self.tat.not_before(now).plus(self.rate, units);
        }
    }

    /// Returns how many units of a grant may be taken, in addition to `held` unused ones.
    pub fn take(&mut self, now: u64, grant: u64, held: u64) -> u64 {
        let free = self.burst.saturating_sub(self.tat.owed(self.rate, now).saturating_add(held));
        let taken = grant.min(free);
        self.refused = self.refused.saturating_add(grant - taken);
        taken
    }

    /// Units that were granted but not taken.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// True if anything is owed. Otherwise the account holds no information.
    pub fn owes(&self, now: u64) -> bool {
        self.tat.owed(self.rate, now) > 0
    }
}
