//! Leases of the data path, as the node sees them: counts that it reads, and words that it writes.

use std::task::{Context, Poll};

use limiter_common::time::Ticks;
use limiter_common::wire::{Ask, HostLease, KeyLeases, Lease, TableKey};

use super::clock;
use super::key::Words;

/// Totals of a lease that the data path counts. They may begin at any number, and `used` may fall
/// a little where a charge is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units that passed by the lease.
    pub used: u64,
    /// Units that were refused, by the lease or by the share.
    pub denied: u64,
}

/// What the store answered for a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Units that the node wanted.
    pub wanted: u64,
    /// Units that it got.
    pub units: u64,
    /// Microseconds after which it asks again at the earliest.
    pub again: u64,
}

/// Leases of a data path. Nobody else writes their words.
pub trait Leases: Send + 'static {
    /// Microseconds of the clock by which the data path judges, which never goes back: of the
    /// kernel's `CLOCK_MONOTONIC`, of requests `CLOCK_BOOTTIME`.
    fn now(&self) -> u64;

    /// Counts of a lease; zeros of one that there is not.
    fn seen(&self, lease: u32) -> Counts;

    /// Ready if keys have asked for leases, for a data path that wakes the node for them. The
    /// others are asked at each tick.
    fn poll_asks(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Takes the keys that have asked for leases since the last time.
    fn take_asks(&mut self) -> Vec<Ask>;

    /// Gives a key leases, or takes them away, and what it has asked.
    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>);

    /// Takes the leases of all keys away: those of a node that has ended.
    fn forget_keys(&mut self);

    /// Sets the words of a lease: `granted` is a total as `used` is, `expires` a time as
    /// [`Leases::now`] is, or 0: the lease decides nothing.
    fn write(&mut self, lease: u32, words: Words);

    /// The store answered for a lease, whose words are written: for a data path in which somebody
    /// waits for that.
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

/// Counts of a lease of the data path.
pub fn counts(lease: &HostLease) -> Counts {
    let Lease { used, denied, .. } = lease.read();
    Counts { used, denied }
}

/// Sets the words of a lease of the data path.
pub fn grant(lease: &HostLease, Words { granted, expires }: Words) {
    lease.grant(granted, ticks(expires));
}

/// A time of [`Leases::now`], as the data path has it.
pub const fn ticks(micros: u64) -> Ticks {
    Ticks::from_nanos(micros.saturating_mul(1_000))
}
