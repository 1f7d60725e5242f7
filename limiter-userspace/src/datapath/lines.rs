//! The line table as the daemon reads it: mapped, a part at a time.

use std::io;

use aya::maps::{MapData, MapError};
use aya::sys::SyscallError;
use limiter_common::entries::source::{kind, name, named};
use limiter_common::line::{self, HostLine, Place};
use limiter_common::source::Source;
use limiter_common::wire::{Bucket, EntryKind, LINE_WAYS, map};

use super::mapped::Window;
use super::source_store::SourceStore;
use super::{DatapathError, PinDir, Sweep};

/// Lines of both families.
pub(super) struct LineMaps {
    v4: Lines,
    v6: Lines,
    count: u32,
}

/// Lines of one.
struct Lines {
    kind: EntryKind,
    name: &'static str,
    data: MapData,
    seed: u64,
}

impl Lines {
    fn window(&self, first: u32, count: u32) -> Result<Window, DatapathError> {
        let failed = |io_error: io::Error| DatapathError::Map {
            map: self.name,
            source: MapError::SyscallError(SyscallError { call: "mmap", io_error }),
        };
        Window::open(&self.data, first, count).map_err(failed)
    }
}

impl LineMaps {
    /// Opens the pinned maps.
    pub(super) fn open(pins: &PinDir, source_store: &SourceStore) -> Result<Self, DatapathError> {
        let [v4, v6] = source_store.seeds;
        let open = |kind, name, seed| {
            let data = MapData::from_pin(pins.map(name)).map_err(DatapathError::map(name))?;
            Ok::<_, DatapathError>(Lines { kind, name, data, seed })
        };
        Ok(Self {
            v4: open(EntryKind::V4, map::LINES_V4, v4)?,
            v6: open(EntryKind::V6, map::LINES_V6, v6)?,
            count: source_store.lines,
        })
    }

    fn of(&self, kind: EntryKind) -> &Lines {
        if matches!(kind, EntryKind::V4) { &self.v4 } else { &self.v6 }
    }

    /// The bucket of a source: its lines are looked at, one after the other.
    pub(super) fn bucket(&self, source: &Source) -> Result<Option<Bucket>, DatapathError> {
        let Some(name) = name(source) else {
            return Ok(None);
        };
        let lines = self.of(kind(source));
        let all = line::Lines { count: self.count, seed: lines.seed };
        for index in Place::of(name, all).all() {
            let window = lines.window(index, 1)?;
            let mut entries = window.lines().iter().flat_map(HostLine::live_entries);
            if let Some(found) = entries.find(|entry| entry.name == name) {
                return Ok(Some(found.bucket));
            }
        }
        Ok(None)
    }

    /// Reads on: at most about `most` entries, of one family.
    pub(super) fn read(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
        let Some((kind, from)) = sweep.place() else {
            return Ok(Vec::new());
        };
        let lines = self.of(kind);
        let first = from.unwrap_or(0).min(self.count);
        let most = u32::try_from(most / LINE_WAYS).unwrap_or(u32::MAX).max(1);
        let count = most.min(self.count - first);
        let mut read = Vec::new();
        if count != 0 {
            let window = lines.window(first, count)?;
            let entries = window.lines().iter().flat_map(HostLine::live_entries);
            read.extend(entries.map(|entry| (named(lines.kind, entry.name), entry.bucket)));
        }
        let next = first + count;
        sweep.go_on((next < self.count).then_some(next));
        Ok(read)
    }
}
