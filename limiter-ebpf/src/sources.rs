//! The steps of the source table that the verifier is to walk only once: each is a function of its own, as
//! in [`crate::tables`].

use core::hint::black_box;

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::change::Changes;
use limiter_common::engine::{Change, Maps, Packed, source};
use limiter_common::room;
use limiter_common::source::Source;
use limiter_common::table::Scratch;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::Moment;

use crate::maps::KernelMaps;
use crate::tables::scratch;

/// No reason: something is to be done first.
pub(crate) const MOVED: u32 = u32::MAX;

/// Leaves what a charge changed in the scratch; returns the number of a reason, or [`MOVED`].
#[inline(always)]
pub(crate) fn leave(scratch: &Scratch, charged: Option<Reason>, stored: &Change) -> u32 {
    scratch.source_old.set(stored.old);
    scratch.source_new.set(black_box(stored.new));
    match charged {
        Some(reason) => reason.index(),
        None => MOVED,
    }
}

/// What a function has said that left what changed in the scratch.
#[inline(always)]
pub(crate) fn charged(reason: u32, stored: &mut Change) -> Option<Reason> {
    if reason == MOVED {
        return None;
    }
    let reason = self::reason(reason);
    if matches!(reason, Reason::Conforming) {
        let scratch = scratch()?;
        *stored = Change { old: scratch.source_old.get(), new: scratch.source_new.get() };
    }
    Some(reason)
}

/// A reason that a charge may have.
#[inline(always)]
pub(crate) fn reason(reason: u32) -> Reason {
    if reason == Reason::OverLimit as u32 {
        Reason::OverLimit
    } else if reason == Reason::Conforming as u32 {
        Reason::Conforming
    } else {
        Reason::Contended
    }
}

/// The changes, with all that is worked out of them in the function that asks: there is no stack left for another
/// call.
struct Whole;

impl Changes for Whole {
    #[inline(always)]
    fn moment(&self, generation: u32) -> Moment {
        KernelMaps.moment(generation)
    }
}

/// [`source::changed_at`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_changed_at(resolved: u64, now: u64) -> u64 {
    source::changed_at(&KernelMaps, Resolved::from_raw(resolved), Ticks::new(now)).get()
}

/// [`source::converted`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_convert(resolved: u64, tat: u64, at: u64, now: u64) -> u64 {
    let (resolved, tat) = (Resolved::from_raw(resolved), Ticks::new(tat));
    let (at, now) = (Ticks::new(at), Ticks::new(now));
    source::converted(&KernelMaps, &Whole, resolved, tat, at, now).get()
}

/// The TAT that a word has once it is converted to the limit that its bucket was pointed at.
#[inline(always)]
pub(crate) fn converted(resolved: Resolved, word: Word, now: Ticks) -> u64 {
    let at = limiter_changed_at(resolved.raw(), now.get());
    limiter_convert(resolved.raw(), word.tat().get(), at, now.get())
}

/// [`Maps::judge_aggregate`]; returns the number of a reason.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_aggregate(
    source: u64,
    version: u32,
    slot: u32,
    length: u64,
    now: u64,
) -> u32 {
    let slot = Slot::new(slot);
    let Some(limit) = KernelMaps.limit(slot) else {
        return Reason::NoRule.index();
    };
    let source = Source::from_word(source, version);
    room::aggregate::judge(&KernelMaps, &source, slot, limit, length, Ticks::new(now)).index()
}

#[inline(always)]
pub(crate) fn judge_aggregate(source: &Source, slot: Slot, length: u64, now: Ticks) -> Reason {
    let (word, version) = source.to_word();
    let reason = limiter_aggregate(word, version, slot.index(), length, now.get());
    Reason::from_index(reason)
}

/// [`Maps::debt`], in ticks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_debt(source: u64, version: u32, slot: u32) -> u64 {
    let source = Source::from_word(source, version);
    room::aggregate::debt(&KernelMaps, &source, Slot::new(slot)).get()
}

#[inline(always)]
pub(crate) fn debt(source: &Source, slot: Slot) -> Ticks {
    let (word, version) = source.to_word();
    Ticks::new(limiter_debt(word, version, slot.index()))
}

/// [`Maps::first`]: what changed is left in the scratch. `kind` is the IP version, and above it `defer`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_first(source: u64, kind: u32, generation: u64, length: u64, now: u64) -> u64 {
    let (source, now) = (Source::from_word(source, kind & 0xff), Ticks::new(now));
    let (generation, defer) = (Generation::new(generation), kind >> 8 & 1 != 0);
    let (outcome, stored) = source::first(&KernelMaps, generation, &source, length, now, defer);
    if let Some(scratch) = scratch() {
        scratch.source_old.set(stored.old);
        scratch.source_new.set(stored.new);
    }
    outcome.raw()
}

#[inline(always)]
pub(crate) fn first(
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
    defer: bool,
) -> (Packed, Change) {
    let (word, version) = source.to_word();
    let kind = version | u32::from(defer) << 8;
    let generation = u64::from(generation.get());
    let outcome = Packed::from_raw(limiter_first(word, kind, generation, length, now.get()));
    let stored = match scratch() {
        Some(scratch) => Change { old: scratch.source_old.get(), new: scratch.source_new.get() },
        None => Change::NONE,
    };
    (outcome, stored)
}

/// [`Maps::without_bucket`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_without_bucket(
    source: u64,
    version: u32,
    generation: u64,
    length: u64,
    now: u64,
) -> u64 {
    let (source, now) = (Source::from_word(source, version), Ticks::new(now));
    let generation = Generation::new(generation);
    source::without_bucket(&KernelMaps, generation, &source, length, now).pack().raw()
}

#[inline(always)]
pub(crate) fn without_bucket(
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
) -> Packed {
    let (word, version) = source.to_word();
    let generation = u64::from(generation.get());
    Packed::from_raw(limiter_without_bucket(word, version, generation, length, now.get()))
}

/// [`Maps::count_source`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_count_source(source: u64, version: u32, passed: u32) -> u32 {
    source::count(&KernelMaps, &Source::from_word(source, version), passed != 0);
    0
}

#[inline(always)]
pub(crate) fn count(source: &Source, passed: bool) {
    let (word, version) = source.to_word();
    limiter_count_source(word, version, u32::from(passed));
}
