//! One decision of any algorithm, from the words as they stand.
//!
//! Types with a method and not closures, because a closure cannot be made to be inlined: as a
//! function of its own it costs stack and hides from the verifier what is constant.

use limiter_common::time::Ticks;
use limiter_common::window::{LogLimit, Position, WallOffset, WindowLimit};
use limiter_common::wire::{Algorithm, LimitSpec};

use crate::algorithm::sliding_log::{self, Head, LogDecision};
use crate::algorithm::{Change, Words, fixed_window, leaky_bucket, sliding_counter};
use crate::gcra;

use super::place::Place;
use super::{Arrival, Undo};

#[derive(Clone, Copy, Debug)]
pub(super) enum Decision {
    /// The packet is charged by the exchange of this word.
    Pass(Undo),
    /// The packet is charged by the first exchange; then the head of a log is moved by the second.
    PassAndMove(Undo, Undo),
    /// A log's head lags behind its entry: move the head and decide again.
    Behind(Undo),
    Over,
    /// A word has the other scale bit.
    Moved,
}

/// A packet at a limit of one algorithm.
pub(super) trait Decide {
    /// Reads the words and decides. `ahead` is a log's head where it is known to lag.
    fn decide(&self, ahead: Option<u64>) -> Decision;
}

/// A use of decisions: a look at one, or an exchange that is tried again until it succeeds.
///
/// The choice of the algorithm stands outside of that loop: inside of it the verifier walks all
/// algorithms in every round.
pub(super) trait Visitor {
    type Outcome;

    /// Asks for decisions, as many as the use needs.
    fn visit(self, packet: &impl Decide) -> Self::Outcome;
}

/// Runs a visitor with the algorithm of a limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn with<W: Words, A: Visitor>(
    spec: &LimitSpec,
    words: &W,
    scale: bool,
    arrival: &Arrival,
    visitor: A,
) -> A::Outcome {
    let Arrival { now, offset, units, is_super_frame } = *arrival;
    let place = Place::new(spec, words, scale);
    match spec.algorithm() {
        Algorithm::TokenBucket => {
            let charge = gcra::Charge::of_units(&spec.rate_with_wait(), now, units, is_super_frame);
            visitor.visit(&Token { place, charge })
        }
        Algorithm::LeakyBucket => visitor.visit(&Leaky {
            place,
            charge: leaky_bucket::Charge::of_units(
                &spec.rate_with_wait(),
                now,
                units,
                is_super_frame,
            ),
        }),
        Algorithm::FixedWindow => {
            visitor.visit(&Fixed(Counting::new(spec, place, offset, now, units)))
        }
        Algorithm::SlidingCounter => {
            visitor.visit(&Counter(Counting::new(spec, place, WallOffset::BOOT, now, units)))
        }
        Algorithm::SlidingSlots => {
            visitor.visit(&Slots(Counting::new(spec, place, WallOffset::BOOT, now, units)))
        }
        Algorithm::SlidingLog => visitor.visit(&Log { place, limit: spec.log(), now }),
    }
}

struct Token<'bucket, W> {
    place: Place<'bucket, W>,
    charge: gcra::Charge,
}

impl<W: Words> Decide for Token<'_, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn decide(&self, _: Option<u64>) -> Decision {
        let old = self.place.raw(0);
        match self.charge.apply(Ticks::new_within(old >> 1)) {
            Some(tat) => one(&self.place, old, Some(tat.get())),
            None => one(&self.place, old, None),
        }
    }
}

struct Leaky<'bucket, W> {
    place: Place<'bucket, W>,
    charge: leaky_bucket::Charge,
}

impl<W: Words> Decide for Leaky<'_, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn decide(&self, _: Option<u64>) -> Decision {
        let old = self.place.raw(0);
        match self.charge.apply(Ticks::new_within(old >> 1)) {
            Some(tat) => one(&self.place, old, Some(tat.get())),
            None => one(&self.place, old, None),
        }
    }
}

/// A packet at a limit that counts in windows. A super-frame of more units than the limit never
/// conforms: a word of a window has no room for a debt.
struct Counting<'bucket, W> {
    place: Place<'bucket, W>,
    limit: WindowLimit,
    /// Found once, because it takes a division.
    position: Position,
    units: u64,
}

impl<'bucket, W> Counting<'bucket, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn new(
        spec: &LimitSpec,
        place: Place<'bucket, W>,
        offset: WallOffset,
        now: Ticks,
        units: u64,
    ) -> Self {
        let limit = spec.window();
        Self { place, limit, position: limit.at(now, offset), units }
    }
}

struct Fixed<'bucket, W>(Counting<'bucket, W>);

impl<W: Words> Decide for Fixed<'_, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn decide(&self, _: Option<u64>) -> Decision {
        let Counting { place, limit, position, units } = &self.0;
        let old = place.raw(0);
        one(place, old, fixed_window::decide_at(limit, old >> 1, *position, *units))
    }
}

struct Counter<'bucket, W>(Counting<'bucket, W>);

impl<W: Words> Decide for Counter<'_, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn decide(&self, _: Option<u64>) -> Decision {
        let Counting { place, limit, position, units } = &self.0;
        let (states, moved) = place.two();
        several(place, moved, sliding_counter::decide_at(limit, &states, *position, *units))
    }
}

struct Slots<'bucket, W>(Counting<'bucket, W>);

impl<W: Words> Decide for Slots<'_, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn decide(&self, _: Option<u64>) -> Decision {
        let Counting { place, limit, position, units } = &self.0;
        let (reading, moved) = place.slots(limit, position.number);
        several(place, moved, reading.decide(limit, *units))
    }
}

/// The decision that a new state of the only word of a limit means.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn one<W: Words>(place: &Place<'_, W>, old: u64, decision: Option<u64>) -> Decision {
    if place.moved(old) != 0 {
        return Decision::Moved;
    }
    match decision {
        Some(state) => Decision::Pass(Undo { index: place.index(0), old, new: place.pack(state) }),
        None => Decision::Over,
    }
}

/// The decision that a change of one of several words means.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn several<W: Words>(place: &Place<'_, W>, moved: bool, decision: Option<Change>) -> Decision {
    if moved {
        return Decision::Moved;
    }
    match decision {
        Some(Change { index, old, new }) => Decision::Pass(Undo {
            index: place.index(index),
            old: place.pack(old),
            new: place.pack(new),
        }),
        None => Decision::Over,
    }
}

struct Log<'bucket, W> {
    place: Place<'bucket, W>,
    limit: LogLimit,
    now: Ticks,
}

impl<W: Words> Decide for Log<'_, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn decide(&self, ahead: Option<u64>) -> Decision {
        let Self { place, limit, now } = self;
        let head = match ahead {
            Some(head) => head,
            None => place.raw(0),
        };
        let at = Head::from_raw(head >> 1);
        let word = at.index().wrapping_add(1);
        let entry = place.raw(word);
        if place.moved(head) | place.moved(entry) != 0 {
            return Decision::Moved;
        }
        match sliding_log::decide(limit, at, entry >> 1, *now) {
            LogDecision::Over => Decision::Over,
            LogDecision::Behind(next) => {
                Decision::Behind(Undo { index: place.index(0), old: head, new: place.pack(next) })
            }
            LogDecision::Pass { entry: new, head: next } => Decision::PassAndMove(
                Undo { index: place.index(word), old: entry, new: place.pack(new) },
                Undo { index: place.index(0), old: head, new: place.pack(next) },
            ),
        }
    }
}
