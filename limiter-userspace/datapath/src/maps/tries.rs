//! The inner tries of the maps of rules. Each has its own pin beside its place in the outer map,
//! because only `CAP_SYS_ADMIN` may open the entries of an outer map: a daemon with fewer
//! privileges could not read the rules that it takes over.

use std::fs;
use std::io;

use aya::Pod;
use aya::maps::{ArrayOfMaps, LpmTrie, Map, MapData, MapError};

use crate::{DatapathError, PinDir};

/// The kernel rejects a trie without this flag.
const BPF_F_NO_PREALLOC: u32 = 1;

/// Makes a trie with room for so many entries.
pub(crate) fn create<K: Pod, V: Pod>(
    map: &'static str,
    entries: usize,
) -> Result<LpmTrie<MapData, K, V>, DatapathError> {
    let size = u32::try_from(entries.max(1)).unwrap_or(u32::MAX);
    LpmTrie::create(size, BPF_F_NO_PREALLOC).map_err(DatapathError::map(map))
}

/// Replaces the trie of a generation that is not in force. If this is interrupted, the outer map
/// and the pin differ, and the next rule set replaces both.
pub(crate) fn put<K: Pod, V: Pod>(
    outer: &mut ArrayOfMaps<MapData, LpmTrie<MapData, K, V>>,
    trie: LpmTrie<MapData, K, V>,
    map: &'static str,
    generation: u64,
    pins: &PinDir,
) -> Result<(), DatapathError> {
    outer.set(buffer(generation), &trie, 0).map_err(DatapathError::map(map))?;
    let new = pins.map(&format!("{map}_NEW"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DatapathError::path("removing", new)(error));
        }
        _ => {}
    }
    trie.pin(&new).map_err(|error| DatapathError::pin(&new, error))?;
    let pin = pin(map, generation, pins);
    PinDir::restrict(&new)
        .and_then(|()| fs::rename(&new, &pin).map_err(DatapathError::path("pinning", pin)))
        .inspect_err(|_| PinDir::drop_pin(&new))
}

/// The trie of a generation; `None` before the first rule set.
pub(crate) fn get<K: Pod, V: Pod>(
    outer: &ArrayOfMaps<MapData, LpmTrie<MapData, K, V>>,
    map: &'static str,
    generation: u64,
    pins: &PinDir,
) -> Result<Option<LpmTrie<MapData, K, V>>, DatapathError> {
    let failed = || DatapathError::map(map);
    let pin = pin(map, generation, pins);
    if pin.exists() {
        let data = MapData::from_pin(pin).map_err(failed())?;
        let trie = Map::from_map_data(data).map_err(failed())?;
        return trie.try_into().map(Some).map_err(failed());
    }
    // There are no rules yet, or the version that put them in force made no such pins.
    match outer.get(&buffer(generation), 0) {
        Ok(trie) => Ok(Some(trie)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(source) => Err(failed()(source)),
    }
}

fn pin(map: &str, generation: u64, pins: &PinDir) -> std::path::PathBuf {
    pins.map(&format!("{map}_{}", buffer(generation)))
}

/// Index of a generation in the outer map: one of two.
fn buffer(generation: u64) -> u32 {
    u32::from(generation % 2 == 1)
}
