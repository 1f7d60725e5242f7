//! Checks a packet against the limits of a record, without charging it.

use core::hint::black_box;

use limiter_common::bucket::Slot;
use limiter_common::wire::{Record, Role};

use super::limit::peek_limit;
use crate::call::call;
use crate::maps::Maps;
use crate::meter::Peek;
use crate::register::number;
use crate::rounds::Rounds;
use crate::table::result::{ChargeTarget, PLACES};
use crate::table::scratch::Scratch;

/// The result of a check against all limits of a record: a number, like
/// [`crate::table::TableResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Check(pub(crate) u32);

impl Check {
    /// The packet is within all of them.
    pub const WITHIN: Self = Self(0);
    /// The packet is over a soft one.
    pub const SOFT: Self = Self(1);
    /// The packet is over a hard one.
    pub const OVER: Self = Self(2);
    /// The bucket was pointed to another rule meanwhile.
    pub const MOVED: Self = Self(3);
}

number! {
    Check: |check| u64::from(check.0), |raw| Self((raw & 0xffff_ffff) as u32), lost Self::MOVED;
}

/// Checks the limits to which a packet is charged, in a subprogram.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn check_target<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    target: &ChargeTarget<'_, W::Keyed>,
) -> Check {
    call!(check_limits(maps, scratch; &target.bucket, target.slot, target.scale))
}

/// Checks the limits of the record in a slot, whose state is in `bucket`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn check_limits<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    scale: bool,
) -> Check {
    let Some(record) = maps.record(slot) else {
        return Check::MOVED;
    };
    let mut soft = false;
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(PLACES) {
        if place >= u32::from(record.count) {
            break;
        }
        let role = role(record, place);
        if !matches!(role, Role::Excess) || soft {
            match call!(peek_limit(maps, scratch; bucket, slot, place, scale)) {
                Peek::Conforming => {}
                Peek::Moved => return Check::MOVED,
                Peek::Over if matches!(role, Role::Soft) => soft = true,
                Peek::Over => return Check::OVER,
            }
        }
    }
    if soft { Check::SOFT } else { Check::WITHIN }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn role(record: &Record, place: u32) -> Role {
    // All limits in one word, instead of this one's: see [`Scratch::unknown`].
    let [a, b, c, d] = &record.limits;
    let roles = u32::from_le_bytes([a.role, b.role, c.role, d.role]);
    Role::from_raw((black_box(roles) >> (place.wrapping_mul(8) & 31) & 0xff) as u8)
}
