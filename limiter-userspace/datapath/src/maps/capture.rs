//! Packets that the program reports whole: the filter, the ring and its budget.

use aya::maps::{Array, Map, MapData, PerCpuArray, RingBuf};
use limiter_common::wire::{CAPTURED_BYTES, CaptureBudget, CaptureFilter, CaptureRecord, map};

use super::MapSource;
use super::pod::Wire;
use crate::{DatapathError, PinDir};

/// Minimum size of a record in the ring, including the kernel's header.
const LEAST: usize = size_of::<CaptureRecord>() + 8;

/// A reported packet and its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// What the program determined about the packet.
    pub record: CaptureRecord,
    /// The bytes, as they came in.
    pub bytes: Vec<u8>,
}

pub(crate) struct CaptureMaps {
    filter: Array<MapData, Wire<CaptureFilter>>,
    /// Mapped at the first capture: from then on it counts as memory of the daemon.
    ring: Option<RingBuf<MapData>>,
    budget: PerCpuArray<MapData, Wire<CaptureBudget>>,
}

macro_rules! take {
    ($from:expr, $name:expr) => {
        $from($name)?.try_into().map_err(DatapathError::map($name))?
    };
}

impl CaptureMaps {
    pub(crate) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        Ok(Self {
            filter: take!(source, map::CAPTURE),
            ring: None,
            budget: take!(source, map::CAPTURE_BUDGET),
        })
    }

    /// Opens the pinned ring, and discards what an earlier capture left unread.
    pub(crate) fn open_ring(&mut self, pins: &PinDir) -> Result<(), DatapathError> {
        let failed = DatapathError::map(map::CAPTURED);
        let data = MapData::from_pin(pins.map(map::CAPTURED));
        let ring = data.and_then(|data| Map::RingBuf(data).try_into()).map_err(failed)?;
        let ring: &mut RingBuf<_> = self.ring.insert(ring);
        for _ in 0..CAPTURED_BYTES as usize / LEAST {
            if ring.next().is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Sets which packets are reported.
    pub(crate) fn set_filter(&mut self, filter: &CaptureFilter) -> Result<(), DatapathError> {
        self.filter.set(0, Wire(*filter), 0).map_err(DatapathError::map(map::CAPTURE))
    }

    /// Takes the oldest unread packet.
    pub(crate) fn next(&mut self) -> Option<CapturedPacket> {
        let item = self.ring.as_mut()?.next()?;
        let (record, bytes) = item.split_at_checked(size_of::<CaptureRecord>())?;
        let record: CaptureRecord = bytemuck::try_pod_read_unaligned(record).ok()?;
        // A record of another length would come from another program: the ABI number rules that
        // out.
        let bytes = bytes.get(..record.captured as usize)?.to_vec();
        Some(CapturedPacket { record, bytes })
    }

    /// Counts of all packets that matched a capture since the maps were made, over all CPUs.
    pub(crate) fn counts(&self) -> Result<CaptureBudget, DatapathError> {
        let failed = DatapathError::map(map::CAPTURE_BUDGET);
        let values = self.budget.get(&0, 0).map_err(failed)?;
        let mut sum = CaptureBudget::default();
        values.iter().for_each(|value| sum.merge(&value.0));
        Ok(sum)
    }
}
