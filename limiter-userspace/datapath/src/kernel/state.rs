//! Reading single entries of the maps by their index.

use limiter_common::wire::{KeyedBucket, Limit, Record};

use super::Kernel;
use crate::{DatapathError, LeaseMemory};

impl Kernel {
    /// The limit in a slot, even if no rule in force uses the slot.
    pub fn limit(&self, slot: u32) -> Result<Limit, DatapathError> {
        self.held.maps.limit(slot)
    }

    /// The state of a shared budget.
    pub fn budget(&self, index: u32) -> Result<KeyedBucket, DatapathError> {
        self.held.tables.budget(index)
    }

    /// The leases of shared limits.
    pub fn leases(&self) -> Result<&LeaseMemory, DatapathError> {
        Ok(self.held.leases()?)
    }

    /// The record in a slot of the tables, even if no rule in force uses the slot.
    pub fn record(&self, slot: u32) -> Result<Record, DatapathError> {
        self.held.tables.record(slot)
    }
}
