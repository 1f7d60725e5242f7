//! The store for the buckets of sources: chosen when the maps are made, and kept with them.

use aya::EbpfLoader;
use aya::maps::{Array, Map, MapData};
use limiter_common::wire::{EntryKind, EntryTable, LINE_WAYS, constant, lines_for, map};

use super::source_table::SourceTable;
use crate::maps::capacity;
use crate::maps::pod::Wire;
use crate::options::Options;
use crate::random::random;
use crate::{DatapathError, PinDir};

/// Map elements per line: its entries and its head.
const PLACES: u32 = 8;

const _: () = assert!(PLACES as usize == LINE_WAYS + 1);

/// The store in force, with its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceStore {
    pub(crate) table: SourceTable,
    /// Lines per family; 0 for hash maps.
    pub(crate) lines: u32,
    /// Lines of compact keys; 0 for hash maps.
    pub(crate) compact_lines: u32,
    /// [`EntryTable::seed`] of IPv4 sources, by which all owners choose their lines.
    pub(crate) seed: u64,
    /// Sources per family that fit.
    pub(crate) sources: u32,
    /// Compact keys that fit.
    pub(crate) keys: u32,
}

impl SourceStore {
    /// Settings for new maps.
    pub(crate) fn new(options: &Options) -> Result<Self, DatapathError> {
        let (sources, keys) = (options.max_sources, options.max_keys);
        let (table, seed) = (options.source_table, random()?);
        let (lines, compact_lines) = match table {
            SourceTable::Hash => (0, 0),
            SourceTable::Lines => (lines_for(sources), lines_for(keys)),
        };
        Ok(Self { table, lines, compact_lines, seed, sources, keys })
    }

    /// Settings read back from the pinned maps.
    pub(crate) fn adopted(pins: &PinDir) -> Result<Self, DatapathError> {
        let failed = |source| DatapathError::Map { map: map::SPACES, source };
        let data = MapData::from_pin(pins.map(map::SPACES)).map_err(failed)?;
        let entry_tables = Map::from_map_data(data).map_err(failed)?;
        let entry_tables: Array<_, Wire<EntryTable>> = entry_tables.try_into().map_err(failed)?;
        let of = |kind: EntryKind| Ok(entry_tables.get(&kind.index(), 0).map_err(failed)?.0);
        let (v4, compact): (EntryTable, EntryTable) = (of(EntryKind::V4)?, of(EntryKind::Compact)?);
        let seed = v4.seed;
        let room = |entry_table: EntryTable| u32::try_from(entry_table.entries).unwrap_or(u32::MAX);
        let (sources, keys) = (room(v4), room(compact));
        // Maps of the other store are not pinned.
        if pins.map(map::LINES).exists() {
            let all = capacity(pins, map::LINES)? / PLACES;
            let compact_lines = lines_for(keys).min(all);
            let lines = (all - compact_lines) / 2;
            return Ok(Self {
                table: SourceTable::Lines,
                lines,
                compact_lines,
                seed,
                sources,
                keys,
            });
        }
        let table = SourceTable::Hash;
        Ok(Self { table, lines: 0, compact_lines: 0, seed, sources, keys })
    }

    /// Names of the pinned maps. Maps of the other store are not pinned, and have the minimum size.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &'static str> + use<> {
        let own: &[&str] = match self.table {
            SourceTable::Hash => &map::HASHED,
            SourceTable::Lines => &map::LINED,
        };
        map::ALL.iter().chain(own).copied()
    }

    /// Sets the program's sizes and constants before it is loaded. The kernel then removes the code
    /// for the store that is not used.
    pub(crate) fn report<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        let is_hashed = self.table == SourceTable::Hash;
        for name in map::HASHED {
            let is_compact = matches!(name, map::NARROW | map::FRAMES_NARROW);
            let entries = if is_compact { self.keys } else { self.sources };
            loader.map_max_entries(name, if is_hashed { entries } else { 1 });
        }
        loader
            .override_global(constant::SOURCE_LINES, &self.lines, true)
            .override_global(constant::NARROW_LINES, &self.compact_lines, true)
            .override_global(constant::LINE_SEED, &self.seed, true)
            .map_max_entries(map::LINES, self.all_lines().saturating_mul(PLACES).max(1));
    }

    const fn all_lines(&self) -> u32 {
        self.lines.saturating_mul(2).saturating_add(self.compact_lines)
    }
}
