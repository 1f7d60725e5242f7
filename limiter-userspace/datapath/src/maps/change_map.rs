//! The moments when rule sets came into force, in their map.

use aya::maps::{Array, MapData};
use limiter_common::wire::{Moment, map};

use super::MapSource;
use crate::DatapathError;

pub(crate) struct ChangeMap(Array<MapData, u64>);

impl ChangeMap {
    pub(crate) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        Ok(Self(source(map::CHANGES)?.try_into().map_err(DatapathError::map(map::CHANGES))?))
    }

    pub(crate) fn get(&self, generation: u32) -> Result<Moment, DatapathError> {
        let word = self.0.get(&Moment::index(generation), 0);
        Ok(Moment::from_raw(word.map_err(DatapathError::map(map::CHANGES))?))
    }

    pub(crate) fn set(&mut self, generation: u64, moment: Moment) -> Result<(), DatapathError> {
        let index = Moment::index(low_bits(generation));
        self.0.set(index, moment.raw(), 0).map_err(DatapathError::map(map::CHANGES))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only the low bits are compared")]
const fn low_bits(generation: u64) -> u32 {
    generation as u32
}
