//! Names of keys: one that is not a hash is of one key alone.

use std::collections::HashMap;

use limiter_common::wire::{KeyName, TableKey, field};
use proptest::prelude::*;

/// Bits of a table's id that a name has room for.
const TABLE_BITS: u32 = 29;

fn v4(last: u8) -> [u64; 2] {
    [0, u64::from_ne_bytes([0, 0, 0xff, 0xff, 192, 0, 2, last])]
}

fn name(key: &TableKey) -> KeyName {
    key.name(|| 7)
}

#[test]
fn a_source_with_port_and_flags_is_its_own_name() {
    let key = TableKey { table: 9, version: 4, source: v4(1), ..TableKey::EMPTY };
    let v6 = TableKey { version: 6, source: [u64::MAX, 0], ..key };
    let none = TableKey { version: 0, source: [0; 2], ..key };
    let with = |fact, value| key.with(TableKey::place(fact, value));
    for key in [key, v6, none] {
        let with = |fact, value| key.with(TableKey::place(fact, value));
        for key in [
            key,
            with(field::DESTINATION_PORT, 53),
            with(field::PROTOCOL, 17),
            with(field::TCP_FLAGS, 3),
            with(field::FRAGMENT, 2),
        ] {
            assert!(!name(&key).is_hashed(), "{key:?}");
        }
        for fact in [field::SOURCE_PORT, field::TTL, field::DSCP] {
            assert_eq!(name(&with(fact, 1)).is_hashed(), key == v6, "{key:?}");
        }
    }
    for key in [
        with(field::VLAN, 1),
        with(field::PACKET_LENGTH, 1),
        with(field::INTERFACE, 1),
        TableKey { ttl: 1 << 8, ..key },
        TableKey { dscp: 1 << 8, ..key },
        TableKey { source: [1, 0], ..none },
        TableKey { table: 1 << TABLE_BITS, ..key },
        TableKey { destination: v4(2), ..key },
        TableKey { version: 6, source: [1, 1], ..key },
        TableKey { source: [0, 1], ..key },
    ] {
        assert!(name(&key).is_hashed(), "{key:?}");
    }
}

/// Small numbers everywhere, so that keys differ in little.
fn keys() -> impl Strategy<Value = TableKey> {
    let small = || prop_oneof![4 => Just(0_u16), 1 => 0..3_u16, 1 => any::<u16>()];
    let word = || prop_oneof![4 => Just(0_u64), 1 => 0..3_u64, 1 => any::<u64>()];
    let source = prop_oneof![(0..3_u8).prop_map(v4), (word(), word()).prop_map(|(a, b)| [a, b])];
    let numbers = (small(), small(), small(), small(), small(), small(), small());
    let table = prop_oneof![0..3_u32, Just(1 << TABLE_BITS), any::<u32>()];
    let version = prop_oneof![Just(0_u8), Just(4), Just(6)];
    (table, version, numbers, source, (word(), word())).prop_map(
        |(table, version, (port, protocol, flags, vlan, ttl, from, dscp), source, to)| TableKey {
            table,
            version,
            destination_port: port,
            protocol: (protocol & 0xff) as u8,
            flags: (flags & 0xff) as u8,
            vlan,
            ttl,
            source_port: from,
            dscp,
            source,
            destination: [to.0, to.1],
            ..TableKey::EMPTY
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Of two keys with one name, each is a hash, or they are one key.
    #[test]
    fn no_two_keys_have_one_name(keys in proptest::collection::vec(keys(), 64)) {
        let mut by_name: HashMap<KeyName, TableKey> = HashMap::new();
        for key in keys {
            let other = *by_name.entry(name(&key)).or_insert(key);
            prop_assert!(other == key || name(&key).is_hashed(), "{:?} {:?}", other, key);
        }
    }
}
