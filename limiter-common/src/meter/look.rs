//! One decision of any algorithm, from the words as they stand.

use crate::algorithm::sliding_log::{self, Head, Step};
use crate::algorithm::window::MAX_SLOTS;
use crate::algorithm::{Change, Words, fixed_window, leaky_bucket, sliding_counter, sliding_slots};
use crate::cell::Cell;
use crate::gcra;
use crate::time::Ticks;
use crate::wire::{Algorithm, LimitSpec, WORDS};

use super::{Arrival, Undo};

/// The last index of a bucket's words, and a mask: they are a power of two.
pub(super) const LAST: u32 = 31;

const _: () = assert!(LAST as usize == WORDS - 1 && WORDS.is_power_of_two());

/// What to do about a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Exchange this word; if that worked the packet is charged, and a log's head is to be moved.
    Pass {
        /// The decision.
        change: Undo,
        /// The head, of a log alone.
        head: Option<Undo>,
    },
    /// A log's head lags behind its entry: move it and look again.
    Behind(Undo),
    /// It is over the limit.
    Over,
    /// A word has the other scale bit.
    Moved,
}

/// Reads the words of a limit and decides. `ahead` is a log's head where it is known to lag.
#[inline(always)]
pub(super) fn look<W: Words>(
    spec: &LimitSpec,
    words: &W,
    scale: bool,
    arrival: &Arrival,
    ahead: Option<u64>,
) -> Look {
    let Arrival { now, offset, units } = *arrival;
    let scale = u64::from(scale);
    match spec.algorithm() {
        Algorithm::TokenBucket => one(spec, words, scale, |state| {
            gcra::Charge::new(&spec.rate(), now, units).apply(Ticks::new(state)).map(Ticks::get)
        }),
        Algorithm::LeakyBucket => one(spec, words, scale, |state| {
            leaky_bucket::Charge::new(&spec.rate(), now, units)
                .apply(Ticks::new(state))
                .map(Ticks::get)
        }),
        Algorithm::FixedWindow => one(spec, words, scale, |state| {
            fixed_window::decide(&spec.window(), offset, state, now, units)
        }),
        Algorithm::SlidingCounter => several::<2, _>(spec, words, scale, |states| {
            sliding_counter::decide(&spec.window(), states, now, units)
        }),
        Algorithm::SlidingSlots => several::<MAX_SLOTS, _>(spec, words, scale, |states| {
            sliding_slots::decide(&spec.window(), states, now, units)
        }),
        Algorithm::SlidingLog => log(spec, words, scale, now, ahead),
    }
}

/// The place of a limit's word among those of the bucket.
#[inline(always)]
pub(super) fn place(spec: &LimitSpec, index: u32) -> u32 {
    u32::from(spec.first).wrapping_add(index) & LAST
}

/// A word as it stands; one that is not there reads as zero.
#[inline(always)]
pub(super) fn raw<W: Words>(words: &W, place: u32) -> u64 {
    words.cell(place).map_or(0, |cell| cell.load())
}

/// Reads the first `N` words of a limit, with their scale bits: those that it does not have as zero.
#[inline(always)]
pub(super) fn read<const N: usize, W: Words>(spec: &LimitSpec, words: &W) -> [u64; N] {
    let count = u32::from(spec.words);
    let mut next = 0;
    // Element by element: an array cleared at once is a call of memset, which the verifier refuses.
    // Masked and not skipped: every branch doubles what the verifier walks.
    core::array::from_fn(|_| {
        let index: u32 = next;
        next += 1;
        let there = u64::from(index < count).wrapping_neg();
        raw(words, place(spec, index)) & there
    })
}

/// An algorithm of one word.
#[inline(always)]
fn one<W: Words>(
    spec: &LimitSpec,
    words: &W,
    scale: u64,
    decide: impl Fn(u64) -> Option<u64>,
) -> Look {
    let index = place(spec, 0);
    let old = raw(words, index);
    if old & 1 != scale {
        return Look::Moved;
    }
    match decide(old >> 1) {
        Some(state) => {
            Look::Pass { change: Undo { index, old, new: state << 1 | scale }, head: None }
        }
        None => Look::Over,
    }
}

/// An algorithm of up to `N` words of which it changes one.
#[inline(always)]
fn several<const N: usize, W: Words>(
    spec: &LimitSpec,
    words: &W,
    scale: u64,
    decide: impl Fn(&[u64; N]) -> Option<Change>,
) -> Look {
    let raws = read::<N, W>(spec, words);
    let count = u32::from(spec.words);
    let mut moved = 0;
    for (index, raw) in (0..).zip(&raws) {
        moved |= (raw ^ scale) & u64::from(index < count);
    }
    if moved & 1 != 0 {
        return Look::Moved;
    }
    match decide(&raws.map(|raw| raw >> 1)) {
        Some(Change { index, old, new }) => Look::Pass {
            change: Undo {
                index: place(spec, index),
                old: old << 1 | scale,
                new: new << 1 | scale,
            },
            head: None,
        },
        None => Look::Over,
    }
}

/// The log: its head, and the entry that it points at.
#[inline(always)]
fn log<W: Words>(spec: &LimitSpec, words: &W, scale: u64, now: Ticks, ahead: Option<u64>) -> Look {
    let first = place(spec, 0);
    let head = match ahead {
        Some(head) => head,
        None => raw(words, first),
    };
    let at = Head::from_raw(head >> 1);
    let index = place(spec, at.index().wrapping_add(1));
    let entry = raw(words, index);
    if head & 1 != scale || entry & 1 != scale {
        return Look::Moved;
    }
    let moved = |to: u64| Undo { index: first, old: head, new: to << 1 | scale };
    match sliding_log::decide(&spec.log(), at, entry >> 1, now) {
        Step::Over => Look::Over,
        Step::Behind(next) => Look::Behind(moved(next)),
        Step::Pass { entry: new, head: next } => Look::Pass {
            change: Undo { index, old: entry, new: new << 1 | scale },
            head: Some(moved(next)),
        },
    }
}
