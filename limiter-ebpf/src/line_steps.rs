//! The maps in a step of a decision that has less stack left than the others.

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::Cell;
use limiter_common::change::Changes;
use limiter_common::engine::{Change, Insert, Maps};
use limiter_common::gcra::Charge;
use limiter_common::room::{AdmissionCells, SpaceWords, Spaces};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Lane, Limit, Listed, Moment};

use crate::lines::{self, Meter};
use crate::maps::{self, KernelMaps};
use crate::room;
use crate::sources::{self, MOVED};

/// [`KernelMaps`] in [`Maps::charge_again`]: what changed stays in the scratch.
pub(crate) struct Step;

impl Spaces for Step {
    #[inline(always)]
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        KernelMaps.space(lane)
    }

    #[inline(always)]
    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        room::admission(lane)
    }
}

impl Changes for Step {
    #[inline(always)]
    fn moment(&self, generation: u32) -> Moment {
        KernelMaps.moment(generation)
    }
}

impl Maps for Step {
    type Meter = Meter;

    #[inline(always)]
    fn brake(&self) -> bool {
        KernelMaps.brake()
    }

    #[inline(always)]
    fn listed(&self, source: &Source, now: Ticks) -> Option<Listed> {
        KernelMaps.listed(source, now)
    }

    #[inline(always)]
    fn generation(&self) -> Generation {
        KernelMaps.generation()
    }

    #[inline(always)]
    fn meter(&self, source: &Source) -> Option<Meter> {
        lines::meter(source)
    }

    #[inline(always)]
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        lines::insert(source, bucket, now)
    }

    #[inline(always)]
    fn aggregate(&self, index: u32) -> Option<impl Cell> {
        room::aggregate(index)
    }

    #[inline(always)]
    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot> {
        KernelMaps.resolve(generation, source)
    }

    #[inline(always)]
    fn limit(&self, slot: Slot) -> Option<&Limit> {
        maps::limit(slot)
    }

    #[inline(always)]
    fn re_resolve(&self, meter: &Meter, old: Resolved, generation: Generation, slot: Slot) {
        lines::re_resolve(meter, old, generation, slot);
    }

    #[inline(always)]
    fn rescale(&self, meter: &Meter, resolved: Resolved, word: Word, now: Ticks) {
        lines::rescale(meter, resolved, word, now);
    }

    #[inline(always)]
    fn charge_contended(
        &self,
        meter: &Meter,
        _scale: bool,
        charge: &Charge,
        _stored: &mut Change,
    ) -> Option<Reason> {
        let reason = lines::contended(meter, charge);
        if reason == MOVED { None } else { Some(sources::reason(reason)) }
    }
}
