//! Leases of the data path as the node sees them: counts that it reads, and words that it writes.

use std::task::{Context, Poll};

use limiter_common::time::Ticks;
use limiter_common::wire::{Ask, HostLease, KeyLeases, Lease, TableKey};

use super::clock;
use super::key::Words;

/// Totals of a lease in the data path. They may begin at any number, and `used` may fall a little
/// if a charge is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units passed by the lease.
    pub used: u64,
    /// Units refused by the lease or by the share.
    pub denied: u64,
}

/// The store's answer for a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Units that the node requested.
    pub wanted: u64,
    /// Units that it received.
    pub units: u64,
    /// Microseconds before it can ask again.
    pub again: u64,
}

/// Leases of a data path. Nobody else writes their words.
pub trait Leases: Send + 'static {
    /// Microseconds of the clock by which the data path decides, which never goes back: the
    /// kernel's `CLOCK_MONOTONIC` for packets, `CLOCK_BOOTTIME` for requests.
    fn now(&self) -> u64;

    /// Counts of a lease; zeros if it does not exist.
    fn seen(&self, lease: u32) -> Counts;

    /// Ready if keys have asked for leases, in a data path that wakes the node for them. Other data
    /// paths are asked at each tick.
    fn poll_asks(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Takes the keys that have asked for leases since the last call.
    fn take_asks(&mut self) -> Vec<Ask>;

    /// Sets the leases of a key. `None` removes its entry.
    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>);

    /// Removes the leases of all keys, which belong to a node that has ended.
    fn forget_keys(&mut self);

    /// Sets the words of a lease: `granted` is a total like `used`; `expires` is a time of
    /// [`Leases::now`], or 0 for a lease that decides nothing.
    fn write(&mut self, lease: u32, words: Words);

    /// Called when the store has answered for a lease and its words are written, for data paths in
    /// which somebody waits for that.
    fn answered(&mut self, _lease: u32, _granted: Granted) {}
}

impl Leases for Box<dyn Leases> {
    fn now(&self) -> u64 {
        (**self).now()
    }

    fn seen(&self, lease: u32) -> Counts {
        (**self).seen(lease)
    }

    fn poll_asks(&mut self, context: &mut Context<'_>) -> Poll<()> {
        (**self).poll_asks(context)
    }

    fn take_asks(&mut self) -> Vec<Ask> {
        (**self).take_asks()
    }

    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>) {
        (**self).set_leased(key, leases);
    }

    fn forget_keys(&mut self) {
        (**self).forget_keys();
    }

    fn write(&mut self, lease: u32, words: Words) {
        (**self).write(lease, words);
    }

    fn answered(&mut self, lease: u32, granted: Granted) {
        (**self).answered(lease, granted);
    }
}

/// Microseconds of the kernel's `CLOCK_MONOTONIC`.
pub fn monotonic() -> u64 {
    clock::kernel_nanos() / 1000
}

/// Reads the counts of a lease in the data path.
pub fn counts(lease: &HostLease) -> Counts {
    let Lease { used, denied, .. } = lease.read();
    Counts { used, denied }
}

/// Sets the words of a lease in the data path.
pub fn grant(lease: &HostLease, Words { granted, expires }: Words) {
    lease.grant(granted, ticks(expires));
}

/// Converts a time of [`Leases::now`] for the data path.
pub const fn ticks(micros: u64) -> Ticks {
    Ticks::from_nanos(micros.saturating_mul(1_000))
}
