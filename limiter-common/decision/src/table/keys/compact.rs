//! Compact keys: keys whose buckets are stored like those of sources.
//!
//! A table is compact ([`Table::compact`]) if the source table could hold each of its rules, and
//! its keys differ only in one IPv4 address, the source or the destination, and one fact of 16
//! bits, such as a port. The key of an IPv4 packet is a [`BucketKey::compact`] there: its bucket
//! has the form of a source's and the same kind of place, is evicted in the same way, and is judged
//! by the same code. The limit of its rule is stored beside the record.
//!
//! The order is that of all tables: check everywhere, charge the source, charge everywhere.

use limiter_common::bucket_key::BucketKey;
use limiter_common::wire::{Table, field};

use super::key::{KeyFacts, lacks_none};
use crate::packet::Facts;
use limiter_common::compact::{ADDRESS, NUMBER, value_of, without_room};

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) const fn is_compact(table: &Table, key_facts: &KeyFacts) -> bool {
    let [first, ..] = key_facts.words();
    let has_room = without_room(table, first) == 0;
    table.compact != 0 && has_room && key_facts.has() & field::V4 as u64 != 0
}

/// 1 if the key of a packet in a table is compact ([`is_compact`]), otherwise 0; without a branch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn compact_bit(table: &Table, key_facts: &KeyFacts) -> u32 {
    // The number is below 2^16.
    let has_number = table.compact.wrapping_add(NUMBER) >> NUMBER.count_ones();
    let is_v4 = key_facts.has() >> field::V4.trailing_zeros();
    let [first, ..] = key_facts.words();
    (has_number & is_v4 & lacks_none(without_room(table, first)) & 1) as u32
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn compact_in(table: &Table, facts: &Facts, key_facts: &KeyFacts) -> BucketKey {
    let ([[_, source_mask], _], [[_, destination_mask], _]) =
        (table.source_masks, table.destination_masks);
    let ([_, source], [_, destination]) = (facts.source_words(), facts.destination_words());
    // One of the masks is zero.
    let address = source & source_mask | destination & destination_mask;
    let value = value_of(table, key_facts.words());
    BucketKey::compact(table.compact | value | address & ADDRESS)
}
