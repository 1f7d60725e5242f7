//! The buckets of sources, in either source store.

use aya::maps::{HashMap, Map, MapData};
use limiter_common::source::Source;
use limiter_common::wire::{Bucket, map};

use super::batch::{SourceMaps, Sweep};
use super::lines::LineMaps;
use super::pod::Wire;
use super::reading::found;
use super::source_store::{SourceStore, SourceTable};
use super::{DatapathError, PinDir};

/// Handles on the maps of the buckets of sources.
pub(super) enum Sources {
    /// Hash maps, by family.
    Hashed {
        v4: HashMap<MapData, [u8; 4], Wire<Bucket>>,
        v6: HashMap<MapData, [u8; 8], Wire<Bucket>>,
        batches: SourceMaps,
    },
    /// Lines of arrays.
    Lines(LineMaps),
}

impl Sources {
    /// Opens the pinned maps.
    pub(super) fn open(pins: &PinDir, source_store: &SourceStore) -> Result<Self, DatapathError> {
        if source_store.table == SourceTable::Lines {
            return Ok(Self::Lines(LineMaps::open(pins, source_store)?));
        }
        let open = |name| {
            let failed = |source| DatapathError::Map { map: name, source };
            let data = MapData::from_pin(pins.map(name)).map_err(failed)?;
            Map::from_map_data(data).map_err(failed)
        };
        Ok(Self::Hashed {
            v4: open(map::SOURCES_V4)?.try_into().map_err(DatapathError::map(map::SOURCES_V4))?,
            v6: open(map::SOURCES_V6)?.try_into().map_err(DatapathError::map(map::SOURCES_V6))?,
            batches: SourceMaps::open(pins)?,
        })
    }

    /// The bucket of a source.
    pub(super) fn bucket(&self, source: &Source) -> Result<Option<Bucket>, DatapathError> {
        let bucket = match (self, source) {
            (Self::Lines(lines), _) => return lines.bucket(source),
            (Self::Hashed { v4, .. }, Source::V4(address)) => {
                found(map::SOURCES_V4, v4.get(address, 0))?
            }
            (Self::Hashed { v6, .. }, Source::V6(prefix)) => {
                found(map::SOURCES_V6, v6.get(prefix, 0))?
            }
        };
        Ok(bucket.map(|bucket| bucket.0))
    }

    /// Reads on: about `most` entries, of one family. Those that are leaving are left out, so there
    /// may be none although the sweep goes on.
    pub(super) fn read(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
        match self {
            Self::Hashed { batches, .. } => batches.read(sweep, most),
            Self::Lines(lines) => lines.read(sweep, most),
        }
    }
}
