//! The node's own account of a shared limit. Whatever the store grants, the node takes no more of
//! it than one bucket of the limit gives: a store that forgets, or lies, cannot make it pass more.
//!
//! Units are owed once packets have used them, and drain at the limit's rate; those that are held
//! do not drain. As in the store's account, which is of all nodes,
//!
//! ```text
//! owed + held <= burst          whenever units are taken
//! ```
//!
//! so what the leases of one limit pass on this node in any window is at most `burst + rate *
//! window`. What this node owes, the store's account owes as long or longer, so of a store that
//! counts right nothing is refused.

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

    /// The account of a window. The end of one and the beginning of the next one may come at once,
    /// with a quota each, so that is the burst; and a packet, since the windows are those of the
    /// store's clock.
    pub fn of_window(window: &Window, now: u64) -> Self {
        // Both numbers of a window that is shared are in range.
        let rate = Rate::new(window.quota, window.length).unwrap_or(Rate::SLOWEST);
        let burst = window.quota.saturating_mul(2).saturating_add(window.largest);
        Self::new(rate, burst, now)
    }

    /// Other numbers of the limit: what is owed stays owed.
    pub fn change(&mut self, now: u64, to: &Self) {
        let owed = self.tat.owed(self.rate, now);
        self.tat = Tat::at(now).plus(to.rate, owed);
        self.rate = to.rate;
        self.burst = to.burst;
    }

    /// Packets used units.
    pub fn used(&mut self, now: u64, units: u64) {
        if units > 0 {
            self.tat = self.tat.not_before(now).plus(self.rate, units);
        }
    }

    /// Units of a grant that are taken, beside `held` that are not used yet.
    pub fn take(&mut self, now: u64, grant: u64, held: u64) -> u64 {
        let free = self.burst.saturating_sub(self.tat.owed(self.rate, now).saturating_add(held));
        let taken = grant.min(free);
        self.refused = self.refused.saturating_add(grant - taken);
        taken
    }

    /// Units that were granted and not taken.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// True if anything is owed: otherwise the account holds no information.
    pub fn owes(&self, now: u64) -> bool {
        self.tat.owed(self.rate, now) > 0
    }
}
