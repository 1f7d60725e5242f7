//! The look at the limits of a record: what they say of a packet, without charging it.

use core::hint::black_box;

use super::code::PLACES;
use super::held::Held;
use super::limit::{peek_alone, peek_limit};
use super::scratch::Scratch;
use crate::bucket::Slot;
use crate::meter::Peek;
use crate::register::variants;
use crate::rounds::Rounds;
use crate::step::step;
use crate::wire::{Record, Role};
use crate::world::World;

/// What the limits of a record say of the packet, without charging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Sight {
    /// It is within all of them.
    Within = 0,
    /// It is over a soft one.
    Soft = 1,
    /// It is over a hard one.
    Over = 2,
    /// The bucket was pointed at another rule meanwhile.
    Moved = 3,
}

variants!(Sight: Within Soft Over, else Moved; lost Moved);

/// Looks at the limits that a packet is charged to.
#[inline(always)]
pub(super) fn look<W: World>(maps: &W, scratch: &Scratch, held: &Held<'_, W::Keyed>) -> Sight {
    step!(sight(maps, scratch; &held.bucket, held.slot, held.scale))
}

/// Looks at the limits of the record in a slot, whose state is in `bucket`.
#[inline(always)]
pub fn sight<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    scale: bool,
) -> Sight {
    let Some(record) = maps.record(slot) else {
        return Sight::Moved;
    };
    if let Some(spec) = record.alone() {
        return match peek_alone(maps, scratch, bucket, spec, scale) {
            Peek::Conforming => Sight::Within,
            Peek::Over => Sight::Over,
            Peek::Moved => Sight::Moved,
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
                Peek::Moved => return Sight::Moved,
                Peek::Over if matches!(role, Role::Soft) => soft = true,
                Peek::Over => return Sight::Over,
            }
        }
    }
    if soft { Sight::Soft } else { Sight::Within }
}

#[inline(always)]
pub(super) fn role(record: &Record, place: u32) -> Role {
    // All of them in one word, and not that of one: see [`Scratch::unknown`].
    let [a, b, c, d] = &record.limits;
    let roles = u32::from_le_bytes([a.role, b.role, c.role, d.role]);
    Role::from_raw((black_box(roles) >> (place.wrapping_mul(8) & 31) & 0xff) as u8)
}
