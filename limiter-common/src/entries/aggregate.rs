//! The bucket that packets share whose sources have no entry: one for each /24 of IPv4 and each /48
//! of IPv6 and each limit, with that limit; and over all of them a budget of as many packets as
//! there may be new entries.
//!
//! The buckets are an array that a seeded hash points into. Prefixes that meet in one bucket share
//! it, so it errs to the safe side: nobody passes more than the limit of one source, through it.

use super::ring::scatter;
use super::{EntryTableWords, SECOND, source};
use crate::bucket::{Slot, Word};
use crate::cell::Cell as _;
use crate::gcra::Charge;
use crate::rounds::Rounds;
use crate::source::Source;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{AGGREGATES, Full, Limit};
use crate::world::World;

/// Exchanges of one charge before the packet is dropped.
const TRIES: u64 = 4;

/// Judges a packet whose source has no entry and gets none.
#[inline(always)]
pub fn judge_aggregate<W: World>(
    maps: &W,
    origin: &Source,
    slot: Slot,
    length: u64,
    now: Ticks,
) -> Reason {
    let Some(limit) = maps.limit(slot) else {
        return Reason::NoRule;
    };
    if limit.is_unlimited() {
        return Reason::Unlimited;
    }
    let passes = match limit.when_full() {
        Full::Pass => return Reason::Untracked,
        Full::Drop => return over(limit, Reason::TableFull),
        Full::Share => share(maps, origin, slot, limit, length, now),
    };
    if passes { Reason::Aggregate } else { over(limit, Reason::OverAggregate) }
}

/// The TAT of the bucket that a source without an entry shares: an entry that is made now starts
/// with it.
#[inline(always)]
pub fn debt<W: World>(maps: &W, origin: &Source, slot: Slot) -> Ticks {
    let cell = maps
        .entry_table(source::kind(origin))
        .map(|entry_table| index(origin, slot, entry_table.seed()));
    match cell.and_then(|index| maps.aggregate(index)) {
        Some(cell) => Word::from_raw(cell.load()).tat(),
        None => Ticks::ZERO,
    }
}

/// Charges the shared bucket and the budget over all of them, both or none.
#[inline(always)]
fn share<W: World>(
    maps: &W,
    origin: &Source,
    slot: Slot,
    limit: &Limit,
    length: u64,
    now: Ticks,
) -> bool {
    let Some(entry_table) = maps.entry_table(source::kind(origin)) else {
        return false;
    };
    let Some(cell) = maps.aggregate(index(origin, slot, entry_table.seed())) else {
        return false;
    };
    let all =
        Charge::of_parts([now.get(), entry_table.cost().get(), now.plus(Ticks::new(SECOND)).get()]);
    let one = Charge::new(limit, now, limit.units(length));
    let total = entry_table.total();
    let room = all.apply(Word::from_raw(total.load()).tat()).is_some();
    // A packet that loses the race for the second one leaves the first charged: the safe side.
    room && charge(&cell, &one) && charge(&total, &all)
}

/// Charges one word. One that other CPUs change at every try counts as used up.
#[inline(always)]
fn charge(cell: &impl crate::cell::Cell, charge: &Charge) -> bool {
    let mut tries = Rounds::new();
    while tries.more(TRIES) {
        let word = Word::from_raw(cell.load());
        let Some(tat) = charge.apply(word.tat()) else {
            return false;
        };
        if cell.compare_exchange(word.raw(), Word::new(tat, false).raw()) {
            return true;
        }
    }
    false
}

#[inline(always)]
const fn over(limit: &Limit, reason: Reason) -> Reason {
    match limit.over() {
        Reason::Shadow => Reason::Shadow,
        _ => reason,
    }
}

/// The bucket of a prefix and a limit.
#[inline(always)]
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
const fn index(origin: &Source, slot: Slot, seed: u64) -> u32 {
    let prefix = match *origin {
        Source::V4([a, b, c, _]) => u64::from_be_bytes([0, 4, 0, 0, 0, a, b, c]),
        Source::V6([a, b, c, d, e, f, ..]) => u64::from_be_bytes([0, 6, a, b, c, d, e, f]),
    };
    let hash = scatter(scatter(prefix ^ seed) ^ slot.index() as u64);
    #[expect(clippy::cast_possible_truncation, reason = "masked before the cast")]
    let index = (hash & (AGGREGATES as u64 - 1)) as u32;
    index
}
