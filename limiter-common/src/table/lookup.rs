//! From a key to the slot of its rule: one look-up for each shape of the table, the highest rank
//! wins. Only keys without a bucket, and those after a change of the rules, come here.

use super::{Scratch, Tables};
use crate::bucket::Slot;
use crate::wire::{MAX_SHAPES, Shape, TableKey, TrieValue};

/// The most specific rule for the key in `scratch`; [`Slot::NONE`] when there is none.
#[inline(always)]
pub fn most_specific<T: Tables>(maps: &T, scratch: &Scratch, index: u32) -> Slot {
    let generation = scratch.generation();
    let Some(table) = maps.table(generation, index) else {
        return Slot::NONE;
    };
    let Some(key) = scratch.key(index) else {
        return Slot::NONE;
    };
    let shapes = table.shapes;
    let mut best = 0;
    let mut number = 0;
    while number < MAX_SHAPES {
        if number >= shapes {
            break;
        }
        let Some(shape) = maps.shape(generation, index, number) else {
            break;
        };
        let ordinal = index.wrapping_mul(MAX_SHAPES) + number;
        scratch.probe.set(probe(&key.get(), shape, ordinal));
        let found = maps.table_rule(generation, &scratch.probe);
        if found.raw() > best {
            best = found.raw();
        }
        number += 1;
    }
    if best == 0 { Slot::NONE } else { Slot::new(TrieValue::from_raw(best).slot()) }
}

/// What the trie has for keys of this shape.
#[inline(always)]
fn probe(key: &TableKey, shape: &Shape, ordinal: u32) -> TableKey {
    let mask = &shape.mask;
    let [high, low] = key.destination;
    let [high_mask, low_mask] = mask.destination;
    TableKey {
        table: ordinal,
        interface: key.interface & mask.interface,
        vlan: key.vlan & mask.vlan,
        destination_port: key.destination_port & mask.destination_port,
        protocol: key.protocol & mask.protocol,
        tcp_flags: key.tcp_flags & mask.tcp_flags,
        dscp: key.dscp & mask.dscp,
        version: key.version & mask.version,
        destination: [high & high_mask, low & low_mask],
        source: key.source,
    }
}
