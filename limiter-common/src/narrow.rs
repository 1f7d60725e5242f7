//! The words of narrow keys: keys that have their buckets where sources have theirs
//! (`limiter_decision::table`).

#[cfg(not(target_arch = "bpf"))]
use crate::owner::{NAME, Owner};
#[cfg(not(target_arch = "bpf"))]
use crate::source::MAPPED;
#[cfg(not(target_arch = "bpf"))]
use crate::wire::{EntryKind, Table, TableKey};

/// Bits of the third word of a key that have the destination port. A name has them at the same
/// place.
pub const PORT: u64 = 0xffff_0000;

/// Bits of the low word of an IPv4-mapped address that have the address. So has a name.
pub const ADDRESS: u64 = 0xffff_ffff << 32;

/// Bits of a name that have the number of its table.
pub const NUMBER: u64 = 0xffff;

/// Bits of the second word of a key that have the IP version.
#[cfg(not(target_arch = "bpf"))]
const VERSION: u64 = 0xff << 24;

/// [`Table::narrow`] of a table with an id: 16 bits of that. It is 0, so that the table is not
/// narrow, for three ids in 2^16.
#[cfg(not(target_arch = "bpf"))]
pub const fn narrow_number(id: u32) -> u64 {
    let [.., high, low] = id.to_be_bytes();
    let number = u64::from_ne_bytes([high, low, 0, 0, 0, 0, 0, 0]);
    // A key of these could be named as a ring slot that is empty or busy.
    if (number ^ NAME) & NUMBER <= 1 { 0 } else { number }
}

/// The narrow key that a packet with a key in a table has there; none if the key is not narrow.
#[cfg(not(target_arch = "bpf"))]
pub fn narrow_owner(table: &Table, key: &TableKey) -> Option<Owner> {
    let [_, _, third] = key.words();
    let [_, low] = key.source;
    let is_narrow = table.narrow != 0 && key.table == table.id && key.version == 4;
    is_narrow.then(|| Owner::narrow(table.narrow | third & PORT | low & ADDRESS))
}

/// The key that packets with a narrow key have in a table; none if it is another table's.
#[cfg(not(target_arch = "bpf"))]
pub fn narrow_key(table: &Table, owner: &Owner) -> Option<TableKey> {
    let word = owner.word();
    let is_of = matches!(owner.kind(), EntryKind::Narrow) && (word ^ table.narrow) & NUMBER == 0;
    if table.narrow == 0 || !is_of {
        return None;
    }
    let [first, second, third] = table.agreed_values;
    let key = TableKey { table: table.id, version: 4, ..TableKey::EMPTY };
    // A key from before the rules agreed on the port may have another one.
    let key = key.with([first, second & !VERSION, third & !PORT | word & PORT]);
    Some(TableKey { source: [0, MAPPED | word & ADDRESS], ..key })
}
