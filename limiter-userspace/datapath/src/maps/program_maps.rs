//! Maps that only the program changes.

use aya::maps::{Array, HashMap, MapData};
use limiter_common::wire::{FlowKey, map};

use super::MapSource;
use super::pod::Wire;
use crate::DatapathError;

/// Maps that only the program changes. User space reads them only to answer questions.
pub(crate) struct ProgramMaps {
    pub(crate) aggregates: Array<MapData, u64>,
    pub(crate) fingerprints: Array<MapData, u64>,
    pub(crate) flows: HashMap<MapData, Wire<FlowKey>, u64>,
}

impl ProgramMaps {
    pub(crate) fn take(take: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        let failed = DatapathError::map(map::AGGREGATES);
        let aggregates = take(map::AGGREGATES)?.try_into().map_err(failed)?;
        let failed = DatapathError::map(map::FINGERPRINTS);
        let fingerprints = take(map::FINGERPRINTS)?.try_into().map_err(failed)?;
        let flows = take(map::FLOWS)?.try_into().map_err(DatapathError::map(map::FLOWS))?;
        Ok(Self { aggregates, fingerprints, flows })
    }
}
