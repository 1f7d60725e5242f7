//! An entry of the line table by the rules of [`crate::room`]: new ones have a budget, and while
//! there are more than may be, those that were used lately stay.

use super::{Line, Made, insert};
use crate::outcome::Insert;
use crate::room::{Leave, SpaceWords as _, Spaces, admission, bump};
use crate::time::Ticks;
use crate::wire::{Bucket, Lane};

/// Makes the entry of a source in its line, if its budget and the line have room, and counts what
/// became of it.
#[inline(always)]
pub fn enter<S: Spaces, L: Line>(
    spaces: &S,
    lane: Lane,
    place: &L,
    start: u32,
    name: u64,
    bucket: &Bucket,
    now: Ticks,
) -> Insert {
    if !admission::admit(spaces, lane, now) {
        return Insert::Refused;
    }
    let [keep, least] = keep(spaces, lane, now);
    let made = insert(place, start, name, bucket, &Leave { now, keep }, least);
    settle(spaces, lane, made, now)
}

/// Counts what became of an entry.
#[inline(always)]
pub fn settle<S: Spaces>(spaces: &S, lane: Lane, made: Made, now: Ticks) -> Insert {
    let Made { insert, evicted } = made;
    if matches!(insert, Insert::Refused) {
        admission::full(spaces, lane, now);
    }
    if matches!(insert, Insert::Made)
        && let Some(admission) = spaces.admission(lane)
    {
        bump(&admission.made);
        if evicted {
            bump(&admission.evicted);
        }
    }
    insert
}

/// For how long an entry stays that was used more than once, and for how long where no other may
/// leave. Without a flood, the one that drained first leaves then, however lately that was.
#[inline(always)]
pub fn keep<S: Spaces>(spaces: &S, lane: Lane, now: Ticks) -> [Ticks; 2] {
    match spaces.space(lane) {
        Some(space) if admission::is_flooded(&space, now) => [space.keep(), space.keep()],
        Some(space) => [space.keep(), Ticks::ZERO],
        None => [Ticks::ZERO; 2],
    }
}
