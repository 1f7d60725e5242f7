//! The steps of the source table that the verifier is to walk only once: each is a function of its own, as
//! in [`crate::tables`].

use core::hint::black_box;
use core::ptr::NonNull;

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::Meter as _;
use limiter_common::engine::{Change, Maps, Outcome, Packed, source};
use limiter_common::gcra::Charge;
use limiter_common::room;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::Bucket as SourceBucket;

use crate::atomic::MapMeter;
use crate::maps::KernelMaps;
use crate::tables::scratch;

/// The last three are the parts of the charge. What changed is left in the scratch.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_charge_contended(
    bucket: *mut SourceBucket,
    scale: u32,
    now: u64,
    cost: u64,
    horizon: u64,
) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), NonNull::new(bucket)) else {
        return Reason::Contended as u32;
    };
    let meter = MapMeter::new(bucket);
    let charge = Charge::of_parts([now, cost, horizon]);
    let mut stored = Change::NONE;
    let charged = source::charge_contended(meter.word(), scale != 0, &charge, &mut stored);
    scratch.source_old.set(stored.old);
    scratch.source_new.set(black_box(stored.new));
    match charged {
        Some(reason) => reason.index(),
        None => MOVED,
    }
}

/// [`Maps::charge_again`]: what changed is left in the scratch. `kind` is the IP version, and above it the
/// generation.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_charge_again(
    bucket: *mut SourceBucket,
    source: u64,
    kind: u64,
    length: u64,
    now: u64,
) -> u64 {
    let (Some(scratch), Some(bucket)) = (scratch(), NonNull::new(bucket)) else {
        return Outcome::without_rule(Reason::Contended).pack().raw();
    };
    let (meter, now) = (MapMeter::new(bucket), Ticks::new(now));
    let source = Source::from_word(source, (kind & 0xff) as u32);
    let generation = Generation::new(kind >> 8);
    let mut stored = Change::NONE;
    let outcome =
        source::charge_again(&KernelMaps, &meter, generation, &source, length, now, &mut stored);
    scratch.source_old.set(stored.old);
    scratch.source_new.set(black_box(stored.new));
    outcome.pack().raw()
}

#[inline(always)]
pub(crate) fn charge_again(
    meter: &MapMeter,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
    stored: &mut Change,
) -> Packed {
    let (word, version) = source.to_word();
    let kind = u64::from(version) | u64::from(generation.get()) << 8;
    let outcome =
        Packed::from_raw(limiter_charge_again(meter.as_ptr(), word, kind, length, now.get()));
    if let Some(scratch) = scratch() {
        *stored = Change { old: scratch.source_old.get(), new: scratch.source_new.get() };
    }
    outcome
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_re_resolve(
    bucket: *mut SourceBucket,
    old: u64,
    generation: u64,
    slot: u32,
    now: u64,
) -> u32 {
    if let Some(bucket) = NonNull::new(bucket) {
        let (old, generation) = (Resolved::from_raw(old), Generation::new(generation));
        let (meter, slot) = (MapMeter::new(bucket), Slot::new(slot));
        source::re_resolve(&KernelMaps, &meter, old, generation, slot, Ticks::new(now));
    }
    0
}

#[inline(always)]
pub(crate) fn re_resolve(
    meter: &MapMeter,
    old: Resolved,
    generation: Generation,
    slot: Slot,
    now: Ticks,
) {
    let generation = u64::from(generation.get());
    limiter_re_resolve(meter.as_ptr(), old.raw(), generation, slot.index(), now.get());
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_rescale(
    bucket: *mut SourceBucket,
    resolved: u64,
    word: u64,
    now: u64,
) -> u32 {
    if let Some(bucket) = NonNull::new(bucket) {
        let (resolved, word) = (Resolved::from_raw(resolved), Word::from_raw(word));
        source::rescale(&KernelMaps, &MapMeter::new(bucket), resolved, word, Ticks::new(now));
    }
    0
}

#[inline(always)]
pub(crate) fn rescale(meter: &MapMeter, resolved: Resolved, word: Word, now: Ticks) {
    limiter_rescale(meter.as_ptr(), resolved.raw(), word.raw(), now.get());
}

/// No reason: something is to be done first.
const MOVED: u32 = u32::MAX;

#[inline(always)]
pub(crate) fn charge_contended(
    meter: &MapMeter,
    scale: bool,
    charge: &Charge,
    stored: &mut Change,
) -> Option<Reason> {
    let [now, cost, horizon] = charge.parts();
    let reason = limiter_charge_contended(meter.as_ptr(), u32::from(scale), now, cost, horizon);
    if reason == MOVED {
        return None;
    }
    if reason == Reason::OverLimit as u32 {
        return Some(Reason::OverLimit);
    }
    if reason != Reason::Conforming as u32 {
        return Some(Reason::Contended);
    }
    let scratch = scratch()?;
    *stored = Change { old: scratch.source_old.get(), new: scratch.source_new.get() };
    Some(Reason::Conforming)
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
