//! Packets that the program has judged so far, read from its pinned map while the daemon does
//! something else.

use std::path::Path;

use anyhow::{Context as _, Result};
use aya::maps::{Map, MapData, PerCpuArray};
use limiter_common::verdict::Reason;
use limiter_common::wire::map;

pub(super) struct Judged(PerCpuArray<MapData, [u64; 2]>);

impl Judged {
    /// Opens it; `None` while there is no such map.
    pub(super) fn open(pins: &Path) -> Option<Self> {
        let data = MapData::from_pin(pins.join("maps").join(map::REASONS)).ok()?;
        PerCpuArray::try_from(Map::PerCpuArray(data)).ok().map(Self)
    }

    pub(super) fn packets(&self, reason: Reason) -> Result<u64> {
        let values = self.0.get(&reason.index(), 0).context("cannot read REASONS")?;
        Ok(values.iter().map(|[packets, _]| packets).sum())
    }

    pub(super) fn all(&self) -> Result<u64> {
        Reason::ALL.into_iter().map(|reason| self.packets(reason)).sum()
    }
}
