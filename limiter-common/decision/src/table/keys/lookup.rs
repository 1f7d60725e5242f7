//! Looks up the slot of a key's rule: once for each shape of the table, and the highest rank wins.
//! Only for keys without a bucket, and after a change of the rules.

use limiter_common::bucket::Slot;
use limiter_common::wire::{MAX_SHAPES, Shape, TableKey, TrieValue};

use crate::call::call;
use crate::maps::Maps;
use crate::rounds::Rounds;
use crate::table::scratch::Scratch;

/// The most specific rule for the key in `scratch`; [`Slot::NONE`] if there is none.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn most_specific<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> Slot {
    let generation = scratch.generation();
    let Some(table) = maps.table(generation, index) else {
        return Slot::NONE;
    };
    let shapes = table.shapes;
    let mut best = 0;
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(u64::from(MAX_SHAPES)) {
        if number >= shapes {
            break;
        }
        let found = call!(of_shape(maps, scratch; index, number));
        if found > best {
            best = found;
        }
    }
    if best == 0 { Slot::NONE } else { Slot::new(TrieValue::from_raw(best).slot()) }
}

/// The raw [`TrieValue`] of the rule of one shape for the key in `scratch`; 0 if there is none.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn of_shape<W: Maps>(maps: &W, scratch: &Scratch, index: u32, number: u32) -> u64 {
    let generation = scratch.generation();
    let (Some(shape), Some(key)) = (maps.shape(generation, index, number), scratch.key(index))
    else {
        return 0;
    };
    let ordinal = index.wrapping_mul(MAX_SHAPES).wrapping_add(number);
    scratch.probe.set(probe(&key.get(), shape, ordinal));
    maps.table_rule(generation, &scratch.probe).raw()
}

/// The key of the rule trie for a shape.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn probe(key: &TableKey, shape: &Shape, ordinal: u32) -> TableKey {
    let [first, second, third, to_high, to_low, from_high, from_low]: [u64; 7] =
        bytemuck::cast(*key);
    let [first_mask, second_mask, third_mask, high_mask, low_mask, ..]: [u64; 7] =
        bytemuck::cast(shape.mask);
    // In the first four bytes, which the mask does not contain.
    let ordinal: u64 = bytemuck::cast([ordinal, 0]);
    bytemuck::cast([
        first & first_mask | ordinal,
        second & second_mask,
        third & third_mask,
        to_high & high_mask,
        to_low & low_mask,
        from_high,
        from_low,
    ])
}
