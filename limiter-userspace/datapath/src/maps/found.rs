//! Results of reading, removing and making single entries, where a missing or an existing entry is
//! not an error.

use std::io::ErrorKind;

use aya::maps::lpm_trie::Key;
use aya::maps::{LpmTrie, MapData, MapError};

use crate::DatapathError;

/// Result of a read: `None` without an entry.
pub(crate) type Read<T> = limiter_model::Read<T, DatapathError>;

/// A missing entry is `None`, not an error.
pub(crate) fn found<T>(map: &'static str, read: Result<T, MapError>) -> Read<T> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound | MapError::OutOfBounds { .. }) => Ok(None),
        Err(source) => Err(DatapathError::Map { map, source }),
    }
}

/// The value of a trie for a full-length key.
pub(crate) fn longest<K: aya::Pod, V: aya::Pod>(
    map: &'static str,
    trie: &LpmTrie<MapData, K, V>,
    bits: u32,
    key: K,
) -> Read<V> {
    found(map, trie.get(&Key::new(bits, key), 0))
}

/// Whether an entry was removed; a missing entry is not an error.
pub(crate) fn removed(
    map: &'static str,
    removal: Result<(), MapError>,
) -> Result<bool, DatapathError> {
    match removal {
        Ok(()) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        // aya reports a missing entry differently for removals and look-ups.
        Err(MapError::SyscallError(call)) if call.io_error.kind() == ErrorKind::NotFound => {
            Ok(false)
        }
        Err(source) => Err(DatapathError::Map { map, source }),
    }
}

/// Whether an entry was made; an existing entry is not an error.
pub(crate) fn made(
    map: &'static str,
    insertion: Result<(), MapError>,
) -> Result<bool, DatapathError> {
    match insertion {
        Ok(()) => Ok(true),
        Err(MapError::SyscallError(call)) if call.io_error.kind() == ErrorKind::AlreadyExists => {
            Ok(false)
        }
        Err(source) => Err(DatapathError::Map { map, source }),
    }
}
