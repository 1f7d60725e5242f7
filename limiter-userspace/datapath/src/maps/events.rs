//! Single drops that the program reports: the ring and its budget.

use std::num::NonZero;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{MapData, PerCpuArray, RingBuf};
use limiter_common::time::Ticks;
use limiter_common::wire::{EVENT_BYTES, Event, EventBudget, map};
use limiter_decision::event::EventRate;

use super::MapSource;
use super::pod::Wire;
use crate::DatapathError;

const SECOND: u64 = 1_000_000_000;

pub(crate) struct EventMaps {
    ring: RingBuf<MapData>,
    budget: PerCpuArray<MapData, Wire<EventBudget>>,
}

macro_rules! take {
    ($from:expr, $name:expr) => {
        $from($name)?.try_into().map_err(DatapathError::map($name))?
    };
}

impl EventMaps {
    /// Takes the maps by name. Discards events left in an adopted ring, because they are from an
    /// earlier daemon.
    pub(crate) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        let mut maps =
            Self { ring: take!(source, map::EVENTS), budget: take!(source, map::EVENT_BUDGET) };
        // Bounded by the ring's capacity: while packets are dropped, events keep coming.
        for _ in 0..EVENT_BYTES as usize / size_of::<Event>() {
            if maps.ring.next().is_none() {
                break;
            }
        }
        Ok(maps)
    }

    /// Takes the oldest event.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let item = self.ring.next()?;
        // An event of another length would come from another program: the ABI number rules that
        // out.
        bytemuck::try_pod_read_unaligned(&item).ok()
    }

    /// A descriptor that becomes readable when there is an event.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, DatapathError> {
        let failed = |source| DatapathError::Descriptor { map: map::EVENTS, source };
        self.ring.as_fd().try_clone_to_owned().map_err(failed)
    }

    /// Counts of all drops since the maps were made, summed over all CPUs.
    pub(crate) fn counts(&self) -> Result<EventBudget, DatapathError> {
        let failed = DatapathError::map(map::EVENT_BUDGET);
        let values = self.budget.get(&0, 0).map_err(failed)?;
        let mut sum = EventBudget::default();
        values.iter().for_each(|value| sum.merge(value.0));
        Ok(sum)
    }
}

/// The words of a capture's filter for so many packets per second and at once on each CPU.
pub fn capture_rate(per_second: NonZero<u32>, burst: NonZero<u32>) -> EventRate {
    rate(Some(per_second), burst)
}

/// The words of `CONTROL` for so many events per second and at once on each CPU.
pub(crate) fn rate(per_second: Option<NonZero<u32>>, burst: NonZero<u32>) -> EventRate {
    per_second.map_or_else(EventRate::default, |per_second| {
        let nanos = SECOND.div_ceil(u64::from(per_second.get()));
        let cost = Ticks::from_nanos(nanos).get();
        EventRate { cost, credit: cost.saturating_mul(u64::from(burst.get() - 1)) }
    })
}
