//! Leases without a data path.

use std::sync::Arc;

use limiter_common::time::Ticks;
use limiter_common::wire::{Ask, HostLease, KeyLeases, Lease, TableKey};
use limiter_decision::table;
use limiter_sharing::Leases;
use limiter_sharing::key::Words;
use limiter_sharing::leases::{Counts, counts, grant, monotonic, ticks};

/// Leases in memory, with charges as by a data path: for tests.
#[derive(Clone, Debug)]
pub struct MemoryLeases {
    lines: Arc<[HostLease]>,
}

impl MemoryLeases {
    /// Makes `count` leases that decide nothing yet. `begin` are their initial totals.
    pub fn new(count: usize, begin: Counts) -> Self {
        let Counts { used, denied } = begin;
        let line = |_| HostLease::of(&Lease { used, denied, ..Lease::default() });
        Self { lines: (0..count).map(line).collect() }
    }

    /// Charges a packet of `units`. Returns true if the lease passes it; without a valid lease none
    /// passes.
    pub fn packet(&self, lease: u32, units: u64) -> bool {
        self.line(lease).is_some_and(|line| table::passes(line, units, ticks(monotonic())))
    }

    /// Words of a lease.
    pub fn words(&self, lease: u32) -> Words {
        self.line(lease).map_or_else(Words::default, |line| Words {
            granted: line.read().granted,
            expires: Ticks::new(line.read().expires).as_nanos() / 1_000,
        })
    }

    fn line(&self, lease: u32) -> Option<&HostLease> {
        self.lines.get(usize::try_from(lease).ok()?)
    }
}

impl Leases for MemoryLeases {
    /// Never has keys.
    fn take_asks(&mut self) -> Vec<Ask> {
        Vec::new()
    }

    fn set_leased(&mut self, _key: &TableKey, _leases: Option<KeyLeases>) {}

    fn forget_keys(&mut self) {}

    fn now(&self) -> u64 {
        monotonic()
    }

    fn seen(&self, lease: u32) -> Counts {
        self.line(lease).map_or_else(Counts::default, counts)
    }

    fn write(&mut self, lease: u32, words: Words) {
        if let Some(line) = self.line(lease) {
            grant(line, words);
        }
    }
}
