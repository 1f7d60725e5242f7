//! The name of a key: the sixteen bytes under which `KEYED` stores its bucket. The kernel hashes a
//! key at each look-up, so a short name costs less than the whole key.
//!
//! Most keys fit: a source, or none, with a port, a protocol, flags or the kind of fragment; with
//! an IPv4 source, or none, also the source port, the time to live and the DSCP. The name of such a
//! key is a rearrangement of it, so no two are equal. The name of a longer key is a hash with a
//! secret seed; a look-up then compares the key stored beside the bucket.

use bytemuck::{Pod, Zeroable};

use super::key::{TableKey, field};
use super::record::KeyedBucket;
use super::table::Table;
use crate::hash::scatter;

/// The name of a key.
///
/// The first word is the prefix of an IPv6 source, `dscp:8 | ttl:8 | source_port:16 | address:32`
/// with an IPv4 source or none, or the hash. The second is
/// `destination_port:16 | flags:8 | protocol:8 | hashed:1 | family:2 | table:29`; for a hash, all
/// ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct KeyName([u64; 2]);

/// Bits of a table's id in a name.
const TABLE_BITS: u32 = 29;

/// The second word of a hashed name. No other name has [`IS_HASHED`] set.
const HASHED: u64 = u64::MAX;

/// Bit of the second word that is set in a hashed name.
const IS_HASHED: u64 = 1 << 31;

/// The second word of the IPv4-mapped address `0.0.0.0`, in memory order.
const MAPPED: u64 = u64::from_ne_bytes([0, 0, 0xff, 0xff, 0, 0, 0, 0]);

/// Facts that fit in a name, and those without a place in it. Of an IPv6 source, only the first 64
/// bits.
const FITTING: u32 = field::SOURCE
    | field::DESTINATION_PORT
    | field::ICMP_TYPE
    | field::PROTOCOL
    | field::TCP_FLAGS
    | field::FRAGMENT
    | field::V4
    | field::V6
    | field::IN
    | field::OUT;

/// Facts that also fit in a name without an IPv6 address.
const BESIDE_V4: u32 = field::SOURCE_PORT | field::TTL | field::DSCP;

/// Bits of the second and third word of a [`TableKey`] that fit in a name, and the version.
const SECOND: u64 = 0xff00_ffff;
const THIRD: u64 = 0xffff_0000;

/// Bits of them that also fit in a name without an IPv6 address.
const SECOND_BESIDE_V4: u64 = 0x00ff_00ff_0000_0000;
const THIRD_BESIDE_V4: u64 = 0xffff_0000_0000;

/// The version of IPv6, in its place in the second word of a [`TableKey`].
const IPV6: u64 = 6 << 24;
const VERSION: u64 = 0xff << 24;

impl KeyName {
    /// The name of a key that fits, from the id of its table, the address, and the second and third
    /// word of the key.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_words(table: u32, address: u64, second: u64, third: u64) -> Self {
        // Versions four and six become two and three.
        let family = second >> 25 & 3;
        let low = table as u64 | family << TABLE_BITS;
        // Zero for a fitting key with an IPv6 address.
        let ttl_and_dscp = second << 16 & 0xff << 48 | second << 8 & 0xff << 56;
        let high = ttl_and_dscp | third & THIRD_BESIDE_V4;
        Self([address | high, (third << 32 & 0xffff << 48) | (second & 0xffff) << 32 | low])
    }

    /// True if all keys of a table fit whose second word has this version.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn fits(table: &Table, second: u64) -> bool {
        let [_, [_, host]] = table.source_masks;
        let room = if second & VERSION == IPV6 { FITTING } else { FITTING | BESIDE_V4 };
        table.fields & !room == 0 && host == 0 && table.id >> TABLE_BITS == 0
    }

    /// True for a hash: another key may have the same name.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_hashed(self) -> bool {
        let Self([_, second]) = self;
        second & IS_HASHED != 0
    }
}

impl TableKey {
    /// The name of the key. Calls `seed` for the secret of the hash if it needs one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn name(&self, seed: impl FnOnce() -> u64) -> KeyName {
        let [first, second, third, to_high, to_low, from_high, from_low]: [u64; 7] =
            bytemuck::cast(*self);
        // Bits that do not fit.
        let rest = first >> TABLE_BITS
            | second & !(SECOND | SECOND_BESIDE_V4)
            | third & !(THIRD | THIRD_BESIDE_V4)
            | to_high
            | to_low;
        let (address, rest) = match self.version {
            4 => (from_low >> 32, rest | from_high | from_low & 0xffff_ffff ^ MAPPED),
            0 => (0, rest | from_high | from_low),
            _ => {
                let beside = second & SECOND_BESIDE_V4 | third & THIRD_BESIDE_V4;
                (from_high, rest | from_low | beside)
            }
        };
        if rest != 0 {
            return KeyName([self.hash(seed()), HASHED]);
        }
        KeyName::of_words(self.table, address, second, third)
    }

    /// A number for the key. Two keys have the same number only by chance, and nobody can find such
    /// keys without the seed.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn hash(&self, seed: u64) -> u64 {
        let [first, second, third, fourth, fifth, sixth, last]: [u64; 7] = bytemuck::cast(*self);
        let hash = scatter(scatter(scatter(seed ^ first) ^ second) ^ third);
        scatter(scatter(scatter(hash ^ fourth) ^ fifth) ^ sixth) ^ last
    }
}

/// The bucket of a key, and the key: the value of `KEYED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct KeyedEntry {
    /// Bucket of the key.
    pub bucket: KeyedBucket,
    /// The key itself, for comparison, because a name may be a hash.
    pub key: TableKey,
}

const _: () = assert!(size_of::<KeyedEntry>() == size_of::<KeyedBucket>() + 56);

/// A ring slot with the name of an entry's key, so that entries can be visited step by step: the
/// value of `FRAMES_KEYED`. Slots of sources consist of the first word only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct KeyedRingSlot {
    /// 0 for empty, 1 while being filled, otherwise a number that grows with every key stored in
    /// it.
    pub state: u64,
    /// The name of the key.
    pub name: KeyName,
}
