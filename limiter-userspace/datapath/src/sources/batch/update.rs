//! Writes many entries in one system call. A rule set of 100,000 rules needs as many entries in
//! several maps.

use aya::Pod;
use aya::maps::{IterableMap, MapData};

use super::{Elements, call};

/// Entries per system call. A process that is killed must not wait for a million of them.
const MOST: usize = 1 << 16;

/// Writes entries, and returns how many were written, counted from the first. Each key has
/// `per_key` values, as in a per-CPU map.
///
/// The caller writes the remaining entries one by one. A kernel or a kind of map without batches
/// leaves all of them; the error for a rejected entry then comes from its own write.
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
    // The kernel reports how much of an interrupted batch was written, but not always for a batch
    // that it rejects as a whole.
    if result.is_ok() || written < count { usize::try_from(written).unwrap_or(0) } else { 0 }
}
