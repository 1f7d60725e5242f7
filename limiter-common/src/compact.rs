//! The words of compact keys: keys whose buckets are stored in the same places as those of sources
//! (`limiter_decision::table`).

#[cfg(not(target_arch = "bpf"))]
use crate::bucket_key::{BucketKey, NAME};
#[cfg(not(target_arch = "bpf"))]
use crate::source::MAPPED;
use crate::wire::Table;
#[cfg(not(target_arch = "bpf"))]
use crate::wire::{EntryKind, TableKey, field};

/// Bits of a name that hold the value of one fact besides the address ([`Table::compact_words`]):
/// in the place of the destination port in the third word of a key.
pub const VALUE: u64 = 0xffff_0000;

/// Bits of the low word of an IPv4-mapped address that hold the address, in a name as well.
pub const ADDRESS: u64 = 0xffff_ffff << 32;

/// Bits of a name that hold the number of its table.
pub const NUMBER: u64 = 0xffff;

/// Bits of the second word of a key that hold the IP version.
#[cfg(not(target_arch = "bpf"))]
const VERSION: u64 = 0xff << 24;

/// Facts besides the address, of which a compact key's name holds one, and the rotation to the
/// right that brings its bits from their word to [`VALUE`]. Of the facts that a table asks for, the
/// first in this list is used. It depends only on the facts, so a name keeps its meaning as long as
/// its table exists. Facts of one row share 16 bits.
#[cfg(not(target_arch = "bpf"))]
const VALUES: [(u32, u32); 8] = [
    (field::DESTINATION_PORT | field::ICMP_TYPE, 0),
    (field::SOURCE_PORT, 16),
    (field::PACKET_LENGTH, 32),
    (field::VLAN, 48),
    (field::TTL, 16),
    (field::DSCP, 32),
    (field::PROTOCOL | field::TCP_FLAGS | field::FRAGMENT, 48),
    // Only the lower half of the index: keys whose upper half is not zero are not compact.
    (field::INTERFACE, 16),
];

/// For the facts of a table: the facts besides the address that a name holds, and
/// [`Table::compact_words`] and [`Table::compact_turn`] for them.
#[cfg(not(target_arch = "bpf"))]
pub fn value_place(fields: u32) -> (u32, [u64; 3], u64) {
    let found = VALUES.iter().find(|(facts, _)| fields & facts != 0);
    let (facts, turn) = found.map_or((0, 0), |(facts, turn)| (fields & facts, *turn));
    let words = TableKey::mask(facts).map(|mask| mask & VALUE.rotate_left(turn));
    (facts, words, turn.into())
}

/// The value in a name: bits of the first three words of a key, moved to their place in the name.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn value_of(table: &Table, [first, second, third]: [u64; 3]) -> u64 {
    let [first_mask, second_mask, third_mask] = table.compact_words;
    let value = first & first_mask | second & second_mask | third & third_mask;
    // Rotates to the right by less than 64.
    value >> (table.compact_turn & 63) | value << (table.compact_turn.wrapping_neg() & 63)
}

/// Bits of the first word of a key that a table asks for but a name cannot hold: the upper half of
/// an interface index. They must be zero in a compact key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn without_room(table: &Table, first: u64) -> u64 {
    let [mask, ..] = table.compact_words;
    first & mask << 16
}

/// [`Table::compact`] for a table with this id: 16 bits of the id. It is 0 for three ids in 2^16,
/// whose tables are not compact.
#[cfg(not(target_arch = "bpf"))]
pub const fn compact_number(id: u32) -> u64 {
    let [.., high, low] = id.to_be_bytes();
    let number = u64::from_ne_bytes([high, low, 0, 0, 0, 0, 0, 0]);
    // Otherwise a key of these tables could have the name of an empty or busy ring slot.
    if (number ^ NAME) & NUMBER <= 1 { 0 } else { number }
}

/// The compact key of a packet's key in a table; `None` if the key is not compact.
#[cfg(not(target_arch = "bpf"))]
pub fn compact_bucket_key(table: &Table, key: &TableKey) -> Option<BucketKey> {
    let words @ [first, ..] = key.words();
    // A compact table asks for only one of the two.
    let ([_, source], [_, destination]) = (key.source, key.destination);
    let is_compact = table.compact != 0
        && key.table == table.id
        && key.version == 4
        && without_room(table, first) == 0;
    let address = (source | destination) & ADDRESS;
    is_compact.then(|| BucketKey::compact(table.compact | value_of(table, words) | address))
}

/// The key in a table for a compact key; `None` if it belongs to another table.
#[cfg(not(target_arch = "bpf"))]
pub fn compact_key(table: &Table, bucket_key: &BucketKey) -> Option<TableKey> {
    let word = bucket_key.word();
    let is_of =
        matches!(bucket_key.kind(), EntryKind::Compact) && (word ^ table.compact) & NUMBER == 0;
    if table.compact == 0 || !is_of {
        return None;
    }
    let [first, second, third] = table.agreed_values;
    let key = TableKey { table: table.id, version: 4, ..TableKey::EMPTY };
    let value = (word & VALUE).rotate_left((table.compact_turn & 63) as u32);
    let mut words = [first, second & !VERSION, third];
    for (word, mask) in words.iter_mut().zip(table.compact_words) {
        // A key from before the rules agreed on the value may have another value.
        *word = *word & !mask | value & mask;
    }
    let (key, address) = (key.with(words), [0, MAPPED | word & ADDRESS]);
    Some(if table.fields & field::SOURCE != 0 {
        TableKey { source: address, ..key }
    } else {
        TableKey { destination: address, ..key }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FlagClass;

    /// A compact table of some facts and an address, whose rules agree on everything except the
    /// value.
    fn table(fields: u32) -> Table {
        let (facts, compact_words, compact_turn) = value_place(fields);
        let agreed = TableKey::mask(fields & !facts & !field::SOURCE & !field::DESTINATION);
        Table {
            id: 7,
            fields: fields | field::V4 | field::V6,
            words: TableKey::mask(fields),
            agreed,
            compact: compact_number(7),
            compact_words,
            compact_turn,
            ..Table::default()
        }
    }

    #[test]
    fn a_compact_key_is_all_of_the_key() {
        let keys = [
            (field::DESTINATION_PORT, TableKey { destination_port: 0x1234, ..TableKey::EMPTY }),
            (field::ICMP_TYPE, TableKey { destination_port: 0x34, ..TableKey::EMPTY }),
            (field::SOURCE_PORT, TableKey { source_port: 0xf00d, ..TableKey::EMPTY }),
            (field::PACKET_LENGTH, TableKey { packet_length: 0xffff, ..TableKey::EMPTY }),
            (field::VLAN, TableKey { vlan: 0x0fff, ..TableKey::EMPTY }),
            (field::TTL, TableKey { ttl: 255, ..TableKey::EMPTY }),
            (field::DSCP, TableKey { dscp: 0x3f, ..TableKey::EMPTY }),
            (
                field::PROTOCOL | field::TCP_FLAGS,
                TableKey { protocol: 6, flags: FlagClass::Syn as u8, ..TableKey::EMPTY },
            ),
            (field::INTERFACE, TableKey { interface: 0xffff, ..TableKey::EMPTY }),
            (0, TableKey::EMPTY),
        ];
        let address = [0, MAPPED | u64::from_ne_bytes([0, 0, 0, 0, 203, 0, 113, 9])];
        for (facts, key) in keys {
            for (fields, (source, destination)) in
                [(field::SOURCE, (address, [0; 2])), (field::DESTINATION, ([0; 2], address))]
            {
                let of = table(facts | fields);
                let key = TableKey { table: 7, version: 4, source, destination, ..key };
                let bucket_key = compact_bucket_key(&of, &key).unwrap();
                assert_eq!(bucket_key.word() & !(NUMBER | ADDRESS) & !VALUE, 0);
                assert_eq!(bucket_key.word() & VALUE == 0, facts == 0, "{key:?}");
                assert_eq!(compact_key(&of, &bucket_key), Some(key));
            }
        }
    }

    #[test]
    fn an_interface_whose_index_does_not_fit_is_no_compact_key() {
        let of = table(field::SOURCE | field::INTERFACE);
        let key = |interface| TableKey { table: 7, version: 4, interface, ..TableKey::EMPTY };
        assert!(compact_bucket_key(&of, &key(0xffff)).is_some());
        assert!(compact_bucket_key(&of, &key(0x1_0000)).is_none());
        // With a port, the name holds the port, and all rules agree on the interface.
        let of = table(field::SOURCE | field::INTERFACE | field::DESTINATION_PORT);
        assert!(compact_bucket_key(&of, &key(0x1_0000)).is_some());
    }
}
