//! Which frame a new entry takes.
//!
//! Every second look follows the hand, which meets entries in the order in which they came. The
//! other looks are scattered, so that a stretch of entries that may not leave does not hide those
//! that may. With a share `p` of entries that may not leave, scattered over the table, a packet
//! finds no room with probability `p` to the power of [`PROBES`].

use super::{BUSY, EMPTY, Frames, Leave, SpaceWords, admission, bump};
use crate::cell::Cell;
use crate::register::{Register, answer};
use crate::rounds::Rounds;
use crate::step::step;
use crate::time::Ticks;
use crate::wire::Lane;

/// Frames that are looked at for one new entry.
pub const PROBES: u32 = 16;

/// A frame taken for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which one.
    pub index: u32,
    /// Its state before.
    pub before: u64,
}

/// The index of no frame.
const NOWHERE: u64 = 0xffff_ffff;

answer!(Option<Claim>, None);

impl Register for Option<Claim> {
    /// The state cut to 32 bits.
    #[inline(always)]
    fn to_register(self) -> u64 {
        match self {
            Some(Claim { index, before }) => before << 32 | u64::from(index),
            None => NOWHERE,
        }
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        let index = register & NOWHERE;
        if index == NOWHERE {
            return None;
        }
        Some(Claim { index: index as u32, before: register >> 32 })
    }
}

/// Takes a frame: its state is [`BUSY`] then, and no entry has it. `None` when no entry that was
/// looked at may leave.
#[inline(always)]
pub fn claim<F: Frames>(frames: &F, now: Ticks) -> Option<Claim> {
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(u64::from(PROBES)) {
        let claim = match F::LANE {
            Lane::V4 => step!(probe_v4(frames; number, now)),
            Lane::V6 => step!(probe_v6(frames; number, now)),
            Lane::Keyed => step!(probe_keyed(frames; number, now)),
        };
        if claim.is_some() {
            return claim;
        }
    }
    None
}

use self::{probe as probe_keyed, probe as probe_v4, probe as probe_v6};

/// One look of [`claim`].
#[inline(always)]
pub fn probe<F: Frames>(frames: &F, number: u32, now: Ticks) -> Option<Claim> {
    let space = frames.space(F::LANE)?;
    let flooded = admission::is_flooded(&space, now);
    let index = next(&space, space.entries(), number);
    // Without a flood the second half of the looks takes what has drained, however lately.
    let patient = flooded || number < PROBES >> 1;
    let leave = Leave { now, keep: if patient { space.keep() } else { Ticks::ZERO } };
    take(frames, index, &leave).map(|before| Claim { index, before })
}

/// The frame to look at.
#[inline(always)]
fn next(space: &impl SpaceWords, entries: u64, probe: u32) -> u32 {
    let hand = space.hand();
    let ticket = hand.load();
    let place = if probe & 1 == 0 {
        // A lost exchange is another CPU's step: both look at the same frame, and one takes it.
        hand.compare_exchange(ticket, ticket.wrapping_add(1));
        ticket
    } else {
        scatter(ticket ^ u64::from(probe) << 48)
    };
    let index = place.checked_rem(entries).unwrap_or(0);
    #[expect(clippy::cast_possible_truncation, reason = "a table has less than 2^32 entries")]
    let index = index as u32;
    index
}

/// Takes one frame, if it is empty or its entry may leave; tells its state before.
#[inline(always)]
fn take<F: Frames>(frames: &F, index: u32, leave: &Leave) -> Option<u64> {
    let frame = frames.frame(index)?;
    let state = frame.load();
    if state == BUSY {
        return None;
    }
    if state != EMPTY {
        if !frames.give_up(index, state, leave) {
            return None;
        }
        if let Some(admission) = frames.admission(F::LANE) {
            bump(&admission.evicted);
        }
    }
    if frame.compare_exchange(state, BUSY) { Some(state) } else { None }
}

/// Spreads numbers that follow each other over all of 64 bits: the finaliser of `SplitMix64`
/// (Steele, Lea, Flood 2014).
#[inline(always)]
pub(crate) const fn scatter(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
