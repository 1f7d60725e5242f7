//! The words of compact keys: keys that have their buckets where sources have theirs
//! (`limiter_decision::table`).

#[cfg(not(target_arch = "bpf"))]
use crate::bucket_key::{BucketKey, NAME};
#[cfg(not(target_arch = "bpf"))]
use crate::source::MAPPED;
use crate::wire::Table;
#[cfg(not(target_arch = "bpf"))]
use crate::wire::{EntryKind, TableKey, field};

/// Bits of a name that have the value of one fact beside the address ([`Table::compact_words`]):
/// for a destination port, where the third word of a key has it.
pub const VALUE: u64 = 0xffff_0000;

/// Bits of the low word of an IPv4-mapped address that have the address. So has a name.
pub const ADDRESS: u64 = 0xffff_ffff << 32;

/// Bits of a name that have the number of its table.
pub const NUMBER: u64 = 0xffff;

/// Bits of the second word of a key that have the IP version.
#[cfg(not(target_arch = "bpf"))]
const VERSION: u64 = 0xff << 24;

/// Facts beside the address of which the name of a compact key has room for one, and the right turn
/// that brings its bits from their word to [`VALUE`]: of those that a table asks for, the first one
/// here. It depends on the facts alone, so a name says the same as long as its table is there.
/// Facts of one row share 16 bits.
#[cfg(not(target_arch = "bpf"))]
const VALUES: [(u32, u32); 8] = [
    (field::DESTINATION_PORT | field::ICMP_TYPE, 0),
    (field::SOURCE_PORT, 16),
    (field::PACKET_LENGTH, 32),
    (field::VLAN, 48),
    (field::TTL, 16),
    (field::DSCP, 32),
    (field::PROTOCOL | field::TCP_FLAGS | field::FRAGMENT, 48),
    // The lower half of the index: keys with another upper half than zero are not compact.
    (field::INTERFACE, 16),
];

/// The facts beside the address that a name has, of those of a table; and [`Table::compact_words`]
/// and [`Table::compact_turn`] of them.
#[cfg(not(target_arch = "bpf"))]
pub fn value_place(fields: u32) -> (u32, [u64; 3], u64) {
    let found = VALUES.iter().find(|(facts, _)| fields & facts != 0);
    let (facts, turn) = found.map_or((0, 0), |(facts, turn)| (fields & facts, *turn));
    let words = TableKey::mask(facts).map(|mask| mask & VALUE.rotate_left(turn));
    (facts, words, turn.into())
}

/// The value in a name: bits of the first three words of a key, at their place in the name.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn value_of(table: &Table, [first, second, third]: [u64; 3]) -> u64 {
    let [first_mask, second_mask, third_mask] = table.compact_words;
    let value = first & first_mask | second & second_mask | third & third_mask;
    // A turn to the right, whose number is below 64.
    value >> (table.compact_turn & 63) | value << (table.compact_turn.wrapping_neg() & 63)
}

/// Bits of the first word of a key that a table asks for and a name has no room for, as a compact
/// key has them all zero: the upper half of an interface index.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn without_room(table: &Table, first: u64) -> u64 {
    let [mask, ..] = table.compact_words;
    first & mask << 16
}

/// [`Table::compact`] of a table with an id: 16 bits of that. It is 0, so that the table is not
/// compact, for three ids in 2^16.
#[cfg(not(target_arch = "bpf"))]
pub const fn compact_number(id: u32) -> u64 {
    let [.., high, low] = id.to_be_bytes();
    let number = u64::from_ne_bytes([high, low, 0, 0, 0, 0, 0, 0]);
    // A key of these could be named as a ring slot that is empty or busy.
    if (number ^ NAME) & NUMBER <= 1 { 0 } else { number }
}

/// The compact key that a packet with a key in a table has there; none if the key is not compact.
#[cfg(not(target_arch = "bpf"))]
pub fn compact_bucket_key(table: &Table, key: &TableKey) -> Option<BucketKey> {
    let words @ [first, ..] = key.words();
    // A compact table asks for one of the two.
    let ([_, source], [_, destination]) = (key.source, key.destination);
    let is_compact = table.compact != 0
        && key.table == table.id
        && key.version == 4
        && without_room(table, first) == 0;
    let address = (source | destination) & ADDRESS;
    is_compact.then(|| BucketKey::compact(table.compact | value_of(table, words) | address))
}

/// The key that packets with a compact key have in a table; none if it is another table's.
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
        // A key from before the rules agreed on the value may have another one.
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

    /// A table of some facts and an address that is compact, whose rules agree on all but the
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
        // With a port, the name has that, and all rules agree on the interface.
        let of = table(field::SOURCE | field::INTERFACE | field::DESTINATION_PORT);
        assert!(compact_bucket_key(&of, &key(0x1_0000)).is_some());
    }
}
