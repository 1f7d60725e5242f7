//! One limit of a record. In the kernel each of these is a separate function: it contains every
//! algorithm, and the verifier walks it once.

use core::cell::Cell;

use limiter_common::bucket::Slot;
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{Control, KeyLeases, LimitSpec, MAX_LIMITS, Record, WORDS};

use super::lease;
use super::lease::undo_lease;
use crate::algorithm::Words as _;
use crate::call::call;
use crate::cell::Cell as _;
use crate::change::instant;
use crate::maps::Maps;
use crate::meter::{self, Arrival, Carried, Charged, Peek, Undo};
use crate::register::Register;
use crate::rounds::Rounds;
use crate::table::scratch::{Charge, Scratch};

#[cfg_attr(target_arch = "bpf", inline(always))]
fn limit_at<W: Maps>(maps: &W, slot: Slot, place: u32) -> Option<(&Record, &LimitSpec)> {
    let record = maps.record(slot)?;
    // Masked, so that the verifier sees the bound.
    Some((record, record.limits.get(place as usize & (MAX_LIMITS - 1))?))
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn spec<W: Maps>(maps: &W, slot: Slot, place: u32) -> Option<&LimitSpec> {
    limit_at(maps, slot, place).map(|(_, spec)| spec)
}

/// The offset of the wall clock's windows.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn wall_offset<W: Maps>(maps: &W) -> WallOffset {
    WallOffset::from_raw(maps.control(Control::WallOffset))
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn arrival<W: Maps>(maps: &W, scratch: &Scratch, spec: &LimitSpec) -> Arrival {
    let units = scratch.units::<W>(spec.counts());
    let is_super_frame = scratch.size::<W>().is_super_frame();
    Arrival { now: scratch.now(), offset: wall_offset(maps), units, is_super_frame }
}

/// Checks one limit without charging the packet. A limit that does not count the packet conforms.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn peek_limit<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    place: u32,
    scale: bool,
) -> Peek {
    let Some((record, spec)) = limit_at(maps, slot, place) else {
        return Peek::Moved;
    };
    let arrival = arrival(maps, scratch, spec);
    if arrival.units == 0 {
        return Peek::Conforming;
    }
    let lease = lease::lease_of(maps, record, slot, place, scratch.leases.get());
    match &lease {
        Some(lease) if lease.decides(&arrival) => return lease.peek(&arrival),
        None if record.needs_leases(place) => return Peek::Over,
        _ => {}
    }
    match (meter::peek(spec, bucket, scale, &arrival), lease) {
        (Peek::Over, Some(lease)) => lease.refuse(&arrival),
        (peek, _) => peek,
    }
}

/// Charges the packet to one limit, and records in account `index` how to undo that.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_limit<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    place: u32,
    scale: bool,
    index: u32,
) -> Charged {
    meter::repeat(|| call!(attempt_limit(maps, scratch; bucket, slot, place, scale, index)))
}

/// Tries once to charge the packet to one limit: [`Charged::Contended`] if another CPU was faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt_limit<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    place: u32,
    scale: bool,
    index: u32,
) -> Charged {
    let Some((record, spec)) = limit_at(maps, slot, place) else {
        return Charged::Moved;
    };
    let arrival = arrival(maps, scratch, spec);
    if arrival.units == 0 {
        return Charged::Conforming;
    }
    let leases = scratch.account(index).map_or(KeyLeases::ASKED, |account| account.leases.get());
    match lease::lease_of(maps, record, slot, place, leases) {
        Some(lease) if lease.decides(&arrival) => {
            return lease.attempt(scratch, &arrival, index);
        }
        None if record.needs_leases(place) => return Charged::Over,
        _ => {}
    }
    let mut undo = Undo::default();
    let charged = meter::attempt(spec, bucket, scale, &arrival, &mut undo);
    if matches!(charged, Charged::Conforming) {
        scratch.note(index, Charge::Word(undo.index), undo.old, undo.new);
    }
    charged
}

/// The used part of the limit at a place of the record `after`, which replaced the record `before`;
/// [`Used::KEPT`] if its words keep their meaning, [`Used::resized`] for a log of another size. All
/// of it if the record `before` is unknown. Writes the instant of the change into the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_used<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    before: Slot,
    after: Slot,
    place: u32,
) -> Used {
    let change = call!(limit_change(maps; before, after, place));
    if change == KEPT {
        return Used::KEPT;
    }
    if change == UNKNOWN {
        return Used::amount(call!(limit_whole(maps, scratch; after, place)));
    }
    let at = call!(limit_changed_at(maps, scratch; before, after));
    let used = call!(limit_fill(maps, scratch; bucket, before, place, at));
    if change == RESIZED {
        return Used::resized(used);
    }
    call!(seed_at(maps, scratch; after, place, at));
    if change == RAISED {
        return Used::amount(call!(limit_raised(maps; before, after, place, used)));
    }
    Used::amount(call!(limit_converted(maps; before, after, place, used)))
}

/// The limit keeps its words.
const KEPT: u64 = 1;

/// The log continues with another size.
const RESIZED: u64 = 2;

/// The rate keeps its debt.
const RAISED: u64 = 3;

/// What is available stays available.
const CONVERTED: u64 = 4;

/// The old limit is unknown.
const UNKNOWN: u64 = 5;

/// How the limit at a place of the record `before` continues in the record `after`: one of the
/// constants above.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_change<W: Maps>(maps: &W, before: Slot, after: Slot, place: u32) -> u64 {
    match (limit_at(maps, before, place), limit_at(maps, after, place)) {
        (Some((from, old)), Some((to, new))) => {
            if old.same_state(new) {
                KEPT
            } else if old.same_log(new) {
                RESIZED
            } else if meter::goes_on(old, new, from.rule == to.rule) {
                RAISED
            } else {
                CONVERTED
            }
        }
        _ => UNKNOWN,
    }
}

/// The whole limit, used up at the present; 0 if it does not exist.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_whole<W: Maps>(maps: &W, scratch: &Scratch, slot: Slot, place: u32) -> u64 {
    scratch.changed_at.set(scratch.now().get());
    spec(maps, slot, place).map_or(0, meter::carry::capacity_of)
}

/// Corrects the instant in the scratch to the one with which the limit at the place of the record
/// `after`, which came into force at `at`, is seeded: [`meter::seeded_at`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn seed_at<W: Maps>(maps: &W, scratch: &Scratch, after: Slot, place: u32, at: Ticks) {
    if let Some(new) = spec(maps, after, place) {
        let owed_at = Ticks::new(scratch.changed_at.get());
        scratch.changed_at.set(meter::seeded_at(new, at, owed_at).get());
    }
}

/// The used part of the limit at a place of the record `after`, which keeps the debt of the record
/// `before`: [`meter::raised`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_raised<W: Maps>(maps: &W, before: Slot, after: Slot, place: u32, used: u64) -> u64 {
    match (spec(maps, before, place), spec(maps, after, place)) {
        (Some(old), Some(new)) => meter::raised(old, new, used),
        _ => 0,
    }
}

/// The used part of the limit at a place at an instant, in its measure. Writes the effective
/// instant into the scratch: [`meter::used_at`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_fill<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    slot: Slot,
    place: u32,
    at: Ticks,
) -> u64 {
    let Some(spec) = spec(maps, slot, place) else {
        return 0;
    };
    let carried = meter::used_at(spec, bucket, at, wall_offset(maps));
    scratch.changed_at.set(carried.at.get());
    carried.used
}

/// The used part of the limit at a place of the record `after`, converted from the record `before`:
/// [`meter::converted`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_converted<W: Maps>(maps: &W, before: Slot, after: Slot, place: u32, used: u64) -> u64 {
    match (spec(maps, before, place), spec(maps, after, place)) {
        (Some(old), Some(new)) => meter::converted(old, new, used),
        _ => 0,
    }
}

/// The instant at which the record `before` was changed to `after`, for the current key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_changed_at<W: Maps>(maps: &W, scratch: &Scratch, before: Slot, after: Slot) -> Ticks {
    let ended = maps.record(before).map_or(0, |record| record.ended);
    let since = maps.record(after).map_or(0, |record| record.since);
    let (generation, now) = (scratch.generation(), scratch.now());
    call!(instant(maps; u32::from(ended), since, generation, now))
}

/// The part of a limit that is used when its record is changed, in the measure of its seed
/// ([`crate::meter::Seed`]): an amount, [`Used::KEPT`] or [`Used::resized`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used(u64);

impl Used {
    /// The words have the same meaning under the limits of both records, so they are kept. No
    /// amount is as large.
    pub const KEPT: Self = Self(u64::MAX);

    /// The bit of [`Used::resized`].
    const RESIZED: u64 = 1 << 63;

    /// An amount, below 2^63.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn amount(amount: u64) -> Self {
        Self(amount)
    }

    /// Packets of a log that continues with a ring of another size.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn resized(packets: u64) -> Self {
        Self(Self::RESIZED | packets & 0xff)
    }
}

impl Register for Used {
    const LOST: Self = Self::amount(0);

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        self.0
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self(register)
    }
}

/// One of the words of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NthWord {
    /// The place of the limit in its record.
    pub place: u32,
    /// The index among the words of the limit, from 0.
    pub index: u32,
}

impl Register for NthWord {
    const LOST: Self = Self { place: 0, index: 0 };

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        u64::from(self.place) << 32 | u64::from(self.index)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self { place: (register >> 32) as u32, index: (register & 0xffff_ffff) as u32 }
    }
}

/// Writes one word of the limit at `place` of the record `after` to `scratch.fresh`: the word at
/// the same place of `before` if it is kept, the entry of a resized log, otherwise a word for the
/// used part `used` since the instant in the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_word<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    before: Slot,
    after: Slot,
    NthWord { place, index }: NthWord,
    used: Used,
) {
    let Some(new) = spec(maps, after, place) else {
        return;
    };
    let state = if used == Used::KEPT {
        let from = spec(maps, before, place).map_or(0, |old| u32::from(old.first));
        bucket.cell(from.wrapping_add(index)).map_or(0, |cell| cell.load() >> 1)
    } else if used.0 & Used::RESIZED != 0 {
        let packets = used.0 & 0xff;
        spec(maps, before, place).map_or(0, |old| meter::resized(old, new, bucket, packets, index))
    } else {
        let carried = Carried { used: used.0, at: Ticks::new(scratch.changed_at.get()) };
        meter::seed(new, carried, wall_offset(maps), index)
    };
    if let Some(word) = fresh(scratch, u32::from(new.first).wrapping_add(index)) {
        word.set(state);
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn fresh(scratch: &Scratch, index: u32) -> Option<&Cell<u64>> {
    scratch.fresh.get(index as usize & (WORDS - 1))
}

const _: () = assert!(WORDS.is_power_of_two() && MAX_LIMITS.is_power_of_two());

/// Undoes everything that account `index` has charged to a bucket and to leases.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn give_back<W: Maps>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, index: u32) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(MAX_LIMITS as u64) {
        if number >= account.charges.get() {
            break;
        }
        let number = scratch.unknown(number) as usize;
        if let Some(taken) = account.undos.get(number & (MAX_LIMITS - 1)) {
            match taken.get() {
                (Charge::Word(index), old, new) => {
                    meter::undo(bucket, &Undo { index, old, new });
                }
                (Charge::Lease(index), old, new) => {
                    call!(undo_lease(maps; index, old, new));
                }
            }
        }
    }
}
