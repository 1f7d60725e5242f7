//! Reads of single entries: no such entry is `None`, and no error.

use std::io::ErrorKind;

use aya::maps::lpm_trie::Key;
use aya::maps::{LpmTrie, MapData, MapError};

use super::DatapathError;

/// Result of a read: `None` without an entry.
pub(super) type Read<T> = limiter_model::Read<T, DatapathError>;

/// No such entry is an answer.
pub(super) fn found<T>(map: &'static str, read: Result<T, MapError>) -> Read<T> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound | MapError::OutOfBounds { .. }) => Ok(None),
        Err(source) => Err(DatapathError::Map { map, source }),
    }
}

/// Value that a trie has for a whole key.
pub(super) fn longest<K: aya::Pod, V: aya::Pod>(
    map: &'static str,
    trie: &LpmTrie<MapData, K, V>,
    bits: u32,
    key: K,
) -> Read<V> {
    found(map, trie.get(&Key::new(bits, key), 0))
}

/// Whether something was removed: no such entry is an answer.
pub(super) fn removed(
    map: &'static str,
    removal: Result<(), MapError>,
) -> Result<bool, DatapathError> {
    match removal {
        Ok(()) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        // The system call as it is: removing says it in this way, looking up in the other.
        Err(MapError::SyscallError(call)) if call.io_error.kind() == ErrorKind::NotFound => {
            Ok(false)
        }
        Err(source) => Err(DatapathError::Map { map, source }),
    }
}

/// Whether an entry was made that was not to replace any: one that is there is an answer.
pub(super) fn made(
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
