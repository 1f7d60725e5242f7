//! The home of the buckets of sources that any limit may have: hash maps of the kernel, with a frame for each entry. The
//! steps of a decision that have a bucket in their hands are here too.

use core::hint::black_box;
use core::ptr::NonNull;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{Array, HashMap},
    macros::btf_map,
};
use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::{Cell, Meter as _};
use limiter_common::engine::{self, Change, Insert, Outcome, Packed};
use limiter_common::gcra::Charge;
use limiter_common::room::clock::{self, Claim};
use limiter_common::room::{self, AdmissionCells, Frames, Leave, SpaceWords, Spaces, source};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Lane};

use crate::atomic::MapWord;
use crate::hashed_meter::MapMeter;
use crate::maps::{KernelMaps, apart, inserted};
use crate::room::admission;
use crate::sources;
use crate::tables::scratch;

/// A bucket in place.
pub(crate) type Meter = MapMeter;

/// Buckets of IPv4 sources. Written here; read by the daemon. What may leave: [`room`].
#[btf_map]
static SOURCES_V4: HashMap<[u8; 4], Bucket, 262_144> = HashMap::new();

/// Buckets of IPv6 /64s. As above.
#[btf_map]
static SOURCES_V6: HashMap<[u8; 8], Bucket, 262_144> = HashMap::new();

/// The sources of `SOURCES_V4`: [`source::name`].
#[btf_map]
static FRAMES_V4: Array<u64, 262_144> = Array::new();

/// The sources of `SOURCES_V6`.
#[btf_map]
static FRAMES_V6: Array<u64, 262_144> = Array::new();

/// What one of two does with the key of a source in the map of its family. The two end differently, so that the compiler
/// does not make one call of them with a map in a variable. The kernel calls a map that it knows without asking it
/// what it is: a known source over its limit costs 1.3 times the least program instead of 1.4. The key is a word of the stack
/// that is written whole, whatever the family: where the processor guesses the family wrong, eight bytes
/// are read, and the verifier grants no read of what was not written.
#[inline(always)]
fn by_family<R>(
    source: &Source,
    v4: impl FnOnce(&[u8; 4]) -> R,
    v6: impl FnOnce(&[u8; 8]) -> R,
) -> R {
    let (word, version) = source.to_word();
    let word = black_box(word).to_ne_bytes();
    if version == 4 {
        // SAFETY: the first half of eight bytes.
        let done = v4(unsafe { &*(&raw const word).cast() });
        apart::<4>();
        done
    } else {
        let done = v6(&word);
        apart::<6>();
        done
    }
}

/// [`limiter_common::engine::Maps::meter`].
#[inline(always)]
pub(crate) fn meter(source: &Source) -> Option<MapMeter> {
    let bucket =
        by_family(source, |key| SOURCES_V4.get_ptr_mut(key), |key| SOURCES_V6.get_ptr_mut(key));
    bucket.and_then(NonNull::new).map(MapMeter::new)
}

/// Counts packets that were dropped.
#[inline(always)]
pub(crate) fn count_drops(meter: &MapMeter, packets: u64) {
    meter.count_drops(packets);
}

/// The frames of the sources of a family.
struct SourceFrames<const VERSION: u32>;

impl<const VERSION: u32> Spaces for SourceFrames<VERSION> {
    #[inline(always)]
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        KernelMaps.space(lane)
    }

    #[inline(always)]
    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        admission(lane)
    }
}

impl<const VERSION: u32> Frames for SourceFrames<VERSION> {
    const LANE: Lane = if VERSION == 4 { Lane::V4 } else { Lane::V6 };

    #[inline(always)]
    fn frame(&self, index: u32) -> Option<impl Cell> {
        let frame =
            if VERSION == 4 { FRAMES_V4.get_ptr_mut(index) } else { FRAMES_V6.get_ptr_mut(index) };
        frame.and_then(NonNull::new).map(MapWord::new)
    }

    #[inline(always)]
    fn probe(&self, number: u32, now: Ticks) -> Option<Claim> {
        Claim::unpack(if VERSION == 4 {
            limiter_probe_v4(number, now.get())
        } else {
            limiter_probe_v6(number, now.get())
        })
    }

    #[inline(always)]
    fn give_up(&self, _index: u32, state: u64, leave: &Leave) -> bool {
        limiter_leave_source(state, VERSION, leave.now.get(), leave.keep.get()) != 0
    }
}

/// [`Frames::probe`] of an IPv4 source: a [`Claim`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_probe_v4(number: u32, now: u64) -> u64 {
    Claim::pack(clock::probe(&SourceFrames::<4>, number, Ticks::new(now)))
}

/// As [`limiter_probe_v4`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_probe_v6(number: u32, now: u64) -> u64 {
    Claim::pack(clock::probe(&SourceFrames::<6>, number, Ticks::new(now)))
}

/// [`Frames::give_up`] of a source.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_leave_source(state: u64, version: u32, now: u64, keep: u64) -> u32 {
    let lane = if version == 4 { Lane::V4 } else { Lane::V6 };
    let source = source::named(lane, state);
    let bucket =
        by_family(&source, |key| SOURCES_V4.get_ptr_mut(key), |key| SOURCES_V6.get_ptr_mut(key));
    let Some(bucket) = bucket.and_then(NonNull::new) else {
        return 1;
    };
    let leave = Leave { now: Ticks::new(now), keep: Ticks::new(keep) };
    let meter = MapMeter::new(bucket);
    if !source::retire(&meter, meter.packets(), &leave) {
        return 0;
    }
    // It was there, and nobody else removes it.
    let _ = by_family(&source, |key| SOURCES_V4.remove(key), |key| SOURCES_V6.remove(key));
    1
}

/// [`room::reserve`] for an IPv4 source: one more than the frame, 0 for none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_reserve_v4(now: u64) -> u64 {
    reserved(room::reserve(&SourceFrames::<4>, Ticks::new(now)))
}

/// As [`limiter_reserve_v4`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_reserve_v6(now: u64) -> u64 {
    reserved(room::reserve(&SourceFrames::<6>, Ticks::new(now)))
}

#[inline(always)]
fn reserved(claim: Option<Claim>) -> u64 {
    claim.map_or(0, |claim| u64::from(claim.index) + 1)
}

/// Makes the bucket of a source. `kind` is the IP version, above it whether the first packet was
/// dropped, and in the upper half the frame; returns an [`Insert`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_make(source: u64, kind: u64, word: u64, resolved: u64) -> u32 {
    let frame = (kind >> 32) as u32;
    let dropped = kind >> 8 & 1;
    let bucket = Bucket { word, resolved, passed: 1 - dropped, dropped };
    let flags = u64::from(BPF_NOEXIST);
    let source = Source::from_word(source, (kind & 0xff) as u32);
    let name = || source::name(&source).unwrap_or(room::EMPTY);
    let make_v4 = |key: &[u8; 4]| {
        let made = inserted(SOURCES_V4.insert(key, bucket, flags));
        room::settle(&SourceFrames::<4>, frame, made, name)
    };
    let make_v6 = |key: &[u8; 8]| {
        let made = inserted(SOURCES_V6.insert(key, bucket, flags));
        room::settle(&SourceFrames::<6>, frame, made, name)
    };
    by_family(&source, make_v4, make_v6) as u32
}

/// [`limiter_common::engine::Maps::insert`]. In two functions, one after the other: their callers share 512 bytes of stack with them.
#[inline(always)]
pub(crate) fn insert(source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
    if source::name(source).is_none() {
        return Insert::Refused;
    }
    let (word, version) = source.to_word();
    let frame =
        if version == 4 { limiter_reserve_v4(now.get()) } else { limiter_reserve_v6(now.get()) };
    if frame == 0 {
        return Insert::Refused;
    }
    let kind = u64::from(version) | (bucket.dropped & 1) << 8 | (frame - 1) << 32;
    match limiter_make(word, kind, bucket.word, bucket.resolved) {
        0 => Insert::Made,
        1 => Insert::Exists,
        _ => Insert::Refused,
    }
}

/// The last three are the parts of the charge. What changed is left in the scratch.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_charge_contended(
    bucket: *mut Bucket,
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
    let charged = engine::source::charge_contended(meter.word(), scale != 0, &charge, &mut stored);
    sources::leave(scratch, charged, &stored)
}

/// [`Maps::charge_again`]: what changed is left in the scratch. `kind` is the IP version, and above it the
/// generation.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_charge_again(
    bucket: *mut Bucket,
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
    let outcome = engine::source::charge_again(
        &KernelMaps,
        &meter,
        generation,
        &source,
        length,
        now,
        &mut stored,
    );
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
extern "C" fn limiter_re_resolve(bucket: *mut Bucket, old: u64, generation: u64, slot: u32) -> u32 {
    if let Some(bucket) = NonNull::new(bucket) {
        let (old, generation) = (Resolved::from_raw(old), Generation::new(generation));
        let (meter, slot) = (MapMeter::new(bucket), Slot::new(slot));
        engine::source::re_resolve(&KernelMaps, &meter, old, generation, slot);
    }
    0
}

#[inline(always)]
pub(crate) fn re_resolve(meter: &MapMeter, old: Resolved, generation: Generation, slot: Slot) {
    let generation = u64::from(generation.get());
    limiter_re_resolve(meter.as_ptr(), old.raw(), generation, slot.index());
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_store(bucket: *mut Bucket, resolved: u64, word: u64, tat: u64) -> u32 {
    if let Some(bucket) = NonNull::new(bucket) {
        let (resolved, word) = (Resolved::from_raw(resolved), Word::from_raw(word));
        engine::source::store(&MapMeter::new(bucket), resolved, word, Ticks::new(tat));
    }
    0
}

#[inline(always)]
pub(crate) fn rescale(meter: &MapMeter, resolved: Resolved, word: Word, now: Ticks) {
    let tat = sources::converted(resolved, word, now);
    limiter_store(meter.as_ptr(), resolved.raw(), word.raw(), tat);
}

#[inline(always)]
pub(crate) fn charge_contended(
    meter: &MapMeter,
    scale: bool,
    charge: &Charge,
    stored: &mut Change,
) -> Option<Reason> {
    let [now, cost, horizon] = charge.parts();
    let reason = limiter_charge_contended(meter.as_ptr(), u32::from(scale), now, cost, horizon);
    sources::charged(reason, stored)
}
