//! Many entries written by one system call. A rule set of 100,000 rules is as many entries in
//! several maps.

use aya::Pod;
use aya::maps::{IterableMap, MapData};

use super::{Elements, call};

/// Entries of one system call: one that is killed must not wait for a million.
const MOST: usize = 1 << 16;

/// Writes entries; says how many of the first were written. With `per_key` values each, as a map
/// with a value for each CPU has them.
///
/// Entries that are left are to be written one by one: a kernel or a kind of map without batches
/// leaves all of them, and the error for one that is refused comes then.
pub(crate) fn update<K: Pod, V: Pod, X, M: IterableMap<K, X>>(
    map: &M,
    keys: &[K],
    values: &[V],
    per_key: usize,
) -> usize {
    let mut done = 0;
    for (keys, values) in keys.chunks(MOST).zip(values.chunks(MOST.saturating_mul(per_key.max(1))))
    {
        let written = one(map.map(), keys, values);
        done += written;
        if written < keys.len() {
            break;
        }
    }
    done
}

fn one<K: Pod, V: Pod>(map: &MapData, keys: &[K], values: &[V]) -> usize {
    let Ok(count) = u32::try_from(keys.len()) else { return 0 };
    let (written, result) = call(map, count, Elements::Update { keys, values });
    // Of a batch that was broken off, the kernel says what was written; of one that was refused as
    // a whole it may say nothing.
    if result.is_ok() || written < count { usize::try_from(written).unwrap_or(0) } else { 0 }
}
