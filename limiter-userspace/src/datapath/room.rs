//! Typed handles on what makes room for entries.

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray};
use limiter_common::wire::{Admission, Lane, Space, map};

use super::DatapathError;
use super::home::Home;
use super::pod::Wire;

/// The settings of the tables of entries, and what became of new ones.
pub(super) struct RoomMaps {
    spaces: Array<MapData, Wire<Space>>,
    admission: PerCpuArray<MapData, Wire<Admission>>,
}

macro_rules! take {
    ($from:expr, $name:expr) => {
        $from($name)?.try_into().map_err(DatapathError::map($name))?
    };
}

impl RoomMaps {
    /// Takes them out of a loaded object. `home` and `keys` are what the maps are made for.
    pub(super) fn take(ebpf: &mut Ebpf, home: &Home, keys: u32) -> Result<Self, DatapathError> {
        let mut source = |name: &'static str| -> Result<Map, DatapathError> {
            let missing = DatapathError::Map { map: name, source: MapError::KeyNotFound };
            ebpf.take_map(name).ok_or(missing)
        };
        let mut maps =
            Self { spaces: take!(source, map::SPACES), admission: take!(source, map::ADMISSION) };
        let [v4, v6] = home.seeds;
        let keyed = random()?;
        for (lane, entries, seed) in
            [(Lane::V4, home.sources, v4), (Lane::V6, home.sources, v6), (Lane::Keyed, keys, keyed)]
        {
            // Adopted maps have settings already, and what their program has written beside them.
            if maps.space(lane)?.entries == 0 {
                maps.set_space(lane, Space::new(entries, seed))?;
            }
        }
        Ok(maps)
    }

    pub(super) fn space(&self, lane: Lane) -> Result<Space, DatapathError> {
        Ok(self.spaces.get(&lane.index(), 0).map_err(DatapathError::map(map::SPACES))?.0)
    }

    pub(super) fn set_space(&mut self, lane: Lane, space: Space) -> Result<(), DatapathError> {
        self.spaces.set(lane.index(), Wire(space), 0).map_err(DatapathError::map(map::SPACES))
    }

    /// Each CPU's part of a table.
    pub(super) fn admissions(&self, lane: Lane) -> Result<Vec<Admission>, DatapathError> {
        let values = self.admission.get(&lane.index(), 0);
        let values = values.map_err(DatapathError::map(map::ADMISSION))?;
        Ok(values.iter().map(|value| value.0).collect())
    }

    /// What became of new entries, over all CPUs.
    pub(super) fn admission(&self, lane: Lane) -> Result<Admission, DatapathError> {
        let values = self.admission.get(&lane.index(), 0);
        let mut sum = Admission::default();
        let values = values.map_err(DatapathError::map(map::ADMISSION))?;
        values.iter().for_each(|value| sum.merge(value.0));
        Ok(sum)
    }
}

/// A number that nobody outside knows.
pub(super) fn random() -> Result<u64, DatapathError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|source| DatapathError::Random(source.into()))?;
    Ok(u64::from_ne_bytes(bytes))
}
