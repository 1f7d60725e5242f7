//! The bucket shared by packets whose sources have no entry: one for each limit and each /24 of
//! IPv4 or /48 of IPv6, with that limit; and over all of them, a budget of as many packets as the
//! allowed new entries. A packet whose source came recently may use all of that budget; one that
//! was not seen before may use half of what is available at once.
//!
//! The buckets are an array, indexed by a seeded hash. Prefixes that collide share a bucket, which
//! errs on the safe side: through it, nobody passes more than the limit of one source.

use limiter_common::bucket::{Slot, Word};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::hash::scatter;
use limiter_common::time::{SECOND, Ticks};
use limiter_common::verdict::Reason;
use limiter_common::wire::{AGGREGATES, EntryKind, Full, Limit};

use super::EntryTableWords;
use crate::cell::Cell as _;
use crate::gcra::Charge;
use crate::maps::Maps;
use crate::register::Register;
use crate::rounds::Rounds;

/// Exchanges of one charge before the packet is dropped.
const TRIES: u64 = 4;

/// A packet without an entry: the slot of its limit, and whether its source was not seen recently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unplaced {
    /// The slot of the limit.
    pub slot: Slot,
    /// True if the source was not seen recently.
    pub first_seen: bool,
}

/// The bit of [`Unplaced::first_seen`] in the register with the slot.
const FIRST_SEEN: u32 = 31;

impl Register for Unplaced {
    const LOST: Self = Self { slot: Slot::NONE, first_seen: false };

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        self.slot.to_register() | u64::from(self.first_seen) << FIRST_SEEN
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        let slot = Slot::of_register(register & ((1 << FIRST_SEEN) - 1));
        Self { slot, first_seen: register >> FIRST_SEEN & 1 != 0 }
    }
}

/// Judges a packet whose source has no entry and gets none.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_aggregate<W: Maps>(
    maps: &W,
    origin: &BucketKey,
    packet: Unplaced,
    size: FrameSize,
    now: Ticks,
) -> Reason {
    let Some(limit) = maps.limit(packet.slot) else {
        return Reason::NoRule;
    };
    if limit.is_unlimited() {
        return Reason::Unlimited;
    }
    let passes = match limit.when_full() {
        Full::Pass => return Reason::Untracked,
        Full::Drop => return over(limit, Reason::TableFull),
        Full::Share => share(maps, origin, packet, limit, size, now),
    };
    if passes { Reason::Aggregate } else { over(limit, Reason::OverAggregate) }
}

/// The TAT of the shared bucket of a source without an entry: an entry made now starts with it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn debt<W: Maps>(maps: &W, origin: &BucketKey, slot: Slot) -> Ticks {
    let cell =
        maps.entry_table(origin.kind()).map(|entry_table| index(origin, slot, entry_table.seed()));
    match cell.and_then(|index| maps.aggregate(index)) {
        Some(cell) => Word::from_raw(cell.load()).tat(),
        None => Ticks::ZERO,
    }
}

/// Charges the shared bucket and the overall budget, both or neither.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn share<W: Maps>(
    maps: &W,
    origin: &BucketKey,
    Unplaced { slot, first_seen }: Unplaced,
    limit: &Limit,
    size: FrameSize,
    now: Ticks,
) -> bool {
    let Some(entry_table) = maps.entry_table(origin.kind()) else {
        return false;
    };
    let all = SECOND >> u64::from(first_seen);
    let horizon = now.plus(Ticks::new(all));
    let all = Charge::of_parts([now.get(), entry_table.cost().get(), horizon.get()]);
    let total = entry_table.total();
    // Most packets of a flood fail here.
    if all.apply(Word::from_raw(total.load()).tat()).is_none() {
        return false;
    }
    let Some(cell) = maps.aggregate(index(origin, slot, entry_table.seed())) else {
        return false;
    };
    let one = Charge::of_frame(limit, now, size.at_hook(W::SUPER_FRAMES));
    // A packet that loses the race for the second leaves the first charged, which is the safe side.
    charge(&cell, &one) && charge(&total, &all)
}

/// Charges one word. If other CPUs change it at every attempt, it counts as used up.
#[cfg_attr(target_arch = "bpf", inline(always))]
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

/// The reason for a packet over a shared bucket: `reason`, except in shadow mode.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn over(limit: &Limit, reason: Reason) -> Reason {
    match limit.over() {
        Reason::Shadow => Reason::Shadow,
        _ => reason,
    }
}

/// The bucket of a prefix and a limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
const fn index(origin: &BucketKey, slot: Slot, seed: u64) -> u32 {
    let [a, b, c, d, e, f, g, _] = origin.word().to_ne_bytes();
    let prefix = match origin.kind() {
        EntryKind::V4 => [0, 4, 0, 0, 0, a, b, c],
        EntryKind::V6 => [0, 6, a, b, c, d, e, f],
        // The table, the port, and the prefix of the source.
        EntryKind::Compact | EntryKind::Keyed => [a, b, c, d, e, f, g, 0],
    };
    let prefix = u64::from_be_bytes(prefix);
    let hash = scatter(scatter(prefix ^ seed) ^ slot.index() as u64);
    #[expect(clippy::cast_possible_truncation, reason = "masked before the cast")]
    let index = (hash & (AGGREGATES as u64 - 1)) as u32;
    index
}
