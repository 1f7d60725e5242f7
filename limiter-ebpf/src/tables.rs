//! The steps of a decision over several tables, each a function of its own.
//!
//! A function with external linkage is proven by the verifier by itself, for any arguments, and
//! then called without being walked again. So eight tables cost it little more than one. Such
//! functions share nothing but maps: the packet under way is in [`crate::maps::scratch`].

use core::ptr::{NonNull, null_mut};

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use limiter_common::bucket::{Generation, Slot};
use limiter_common::cell::Meter as _;
use limiter_common::engine::{self, Change, Outcome, Packed, source};
use limiter_common::gcra::Charge;
use limiter_common::meter::{Charged, Peek};
use limiter_common::packet;
use limiter_common::source::Source;
use limiter_common::table::limit;
use limiter_common::table::{self, Code, Scratch, Steps};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket as SourceBucket, KeyedBucket, RuleSetHeader};

use crate::atomic::{MapKeyed, MapMeter};
use crate::frame::Frame;
use crate::maps::{self, KernelMaps};

/// A bucket in a map, or null.
pub(crate) type Bucket = *mut KeyedBucket;

#[inline(always)]
fn keyed(bucket: Bucket) -> Option<MapKeyed> {
    NonNull::new(bucket).map(MapKeyed::new)
}

#[inline(always)]
pub(crate) fn scratch<'a>() -> Option<&'a Scratch> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU. Its only
    // field that is no cell is written in `limiter_begin_packet`, before any shared reference.
    maps::scratch().map(|scratch| unsafe { &*scratch })
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_begin_packet(
    ctx: *mut xdp_md,
    generation: u64,
    header: u64,
    length: u64,
    now: u64,
) -> u32 {
    let Some(place) = maps::scratch() else { return 0 };
    let context = XdpContext::new(ctx);
    // SAFETY: this CPU's own copy, and no other reference to it at this time.
    let facts = unsafe { &mut (*place).facts };
    if packet::facts(&Frame::new(&context), facts).is_err() {
        return 0;
    }
    // SAFETY: the context pointer is the one that the kernel passed.
    facts.set_interface(unsafe { (*ctx).ingress_ifindex });
    let Some(scratch) = scratch() else { return 0 };
    let header = RuleSetHeader::from_raw(header);
    let generation = Generation::new(generation);
    table::begin_packet(&KernelMaps, scratch, generation, header, length, Ticks::new(now));
    1
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_drive(tables: u32) -> u64 {
    // Only `begin_packet` needs the context, and it was called before.
    table::drive(&KernelSteps(null_mut()), tables).raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_begin(index: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    u32::from(table::begin(&KernelMaps, scratch, index))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_peek(bucket: Bucket, index: u32) -> u32 {
    let Some(scratch) = scratch() else { return Code::Contended as u32 };
    table::peek(&KernelMaps, keyed(bucket), scratch, index) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_repair(index: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    table::repair(&KernelMaps, scratch, index);
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_look(bucket: Bucket, index: u32) -> u32 {
    let peek = |again| {
        let bucket = if again { made(index) } else { bucket };
        Code::from_raw(limiter_peek(bucket, index))
    };
    let repair = || {
        limiter_repair(index);
    };
    table::look(peek, repair) as u32
}

#[inline(always)]
fn made(index: u32) -> Bucket {
    let bucket = scratch().and_then(|scratch| table::bucket(&KernelMaps, scratch, index));
    bucket.map_or(null_mut(), MapKeyed::as_ptr)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_charge(bucket: Bucket, index: u32) -> u32 {
    let Some(scratch) = scratch() else { return Code::Contended as u32 };
    table::charge(&KernelMaps, keyed(bucket), scratch, index) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_fail(index: u32, code: u32) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::fail(&KernelMaps, scratch, index, Code::from_raw(code)).pack().raw()
}

/// `source`: the address as it stands in the packet, of a version 4 or 6.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_plain_source(
    source: u64,
    version: u32,
    generation: u64,
    length: u64,
    now: u64,
) -> u64 {
    let [a, b, c, d, ..] = source.to_ne_bytes();
    let source =
        if version == 4 { Source::V4([a, b, c, d]) } else { Source::V6(source.to_ne_bytes()) };
    let generation = Generation::new(generation);
    engine::plain_source(&KernelMaps, generation, &source, length, Ticks::new(now)).pack().raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_source() -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::judge_source(&KernelMaps, scratch).pack().raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_dropped(bucket: Bucket, index: u32, code: u32) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::dropped(&KernelMaps, keyed(bucket), scratch, index, Code::from_raw(code)).pack().raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_finish(source: u64, tables: u32) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::finish(&KernelMaps, scratch, Packed::from_raw(source).unpack(), tables).pack().raw()
}

/// `bucket` is one of `KEYED` or of `BUDGETS`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_peek_limit(bucket: Bucket, slot: u32, place: u32, scale: u32) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return Peek::Moved as u32;
    };
    limit::peek(&KernelMaps, scratch, &bucket, Slot::new(slot), place, scale != 0) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_charge_limit(
    bucket: Bucket,
    slot: u32,
    place: u32,
    scale: u32,
    index: u32,
) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return Charged::Moved as u32;
    };
    let slot = Slot::new(slot);
    limit::charge(&KernelMaps, scratch, &bucket, slot, place, scale != 0, index) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_over_source(outcome: u64) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::over_source(&KernelMaps, scratch, Packed::from_raw(outcome).unpack()).pack().raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_most_specific(index: u32) -> u32 {
    let Some(scratch) = scratch() else { return Slot::NONE.index() };
    table::most_specific(&KernelMaps, scratch, index).index()
}

#[inline(always)]
pub(crate) fn most_specific(index: u32) -> Slot {
    Slot::new(limiter_most_specific(index))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_freeze(bucket: Bucket, scale: u32) -> u32 {
    if let Some(bucket) = keyed(bucket) {
        table::freeze(&bucket, scale & 1 != 0);
    }
    0
}

#[inline(always)]
pub(crate) fn freeze(bucket: &MapKeyed, scale: bool) {
    limiter_freeze(bucket.as_ptr(), u32::from(scale));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_clear_fresh() -> u32 {
    if let Some(scratch) = scratch() {
        table::clear_fresh(scratch);
    }
    0
}

#[inline(always)]
pub(crate) fn clear_fresh() {
    limiter_clear_fresh();
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_store_fresh(bucket: Bucket, scale: u32) -> u32 {
    if let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) {
        table::store_fresh(scratch, &bucket, scale & 1 != 0);
    }
    0
}

#[inline(always)]
pub(crate) fn store_fresh(bucket: &MapKeyed, scale: bool) {
    limiter_store_fresh(bucket.as_ptr(), u32::from(scale));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_update(bucket: Bucket, target: u32, shared: u32) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return 0;
    };
    table::update(&KernelMaps, scratch, &bucket, Slot::new(target), shared != 0);
    0
}

#[inline(always)]
pub(crate) fn update(bucket: &MapKeyed, target: Slot, shared: bool) {
    limiter_update(bucket.as_ptr(), target.index(), u32::from(shared));
}

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
    let mut stored = None;
    let charged = source::charge_contended(meter.word(), scale != 0, &charge, &mut stored);
    if let Some(Change { old, new }) = stored {
        scratch.source_old.set(old);
        scratch.source_new.set(new);
    }
    match charged {
        Some(reason) => reason.index(),
        None => MOVED,
    }
}

/// No reason: something is to be done first.
const MOVED: u32 = u32::MAX;

#[inline(always)]
pub(crate) fn charge_contended(
    meter: &MapMeter,
    scale: bool,
    charge: &Charge,
    stored: &mut Option<Change>,
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
    *stored = Some(Change { old: scratch.source_old.get(), new: scratch.source_new.get() });
    Some(Reason::Conforming)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_share(bucket: Bucket, before: u32, after: u32, place: u32) -> u64 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return 0;
    };
    let (before, after) = (Slot::new(before), Slot::new(after));
    limit::share(&KernelMaps, scratch, &bucket, before, after, place)
}

/// `at`: the place above, the word in the lower half.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_word(bucket: Bucket, before: u32, after: u32, at: u64, share: u64) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return 0;
    };
    let slots = (Slot::new(before), Slot::new(after));
    let at = ((at >> 32) as u32, (at & 0xffff_ffff) as u32);
    limit::word(&KernelMaps, scratch, &bucket, slots, at, share);
    0
}

#[inline(always)]
pub(crate) fn peek_limit(bucket: &MapKeyed, slot: Slot, place: u32, scale: bool) -> Peek {
    match limiter_peek_limit(bucket.as_ptr(), slot.index(), place, u32::from(scale)) {
        0 => Peek::Conforming,
        1 => Peek::Over,
        _ => Peek::Moved,
    }
}

#[inline(always)]
pub(crate) fn charge_limit(
    bucket: &MapKeyed,
    slot: Slot,
    place: u32,
    scale: bool,
    index: u32,
) -> Charged {
    match limiter_charge_limit(bucket.as_ptr(), slot.index(), place, u32::from(scale), index) {
        0 => Charged::Conforming,
        1 => Charged::Over,
        2 => Charged::Contended,
        _ => Charged::Moved,
    }
}

#[inline(always)]
pub(crate) fn limit_share(bucket: &MapKeyed, before: Slot, after: Slot, place: u32) -> u64 {
    limiter_share(bucket.as_ptr(), before.index(), after.index(), place)
}

#[inline(always)]
pub(crate) fn limit_word(
    bucket: &MapKeyed,
    (before, after): (Slot, Slot),
    (place, index): (u32, u32),
    share: u64,
) {
    let at = u64::from(place) << 32 | u64::from(index);
    limiter_word(bucket.as_ptr(), before.index(), after.index(), at, share);
}

#[inline(always)]
fn contended() -> u64 {
    Outcome::without_rule(Reason::Contended).pack().raw()
}

/// The steps of one packet in the kernel.
pub(crate) struct KernelSteps(pub(crate) *mut xdp_md);

impl Steps for KernelSteps {
    type Pointer = Bucket;

    #[inline(always)]
    fn nowhere(&self) -> Bucket {
        null_mut()
    }

    #[inline(always)]
    fn begin_packet(&self, generation: Generation, header: RuleSetHeader, length: u64, now: Ticks) {
        let generation = u64::from(generation.get());
        limiter_begin_packet(self.0, generation, header.raw(), length, now.get());
    }

    #[inline(always)]
    fn drive(&self, tables: u32) -> Packed {
        Packed::from_raw(limiter_drive(tables))
    }

    #[inline(always)]
    fn begin(&self, index: u32) -> bool {
        limiter_begin(index) != 0
    }

    #[inline(always)]
    fn find(&self, index: u32) -> Bucket {
        maps::keyed_of_scratch(index)
    }

    #[inline(always)]
    fn look(&self, bucket: Bucket, index: u32) -> Code {
        Code::from_raw(limiter_look(bucket, index))
    }

    #[inline(always)]
    fn charge(&self, bucket: Bucket, index: u32) -> Code {
        Code::from_raw(limiter_charge(bucket, index))
    }

    #[inline(always)]
    fn fail(&self, index: u32, code: Code) -> Packed {
        Packed::from_raw(limiter_fail(index, code as u32))
    }

    #[inline(always)]
    fn plain_source(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
    ) -> Packed {
        let (source, version) = match *source {
            Source::V4([a, b, c, d]) => (u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), 4),
            Source::V6(prefix) => (u64::from_ne_bytes(prefix), 6),
        };
        let generation = u64::from(generation.get());
        Packed::from_raw(limiter_plain_source(source, version, generation, length, now.get()))
    }

    #[inline(always)]
    fn source(&self) -> Packed {
        Packed::from_raw(limiter_source())
    }

    #[inline(always)]
    fn over_source(&self, outcome: Packed) -> Packed {
        Packed::from_raw(limiter_over_source(outcome.raw()))
    }

    #[inline(always)]
    fn dropped(&self, bucket: Bucket, index: u32, code: Code) -> Packed {
        Packed::from_raw(limiter_dropped(bucket, index, code as u32))
    }

    #[inline(always)]
    fn finish(&self, source: Packed, tables: u32) -> Packed {
        Packed::from_raw(limiter_finish(source.raw(), tables))
    }
}
