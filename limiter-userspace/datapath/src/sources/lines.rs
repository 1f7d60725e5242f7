//! Reads the line table from user space: mapped, one part at a time.

use std::io;

use aya::maps::{MapData, MapError};
use aya::sys::SyscallError;
use limiter_common::bucket_key::BucketKey;
use limiter_common::wire::{Bucket, EntryKind, LINE_WAYS, map};
use limiter_decision::line::{self, HostLine, Place};

use super::batch::Slice;
use super::mapped::Window;
use super::source_store::SourceStore;
use crate::{DatapathError, PinDir};

/// The lines of both families and of compact keys.
pub(crate) struct LineMaps {
    data: MapData,
    sources: u32,
    compact: u32,
    seed: u64,
}

impl LineMaps {
    pub(crate) fn open(pins: &PinDir, source_store: &SourceStore) -> Result<Self, DatapathError> {
        let SourceStore { lines: sources, compact_lines: compact, seed, .. } = *source_store;
        let data =
            MapData::from_pin(pins.map(map::LINES)).map_err(DatapathError::map(map::LINES))?;
        Ok(Self { data, sources, compact, seed })
    }

    const fn of(&self, kind: EntryKind) -> line::Lines {
        let count = match kind {
            EntryKind::V4 | EntryKind::V6 => self.sources,
            EntryKind::Compact | EntryKind::Keyed => self.compact,
        };
        line::Lines { count, seed: self.seed }
    }

    fn window(&self, kind: EntryKind, first: u32, count: u32) -> Result<Window, DatapathError> {
        let failed = |io_error: io::Error| DatapathError::Map {
            map: map::LINES,
            source: MapError::SyscallError(SyscallError { call: "mmap", io_error }),
        };
        Window::open(&self.data, self.sources * kind.index() + first, count).map_err(failed)
    }

    /// The bucket of a key. Looks at the key's lines one after the other.
    pub(crate) fn bucket(&self, bucket_key: &BucketKey) -> Result<Option<Bucket>, DatapathError> {
        let Some(name) = bucket_key.name() else {
            return Ok(None);
        };
        let kind = bucket_key.kind();
        for index in Place::of(name, self.of(kind)).all() {
            let window = self.window(kind, index, 1)?;
            let mut entries = window.lines().iter().flat_map(HostLine::live_entries);
            if let Some(found) = entries.find(|entry| entry.name == name) {
                return Ok(Some(found.bucket));
            }
        }
        Ok(None)
    }

    /// Reads about `most` entries of a kind, at most. Returns them and where to continue.
    pub(crate) fn read(
        &self,
        (kind, from): (EntryKind, Option<u32>),
        most: usize,
    ) -> Result<Slice<BucketKey, Bucket>, DatapathError> {
        let all = self.of(kind).count;
        let first = from.unwrap_or(0).min(all);
        let most = u32::try_from(most / LINE_WAYS).unwrap_or(u32::MAX).max(1);
        let count = most.min(all - first);
        let mut read = Vec::new();
        if count != 0 {
            let window = self.window(kind, first, count)?;
            let entries = window.lines().iter().flat_map(HostLine::live_entries);
            read.extend(entries.map(|entry| (BucketKey::named(kind, entry.name), entry.bucket)));
        }
        let next = first + count;
        Ok((read, (next < all).then_some(next)))
    }
}
