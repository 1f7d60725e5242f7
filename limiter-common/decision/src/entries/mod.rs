//! Room for new entries in tables of fixed size, under any input.
//!
//! An entry whose limits have drained holds no information: losing it changes no verdict. So that
//! is what may leave, and nothing else. An entry that still owes stays, however long: a quota by
//! the week survives a flood of new sources.
//!
//! Each table is a hash map of the kernel beside an array, the *eviction ring*, which has a *slot*
//! with the key of each entry. A *cursor* goes round the ring, as in the CLOCK algorithm of page
//! replacement (Corbató 1968). A new entry takes the first slot that is empty or whose entry may
//! leave ([`ring`]). Nothing scans, and nothing waits for the daemon.
//!
//! New entries have a budget of their own on each CPU ([`admission`]). When that is used up, they
//! go to who comes back ([`fingerprint`]). Packets that get none are judged as their rule says:
//! [`limiter_common::wire::Full`]. By default they share buckets with their neighbours
//! ([`aggregate`]). What such a bucket owes goes into the entry that one of them gets later, so
//! nobody gets a second burst.

pub mod admission;
pub mod aggregate;
pub mod fingerprint;
#[cfg(not(target_arch = "bpf"))]
mod host;
pub mod ring;

#[cfg(not(target_arch = "bpf"))]
pub use host::HostEntryTable;

use core::cell::Cell;

use limiter_common::time::{SECOND, Ticks};

use crate::cell::Cell as SharedWord;

/// Time after the last packet without an entry for which there count as too many new ones.
pub const HYSTERESIS: u64 = SECOND;

/// [`limiter_common::wire::EntryTable`] in place.
pub trait EntryTableWords {
    /// [`limiter_common::wire::EntryTable::entries`].
    fn entries(&self) -> u64;
    /// [`limiter_common::wire::EntryTable::keep`].
    fn keep(&self) -> Ticks;
    /// [`limiter_common::wire::EntryTable::cost`].
    fn cost(&self) -> Ticks;
    /// [`limiter_common::wire::EntryTable::tolerance`].
    fn tolerance(&self) -> Ticks;
    /// [`limiter_common::wire::EntryTable::seed`].
    fn seed(&self) -> u64;
    /// [`limiter_common::wire::EntryTable::cursor`].
    fn cursor(&self) -> impl SharedWord;
    /// [`limiter_common::wire::EntryTable::flood_until`].
    fn flood_until(&self) -> impl SharedWord;
    /// [`limiter_common::wire::EntryTable::total`].
    fn total(&self) -> impl SharedWord;
}

/// [`limiter_common::wire::Admission`] in place, only for this CPU.
#[derive(Debug, Default)]
#[repr(C)]
pub struct AdmissionCells {
    /// [`limiter_common::wire::Admission::tat`].
    pub tat: Cell<u64>,
    /// [`limiter_common::wire::Admission::returned`].
    pub returned: Cell<u64>,
    /// [`limiter_common::wire::Admission::made`].
    pub made: Cell<u64>,
    /// [`limiter_common::wire::Admission::evicted`].
    pub evicted: Cell<u64>,
    /// [`limiter_common::wire::Admission::first_seen`].
    pub first_seen: Cell<u64>,
    /// [`limiter_common::wire::Admission::over_budget`].
    pub over_budget: Cell<u64>,
    /// [`limiter_common::wire::Admission::full`].
    pub full: Cell<u64>,
}

const _: () = assert!(size_of::<AdmissionCells>() == size_of::<limiter_common::wire::Admission>());

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn bump(count: &Cell<u64>) {
    count.set(count.get().wrapping_add(1));
}

/// The rule by which entries may be evicted.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPolicy {
    /// Arrival of the packet that needs an entry.
    pub now: Ticks,
    /// Time for which an entry stays if it was used more than once.
    pub keep: Ticks,
}

impl EvictionPolicy {
    /// True if an entry may be evicted that drained, or was last used, at `since` and has counted
    /// `packets`. An entry with a debt may not.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn allows(&self, since: Ticks, packets: u64) -> bool {
        let once = packets <= 1;
        let keep = if once { 0 } else { self.keep.get() };
        since.get() <= self.now.get() && self.now.since(since).get() >= keep
    }
}
