//! Tables: the packet facts that form their keys, and the way from a key to its rule.

use bytemuck::{Pod, Zeroable};

use super::key::{TableKey, field};
use super::range::{MAX_RANGES, Range};

/// The most tables besides the source table.
pub const MAX_TABLES: u32 = 8;

/// The most shapes of a table: combinations of keys with and without a value, and of lengths of
/// destination prefixes.
pub const MAX_SHAPES: u32 = 16;

/// A table of a rule set: the value of `TABLES`, at `buffer * MAX_TABLES + index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Table {
    /// Part of every key, so that tables can share one map. It stays the same over all generations
    /// in which the table has the same keys and masks.
    pub id: u32,
    /// Bits of [`field`]. A packet is in the table if it has all of these facts.
    pub fields: u32,
    /// Number of shapes.
    pub shapes: u32,
    /// The slot of the rule of a table without keys, otherwise [`crate::bucket::Slot::NONE`]. Such
    /// a rule has a shared budget.
    pub fixed: u32,
    /// The bits of the first three words of a [`TableKey`] that are part of the key:
    /// [`TableKey::mask`] of the fields.
    pub words: [u64; 3],
    /// The bits of those words on which all rules of the table agree, and which no range changes.
    pub agreed: [u64; 3],
    /// The values of the bits in `agreed`. A packet with other values matches no rule of the table,
    /// so it is not in the table: its bucket is neither looked up nor made.
    pub agreed_values: [u64; 3],
    /// Masks of the source address, of IPv4 (in IPv4-mapped form) and of IPv6.
    pub source_masks: [[u64; 2]; 2],
    /// Masks of the destination address, in the same order.
    pub destination_masks: [[u64; 2]; 2],
    /// Values that count as one, by fact. Used entries come first.
    pub ranges: [Range; MAX_RANGES],
    /// The first two bytes of the names of IPv4 packets' keys, if those are compact
    /// ([`crate::bucket_key::BucketKey::compact`]), in memory order; 0 if they are not.
    pub compact: u64,
    /// The bits of the first three words of a key that those names contain: from one word, at most
    /// 16 ([`crate::compact::value_of`]).
    pub compact_words: [u64; 3],
    /// Rotation to the right that moves these bits to their place in a name, below 64.
    pub compact_turn: u64,
}

const _: () = assert!(size_of::<Table>() == 320);

impl Table {
    /// True if its keys are the sources of the source table: it has the rules by source, only for
    /// incoming packets, that are more than one plain token bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_of_sources(&self) -> bool {
        let [[a, b], [c, d]] = self.source_masks;
        let fields = field::SOURCE | field::V4 | field::V6 | field::IN;
        self.fields == fields && a & b & c & !d == u64::MAX
    }
}

/// A shape of a table: which bits of a key its rules compare. The value of `SHAPES`, at
/// `(buffer * MAX_TABLES + table) * MAX_SHAPES + shape`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Shape {
    /// Ones where a bit of the key counts. [`TableKey::table`] is zero here, and
    /// [`TableKey::source`] is not used, because the trie knows its length.
    pub mask: TableKey,
}

const _: () = assert!(size_of::<Shape>() == 56);

/// The value of the rule trie: the slot, and above it the rank. Of the rules found with a table's
/// shapes, the one with the highest rank is the most specific.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct TrieValue(u64);

crate::raw_word!(TrieValue);

impl TrieValue {
    /// Packs rank and slot. Ranks start at 1.
    pub const fn new(rank: u32, slot: u32) -> Self {
        Self((rank as u64) << 32 | slot as u64)
    }

    /// Slot of the record.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn slot(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }
}
