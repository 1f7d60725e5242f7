//! The check of a packet against the limits of a record, without charging it.

use core::hint::black_box;

use super::limit::{peek_alone, peek_limit};
use super::result::PLACES;
use super::scratch::Scratch;
use super::target::ChargeTarget;
use crate::bucket::Slot;
use crate::meter::Peek;
use crate::register::variants;
use crate::rounds::Rounds;
use crate::step::step;
use crate::wire::{Record, Role};
use crate::world::World;

/// The result of a check against all limits of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Check {
    /// The packet is within all of them.
    Within = 0,
    /// The packet is over a soft one.
    Soft = 1,
    /// The packet is over a hard one.
    Over = 2,
    /// The bucket was pointed at another rule meanwhile.
    Moved = 3,
}

variants!(Check: Within Soft Over, else Moved; lost Moved);

/// Checks the limits that a packet is charged to.
#[inline(always)]
pub(super) fn check_target<W: World>(
    maps: &W,
    scratch: &Scratch,
    target: &ChargeTarget<'_, W::Keyed>,
) -> Check {
    step!(check_limits(maps, scratch; &target.bucket, target.slot, target.scale))
}

/// Checks the limits of the record in a slot, whose state is in `bucket`.
#[inline(always)]
pub fn check_limits<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    scale: bool,
) -> Check {
    let Some(record) = maps.record(slot) else {
        return Check::Moved;
    };
    if let Some(spec) = record.alone() {
        return match peek_alone(scratch, bucket, spec, scale) {
            Peek::Conforming => Check::Within,
            Peek::Over => Check::Over,
            Peek::Moved => Check::Moved,
        };
    }
    let mut soft = false;
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(PLACES) {
        if place >= u32::from(record.count) {
            break;
        }
        let role = role(record, place);
        if !matches!(role, Role::Excess) || soft {
            match step!(peek_limit(maps, scratch; bucket, slot, place, scale)) {
                Peek::Conforming => {}
                Peek::Moved => return Check::Moved,
                Peek::Over if matches!(role, Role::Soft) => soft = true,
                Peek::Over => return Check::Over,
            }
        }
    }
    if soft { Check::Soft } else { Check::Within }
}

#[inline(always)]
pub(super) fn role(record: &Record, place: u32) -> Role {
    // All of them in one word, and not that of one: see [`Scratch::unknown`].
    let [a, b, c, d] = &record.limits;
    let roles = u32::from_le_bytes([a.role, b.role, c.role, d.role]);
    Role::from_raw((black_box(roles) >> (place.wrapping_mul(8) & 31) & 0xff) as u8)
}
