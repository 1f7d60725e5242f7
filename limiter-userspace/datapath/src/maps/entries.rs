//! Typed handles on the maps of entry-table settings and counts.

use aya::maps::{Array, MapData, PerCpuArray};
use limiter_common::wire::{Admission, EntryKind, EntryTable, map};

use super::MapSource;
use super::pod::Wire;
use crate::DatapathError;
use crate::random::random;
use crate::sources::source_store::SourceStore;

/// Settings of the entry tables, and counts of new entries.
pub(crate) struct EntryMaps {
    entry_tables: Array<MapData, Wire<EntryTable>>,
    admission: PerCpuArray<MapData, Wire<Admission>>,
}

macro_rules! take {
    ($from:expr, $name:expr) => {
        $from($name)?.try_into().map_err(DatapathError::map($name))?
    };
}

impl EntryMaps {
    pub(crate) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        Ok(Self {
            entry_tables: take!(source, map::SPACES),
            admission: take!(source, map::ADMISSION),
        })
    }

    /// Writes the settings of new maps. `source_store` and `keys` give the sizes that the maps are
    /// made for.
    pub(crate) fn begin(
        &mut self,
        source_store: &SourceStore,
        keys: u32,
    ) -> Result<(), DatapathError> {
        for (kind, entries, seed) in [
            (EntryKind::V4, source_store.sources, source_store.seed),
            (EntryKind::V6, source_store.sources, random()?),
            (EntryKind::Keyed, keys, random()?),
            (EntryKind::Compact, keys, random()?),
        ] {
            // Adopted maps already have settings, and counts that their program wrote beside them.
            if self.entry_table(kind)?.entries == 0 {
                self.set_entry_table(kind, EntryTable::new(entries, seed))?;
            }
        }
        Ok(())
    }

    pub(crate) fn entry_table(&self, kind: EntryKind) -> Result<EntryTable, DatapathError> {
        Ok(self.entry_tables.get(&kind.index(), 0).map_err(DatapathError::map(map::SPACES))?.0)
    }

    pub(crate) fn set_entry_table(
        &mut self,
        kind: EntryKind,
        entry_table: EntryTable,
    ) -> Result<(), DatapathError> {
        self.entry_tables
            .set(kind.index(), Wire(entry_table), 0)
            .map_err(DatapathError::map(map::SPACES))
    }

    /// Admission counts of new entries, per CPU.
    pub(crate) fn admissions(&self, kind: EntryKind) -> Result<Vec<Admission>, DatapathError> {
        let values = self.admission.get(&kind.index(), 0);
        let values = values.map_err(DatapathError::map(map::ADMISSION))?;
        Ok(values.iter().map(|value| value.0).collect())
    }
}
