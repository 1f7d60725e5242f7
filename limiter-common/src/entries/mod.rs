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
//! [`crate::wire::Full`]. By default they share buckets with their neighbours ([`aggregate`]). What
//! such a bucket owes goes into the entry that one of them gets later, so nobody gets a second
//! burst.

pub mod admission;
pub mod aggregate;
pub mod fingerprint;
#[cfg(not(target_arch = "bpf"))]
mod host;
pub mod ring;

#[cfg(not(target_arch = "bpf"))]
pub use host::HostEntryTable;

use core::cell::Cell;

use crate::cell::Cell as SharedWord;
use crate::time::{TICK_BITS, Ticks};
use crate::wire::EntryTable;

/// A second in ticks.
pub const SECOND: u64 = 1_000_000_000 << TICK_BITS;

/// Time for which an entry stays after it has drained, while there are more new ones than may be.
pub const KEEP: u64 = 8 * SECOND;

/// Time that the budget of new entries takes to make as many as the table holds.
pub const TURNOVER: u64 = 16 * SECOND;

/// Time, after the last packet that got no entry, for which there count as more new ones than may
/// be.
pub const HYSTERESIS: u64 = SECOND;

impl EntryTable {
    /// The settings of a table of `entries`. On each CPU, half of them may be made at once, and
    /// then a [`TURNOVER`]th of them a second.
    pub const fn new(entries: u32, seed: u64) -> Self {
        let entries = entries as u64;
        let cost = match TURNOVER.checked_div(entries) {
            Some(cost) => cost,
            None => TURNOVER,
        };
        Self {
            entries,
            keep: KEEP,
            cost,
            tolerance: TURNOVER >> 1,
            seed,
            cursor: 0,
            flood_until: 0,
            total: 0,
        }
    }

    /// New entries a second that a CPU may make in the long run.
    pub const fn rate(&self) -> u64 {
        match SECOND.checked_div(self.cost) {
            Some(rate) => rate,
            None => 0,
        }
    }
}

/// [`EntryTable`] in place.
pub trait EntryTableWords {
    /// [`EntryTable::entries`].
    fn entries(&self) -> u64;
    /// [`EntryTable::keep`].
    fn keep(&self) -> Ticks;
    /// [`EntryTable::cost`].
    fn cost(&self) -> Ticks;
    /// [`EntryTable::tolerance`].
    fn tolerance(&self) -> Ticks;
    /// [`EntryTable::seed`].
    fn seed(&self) -> u64;
    /// [`EntryTable::cursor`].
    fn cursor(&self) -> impl SharedWord;
    /// [`EntryTable::flood_until`].
    fn flood_until(&self) -> impl SharedWord;
    /// [`EntryTable::total`].
    fn total(&self) -> impl SharedWord;
}

/// [`crate::wire::Admission`] in place: this CPU's alone.
#[derive(Debug, Default)]
#[repr(C)]
pub struct AdmissionCells {
    /// [`crate::wire::Admission::tat`].
    pub tat: Cell<u64>,
    /// [`crate::wire::Admission::returned`].
    pub returned: Cell<u64>,
    /// [`crate::wire::Admission::made`].
    pub made: Cell<u64>,
    /// [`crate::wire::Admission::evicted`].
    pub evicted: Cell<u64>,
    /// [`crate::wire::Admission::first_seen`].
    pub first_seen: Cell<u64>,
    /// [`crate::wire::Admission::over_budget`].
    pub over_budget: Cell<u64>,
    /// [`crate::wire::Admission::full`].
    pub full: Cell<u64>,
}

const _: () = assert!(size_of::<AdmissionCells>() == size_of::<crate::wire::Admission>());

/// Adds one to a count of this CPU's.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn bump(count: &Cell<u64>) {
    count.set(count.get().wrapping_add(1));
}

/// The state of a ring slot without an entry.
pub const EMPTY: u64 = 0;

/// The state of a ring slot that an entry is being made for. Other CPUs look elsewhere.
pub const BUSY: u64 = 1;

/// The rule by which entries may leave.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPolicy {
    /// Arrival of the packet that wants an entry.
    pub now: Ticks,
    /// Time for which an entry stays that was used more than once.
    pub keep: Ticks,
}

impl EvictionPolicy {
    /// True if an entry may leave that drained, or was used last, at `since` and has counted
    /// `packets`. An entry that still owes may not.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn allows(&self, since: Ticks, packets: u64) -> bool {
        let once = packets <= 1;
        let keep = if once { 0 } else { self.keep.get() };
        since.get() <= self.now.get() && self.now.since(since).get() >= keep
    }
}
