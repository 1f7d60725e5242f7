//! Entries of the source table: how the bucket of a source is made, and how another one leaves for
//! it.
//!
//! An entry of the hash maps leaves in two steps. First its word is exchanged for [`Word::GONE`]:
//! from then on no charge can be stored in it. Then it is removed from the map. A packet of that
//! source which meets the word in between is judged as one without an entry.

use crate::bucket::Word;
use crate::cell::{Cell as _, Meter};
use crate::line;
use crate::outcome::Insert;
use crate::register::{Register, answer};
use crate::room::admission::{admit, full};
use crate::room::clock::{self, Claim, PROBES};
use crate::room::source::{lane, name, named};
use crate::room::{EMPTY, Leave};
use crate::rounds::Rounds;
use crate::source::Source;
use crate::step::step;
use crate::time::Ticks;
use crate::wire::{Bucket, Lane};
use crate::world::World;

/// A frame that is taken, and whether the first packet of its source was dropped.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    frame: u32,
    dropped: bool,
}

impl Register for Taken {
    #[inline(always)]
    fn to_register(self) -> u64 {
        u64::from(self.frame) << 32 | u64::from(self.dropped)
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        Self { frame: (register >> 32) as u32, dropped: register & 1 != 0 }
    }
}

answer!(Taken, Self { frame: 0, dropped: false });

/// Makes the bucket of a source, only if there is none and there is room. With hash maps in two
/// steps, one after the other: their callers share 512 bytes of stack with them.
#[inline(always)]
pub fn insert<W: World>(world: &W, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
    let lane = lane(source);
    let Some(name) = name(source) else {
        return Insert::Refused;
    };
    if world.lines(lane).is_some() {
        return line::enter(world, lane, name, bucket, now);
    }
    let claim = match lane {
        Lane::V4 => step!(reserve_v4(world; now)),
        Lane::V6 | Lane::Keyed => step!(reserve_v6(world; now)),
    };
    let Some(Claim { index: frame, .. }) = claim else {
        return Insert::Refused;
    };
    let taken = Taken { frame, dropped: bucket.dropped & 1 != 0 };
    step!(make(world; source, taken, bucket.word, bucket.resolved))
}

/// Takes a frame for one more IPv4 source, if their budget and their table have room.
#[inline(always)]
pub fn reserve_v4<W: World>(world: &W, now: Ticks) -> Option<Claim> {
    reserve(world, Lane::V4, now)
}

/// Takes a frame for one more IPv6 source, if their budget and their table have room.
#[inline(always)]
pub fn reserve_v6<W: World>(world: &W, now: Ticks) -> Option<Claim> {
    reserve(world, Lane::V6, now)
}

#[inline(always)]
fn reserve<W: World>(world: &W, lane: Lane, now: Ticks) -> Option<Claim> {
    if !admit(world, lane, now) {
        return None;
    }
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(u64::from(PROBES)) {
        let claim = match lane {
            Lane::V4 => step!(probe_v4(world; number, now)),
            Lane::V6 | Lane::Keyed => step!(probe_v6(world; number, now)),
        };
        if claim.is_some() {
            return claim;
        }
    }
    full(world, lane, now);
    None
}

/// One look for a frame for an IPv4 source.
#[inline(always)]
pub fn probe_v4<W: World>(world: &W, number: u32, now: Ticks) -> Option<Claim> {
    probe(world, Lane::V4, number, now)
}

/// One look for a frame for an IPv6 source.
#[inline(always)]
pub fn probe_v6<W: World>(world: &W, number: u32, now: Ticks) -> Option<Claim> {
    probe(world, Lane::V6, number, now)
}

#[inline(always)]
fn probe<W: World>(world: &W, lane: Lane, number: u32, now: Ticks) -> Option<Claim> {
    let (index, Leave { now, keep }) = clock::look(world, lane, number, now)?;
    let frame = world.frame(lane, index)?;
    let state = clock::state(&frame)?;
    if state != EMPTY {
        if !step!(leave_source(world; state, lane, now, keep)) {
            return None;
        }
        clock::count_evicted(world, lane);
    }
    clock::take(&frame, index, state)
}

/// Removes the source of a frame whose state was `state`, if it may leave; says whether the frame
/// has no entry now. Exactly one CPU is told so for each entry.
#[inline(always)]
pub fn leave_source<W: World>(world: &W, state: u64, lane: Lane, now: Ticks, keep: Ticks) -> bool {
    let source = named(lane, state);
    let Some(meter) = world.meter(&source) else {
        return true;
    };
    if !retire(&meter, &Leave { now, keep }) {
        return false;
    }
    // It was there, and nobody else removes it.
    world.remove(&source);
    true
}

/// Makes a bucket leave, if it may; the caller removes it then.
#[inline(always)]
pub fn retire(meter: &impl Meter, leave: &Leave) -> bool {
    let packets = meter.packets();
    let word = Word::from_raw(meter.word().load());
    // Drained under the limit that it was charged under. Of a larger one since then not all is
    // available to it yet: a source that left the table begins with a full bucket, as a new one
    // (docs/algorithms.md).
    !word.is_gone()
        && leave.allows(word.tat(), packets)
        && meter.word().compare_exchange(word.raw(), Word::GONE.raw())
}

/// Makes the bucket of a source, with these two words, and gives the frame that was taken to it, or
/// back.
#[inline(always)]
pub fn make<W: World>(
    world: &W,
    source: &Source,
    Taken { frame, dropped }: Taken,
    word: u64,
    resolved: u64,
) -> Insert {
    let dropped = u64::from(dropped);
    let bucket = Bucket { word, resolved, passed: 1 - dropped, dropped };
    let made = world.insert(source, &bucket);
    let name = name(source).unwrap_or(EMPTY);
    match lane(source) {
        Lane::V4 => clock::settle(world, Lane::V4, frame, made, name),
        Lane::V6 | Lane::Keyed => clock::settle(world, Lane::V6, frame, made, name),
    }
}
