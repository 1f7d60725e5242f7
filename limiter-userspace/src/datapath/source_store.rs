//! The store of the buckets of sources: chosen when the maps are made, and kept with them.

use std::env::consts::ARCH;

use aya::EbpfLoader;
use aya::maps::{Array, Map, MapData};
use limiter_common::wire::{EntryKind, EntryTable, LINE_WAYS, constant, lines_for, map};

use super::entries::random;
use super::load::capacity;
use super::pod::Wire;
use super::{DatapathError, Options, PinDir};

/// Elements of a map of lines for each of them: its entries, and its head.
const PLACES: u32 = 8;

const _: () = assert!(PLACES as usize == LINE_WAYS + 1);

/// Store of the buckets of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceTable {
    /// Hash maps of the kernel.
    #[default]
    Hash,
    /// Lines of an array: [`limiter_common::line`].
    Lines,
}

impl SourceTable {
    /// Store of maps to be made where nobody names one.
    pub fn auto() -> Self {
        Self::auto_on(ARCH)
    }

    /// Store for a processor: lines where a kernel for it was seen to take and run their program.
    fn auto_on(arch: &str) -> Self {
        if matches!(arch, "x86_64" | "aarch64") { Self::Lines } else { Self::Hash }
    }

    /// Name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Lines => "lines",
        }
    }

    /// Description for a message.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Hash => "hash maps",
            Self::Lines => "lines",
        }
    }
}

/// Object file of the program for each store.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// Object with hash maps.
    pub hash: &'a [u8],
    /// Object with lines.
    pub lines: &'a [u8],
}

impl<'a> Objects<'a> {
    /// Object to load for a store.
    pub(super) const fn of(&self, table: SourceTable) -> &'a [u8] {
        match table {
            SourceTable::Hash => self.hash,
            SourceTable::Lines => self.lines,
        }
    }
}

/// The store that is in force, with its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceStore {
    pub(super) table: SourceTable,
    /// Lines a family; 0 for hash maps.
    pub(super) lines: u32,
    /// [`EntryTable::seed`] of IPv4 and of IPv6 sources.
    pub(super) seeds: [u64; 2],
    /// Sources of a family that there is room for.
    pub(super) sources: u32,
}

impl SourceStore {
    /// Settings for maps to be made.
    pub(super) fn new(options: &Options) -> Result<Self, DatapathError> {
        let sources = options.max_sources;
        let (table, lines) = (options.source_table, lines_for(sources));
        Ok(Self { table, lines, seeds: [random()?, random()?], sources })
    }

    /// Settings read back from the pinned maps.
    pub(super) fn adopted(pins: &PinDir) -> Result<Self, DatapathError> {
        let failed = |source| DatapathError::Map { map: map::SPACES, source };
        let data = MapData::from_pin(pins.map(map::SPACES)).map_err(failed)?;
        let entry_tables = Map::from_map_data(data).map_err(failed)?;
        let entry_tables: Array<_, Wire<EntryTable>> = entry_tables.try_into().map_err(failed)?;
        let [v4, v6] =
            [EntryKind::V4, EntryKind::V6].map(|kind| entry_tables.get(&kind.index(), 0));
        let (v4, v6) = (v4.map_err(failed)?.0, v6.map_err(failed)?.0);
        let seeds = [v4.seed, v6.seed];
        // A program has the maps of its own store alone.
        if pins.map(map::LINES_V4).exists() {
            let lines = capacity(pins, map::LINES_V4)? / PLACES;
            let sources = u32::try_from(v4.entries).unwrap_or(u32::MAX);
            return Ok(Self { table: SourceTable::Lines, lines, seeds, sources });
        }
        let sources = capacity(pins, map::SOURCES_V4)?;
        Ok(Self { table: SourceTable::Hash, lines: 0, seeds, sources })
    }

    /// Names of the maps of the program.
    pub(super) fn maps(&self) -> impl Iterator<Item = &'static str> + use<> {
        let own: &[&str] = match self.table {
            SourceTable::Hash => &map::HASHED,
            SourceTable::Lines => &map::LINED,
        };
        map::ALL.iter().chain(own).copied()
    }

    /// Sets sizes and constants in a program before it is loaded.
    pub(super) fn tell<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        match self.table {
            SourceTable::Hash => {
                for name in map::HASHED {
                    loader.map_max_entries(name, self.sources);
                }
            }
            SourceTable::Lines => {
                let [v4, v6] = &self.seeds;
                loader
                    .override_global(constant::SOURCE_LINES, &self.lines, true)
                    .override_global(constant::SOURCE_SEED_V4, v4, true)
                    .override_global(constant::SOURCE_SEED_V6, v6, true);
                for name in map::LINED {
                    loader.map_max_entries(name, self.lines.saturating_mul(PLACES));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_lines_where_their_program_was_run() {
        let chosen = ["x86_64", "aarch64", "riscv64", "s390x"].map(SourceTable::auto_on);
        let (lines, hash) = (SourceTable::Lines, SourceTable::Hash);
        assert_eq!(chosen, [lines, lines, hash, hash]);
    }
}
