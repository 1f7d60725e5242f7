//! The buckets of sources and of compact keys, in either store.

pub(crate) mod batch;
pub(crate) mod lines;
pub(crate) mod mapped;
pub(crate) mod source_store;
pub(crate) mod source_table;

use aya::maps::{HashMap, Map, MapData};
use limiter_common::bucket_key::BucketKey;
use limiter_common::wire::{Bucket, EntryKind, map};

use super::maps::found::found;
use super::maps::pod::Wire;
use super::{DatapathError, PinDir};
use batch::{Slice, SourceMaps, Sweep};
use lines::LineMaps;
use source_store::SourceStore;
use source_table::SourceTable;

/// Handles on the maps of the buckets of sources.
pub(super) enum Sources {
    Hashed(Box<Hashed>),
    Lines(LineMaps),
}

pub(super) struct Hashed {
    v4: HashMap<MapData, [u8; 4], Wire<Bucket>>,
    v6: HashMap<MapData, [u8; 8], Wire<Bucket>>,
    compact: HashMap<MapData, [u8; 8], Wire<Bucket>>,
    batches: SourceMaps,
}

impl Sources {
    pub(super) fn open(pins: &PinDir, source_store: &SourceStore) -> Result<Self, DatapathError> {
        if source_store.table == SourceTable::Lines {
            return Ok(Self::Lines(LineMaps::open(pins, source_store)?));
        }
        let open = |name| {
            let failed = |source| DatapathError::Map { map: name, source };
            let data = MapData::from_pin(pins.map(name)).map_err(failed)?;
            Map::from_map_data(data).map_err(failed)
        };
        Ok(Self::Hashed(Box::new(Hashed {
            v4: open(map::SOURCES_V4)?.try_into().map_err(DatapathError::map(map::SOURCES_V4))?,
            v6: open(map::SOURCES_V6)?.try_into().map_err(DatapathError::map(map::SOURCES_V6))?,
            compact: open(map::NARROW)?.try_into().map_err(DatapathError::map(map::NARROW))?,
            batches: SourceMaps::open(pins)?,
        })))
    }

    pub(super) fn bucket(&self, bucket_key: &BucketKey) -> Result<Option<Bucket>, DatapathError> {
        let maps = match self {
            Self::Lines(lines) => return lines.bucket(bucket_key),
            Self::Hashed(maps) => maps,
        };
        let Hashed { v4, v6, compact, .. } = &**maps;
        let word = bucket_key.word().to_ne_bytes();
        let [a, b, c, d, ..] = word;
        let bucket = match bucket_key.kind() {
            EntryKind::V4 => found(map::SOURCES_V4, v4.get(&[a, b, c, d], 0))?,
            EntryKind::V6 => found(map::SOURCES_V6, v6.get(&word, 0))?,
            EntryKind::Compact | EntryKind::Keyed => found(map::NARROW, compact.get(&word, 0))?,
        };
        Ok(bucket.map(|bucket| bucket.0))
    }

    /// Continues a sweep by about `most` entries of one family. Entries about to be removed are
    /// left out, so the result may be empty before the end.
    pub(super) fn read(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(BucketKey, Bucket)>, DatapathError> {
        let Some(place) = sweep.place() else {
            return Ok(Vec::new());
        };
        let (read, next) = self.read_kind(place, most)?;
        sweep.go_on(next);
        Ok(read)
    }

    /// Reads about `most` compact keys. Returns them and where to continue.
    pub(super) fn compact(
        &self,
        from: Option<u32>,
        most: usize,
    ) -> Result<Slice<BucketKey, Bucket>, DatapathError> {
        self.read_kind((EntryKind::Compact, from), most)
    }

    fn read_kind(
        &self,
        place: (EntryKind, Option<u32>),
        most: usize,
    ) -> Result<Slice<BucketKey, Bucket>, DatapathError> {
        match self {
            Self::Hashed(maps) => maps.batches.read(place, most),
            Self::Lines(lines) => lines.read(place, most),
        }
    }
}
