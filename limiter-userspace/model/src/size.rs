//! Memory that a model uses, for callers that keep several models within a bound.

use std::mem::size_of;
use std::sync::{Arc, PoisonError};

use limiter_common::bucket_key::BucketKey;
use limiter_common::time::Ticks;
use limiter_common::wire::{FlowKey, TableKey};

use super::Model;
use super::bans::ModelBanRef;
use super::tables::keyed::ModelKeyed;
use super::tables::source_bucket::ModelSourceBucketRef;

/// Bytes of a hash map with capacity for `capacity` entries of `size` bytes: the number of places
/// is a power of two, an eighth of them stays free, and each has an extra byte.
const fn of_map(capacity: usize, size: usize) -> usize {
    if capacity == 0 { 0 } else { (capacity + capacity / 7).next_power_of_two() * (size + 1) }
}

/// Entries that may be added before the size is checked again.
const AHEAD: usize = 256;

/// Bytes of a hash map of `length` entries. If it is about to be full, includes its successor:
/// while it grows, both exist.
pub const fn of_growing(length: usize, capacity: usize, size: usize) -> usize {
    let table = of_map(capacity, size);
    if capacity.saturating_sub(length) < AHEAD { 3 * table } else { table }
}

/// Bytes of a shared value: its two counts, and about as much overhead of the allocator.
const fn of_shared(size: usize) -> usize {
    size + 32
}

impl Model {
    /// Approximate bytes of the model's sources, keys, flows and bans. It never shrinks.
    pub fn bytes(&self) -> usize {
        let sources = {
            let buckets = self.buckets.read().unwrap_or_else(PoisonError::into_inner);
            of_growing(
                buckets.len(),
                buckets.capacity(),
                size_of::<(BucketKey, ModelSourceBucketRef)>(),
            ) + buckets.len() * of_shared(ModelSourceBucketRef::SIZE)
        };
        let keyed = {
            let keyed = self.tables.keyed.read().unwrap_or_else(PoisonError::into_inner);
            of_growing(keyed.len(), keyed.capacity(), size_of::<(TableKey, ModelKeyed)>())
                // Keys of one rule have the same size, and checking all would take too long.
                + keyed.len() * of_shared(keyed.values().next().map_or(0, ModelKeyed::bytes))
        };
        let flows = {
            let flows = self.tables.flows.read().unwrap_or_else(PoisonError::into_inner);
            of_growing(flows.len(), flows.capacity(), size_of::<(FlowKey, Ticks)>())
        };
        let bans = {
            let bans = self.bans.by_source.read().unwrap_or_else(PoisonError::into_inner);
            of_growing(bans.len(), bans.capacity(), size_of::<([u8; 16], Arc<()>)>())
                + bans.len() * of_shared(ModelBanRef::SIZE)
        };
        sources + keyed + flows + bans + self.entries.bytes()
    }
}
