//! The home of the buckets of sources that short limits may have: lines of an array, [`limiter_common::line`]. It has what
//! `hashed` has in the program for hash maps.
//!
//! A bucket in a line crosses to functions of their own as its entry, its name, and what its limit was last read as.

use core::hint::black_box;
use core::ptr::{NonNull, null_mut};

use aya_ebpf::{
    Global,
    bindings::BPF_F_MMAPABLE,
    btf_maps::{Array, PerCpuArray},
    macros::btf_map,
};
use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::Meter as _;
use limiter_common::engine::{Change, Insert, Outcome, Packed, source};
use limiter_common::gcra::Charge;
use limiter_common::line::{self, Made, Place, Tenant};
use limiter_common::room::source::name;
use limiter_common::room::{Leave, admission};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Lane, LineEntry};

use crate::line_steps::Step;
use crate::line_words::{MapEntry, MapLine};
use crate::maps::{KernelMaps, apart};
use crate::sources;
use crate::tables::scratch;

/// A bucket in place.
pub(crate) type Meter = Tenant<MapLine>;

/// Lines of a family.
#[unsafe(no_mangle)]
static SOURCE_LINES: Global<u32> = Global::new(0);

/// Where IPv4 sources have their lines.
#[unsafe(no_mangle)]
static SOURCE_SEED_V4: Global<u64> = Global::new(0);

/// Where IPv6 sources have their lines.
#[unsafe(no_mangle)]
static SOURCE_SEED_V6: Global<u64> = Global::new(0);

/// What a limit was last read as, for [`limiter_line_contended`].
#[btf_map]
static SEEN: PerCpuArray<u64, 1> = PerCpuArray::new();

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// Buckets of IPv4 sources: lines of eight, of which the first is the line's head. Written here; read by the daemon, which maps
/// it. What may leave: [`line::keep`]. The kernel puts what can be mapped on pages of its own, so lines are aligned to
/// their size. An entry is a value of its own, and not its line: without `CAP_PERFMON` the verifier takes an index of any
/// number, but walks far more once a number was added to a pointer into a value.
#[btf_map]
static LINES_V4: Array<LineEntry, 8, MMAPABLE> = Array::new();

/// Buckets of IPv6 /64s. As above.
#[btf_map]
static LINES_V6: Array<LineEntry, 8, MMAPABLE> = Array::new();

/// The line of a name, and the way at which the search begins.
#[inline(always)]
fn line_of(name: u64, version: u32) -> (MapLine, u32) {
    let seed = if version == 4 { SOURCE_SEED_V4.load() } else { SOURCE_SEED_V6.load() };
    let Place { line: index, start } = Place::of(name, seed, SOURCE_LINES.load());
    (MapLine { index, version }, start)
}

/// An entry of a line, or its head.
#[inline(always)]
pub(crate) fn entry_at(line: &MapLine, way: u32) -> Option<NonNull<LineEntry>> {
    let index = line.index.wrapping_mul(8).wrapping_add(way & 7);
    // As in `by_family`: the kernel looks into an array that it knows without a call. A pointer that
    // may be null, and not an `Option` of one: the compiler may put the pointer of a `None` into a
    // register that was never written, which the verifier refuses to read.
    let entry = if line.version == 4 {
        let entry = LINES_V4.get_ptr_mut(index).unwrap_or(null_mut());
        apart::<4>();
        entry
    } else {
        let entry = LINES_V6.get_ptr_mut(index).unwrap_or(null_mut());
        apart::<6>();
        entry
    };
    NonNull::new(entry)
}

/// A bucket in an entry that was found before.
#[inline(always)]
fn resume(entry: *mut LineEntry, name: u64, version: u32, seen: u64) -> Option<Meter> {
    let entry = MapEntry(NonNull::new(entry)?);
    Some(Tenant::resume(line_of(name, version).0, entry, name, seen))
}

/// Where a generation stands, over a slot or an IP version.
const GENERATION: u32 = 32;

/// [`line::take`]: 1 if it was free.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn limiter_line_take(index: u32, version: u32) -> u32 {
    u32::from(line::take(&MapLine { index, version }))
}

/// [`line::victim`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn limiter_line_victim(
    index: u32,
    version: u32,
    start: u32,
    now: u64,
    keep: u64,
) -> u64 {
    let leave = Leave { now: Ticks::new(now), keep: Ticks::new(keep) };
    line::victim(&MapLine { index, version }, start, &leave)
}

/// [`limiter_common::engine::Maps::meter`].
#[inline(always)]
pub(crate) fn meter(source: &Source) -> Option<Meter> {
    let name = name(source)?;
    let (line, start) = line_of(name, source.to_word().1);
    line::tenant(&line, start, name)
}

/// Counts packets that were dropped.
#[inline(always)]
pub(crate) fn count_drops(meter: &Meter, packets: u64) {
    meter.entry().count_drops((packets & 0xffff_ffff) as u32);
}

#[inline(always)]
pub(crate) fn charge_again(
    meter: &Meter,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
    stored: &mut Change,
) -> Packed {
    let (word, version) = source.to_word();
    let kind = u64::from(version) | u64::from(generation.get()) << GENERATION;
    let outcome = limiter_line_again(pointer(meter), word, kind, length, now.get());
    if let Some(scratch) = scratch() {
        *stored = Change { old: scratch.source_old.get(), new: scratch.source_new.get() };
    }
    Packed::from_raw(outcome)
}

#[inline(always)]
fn pointer(meter: &Meter) -> *mut LineEntry {
    meter.entry().0.as_ptr()
}

#[inline(always)]
pub(crate) fn re_resolve(meter: &Meter, old: Resolved, generation: Generation, slot: Slot) {
    let new = u64::from(slot.index()) | u64::from(generation.get()) << GENERATION;
    let version = meter.line().version;
    limiter_line_resolve(pointer(meter), meter.name(), version, old.raw(), new);
}

#[inline(always)]
pub(crate) fn rescale(meter: &Meter, resolved: Resolved, word: Word, now: Ticks) {
    let tat = sources::converted(resolved, word, now);
    limiter_line_store(pointer(meter), meter.name(), resolved.raw(), word.raw(), tat);
}

/// The bucket has the scale bit of the limit that was read last: the caller has seen to that.
#[inline(always)]
pub(crate) fn charge_contended(
    meter: &Meter,
    _scale: bool,
    charge: &Charge,
    stored: &mut Change,
) -> Option<Reason> {
    sources::charged(contended(meter, charge), stored)
}

/// The number of a reason, or [`MOVED`].
#[inline(always)]
pub(crate) fn contended(meter: &Meter, charge: &Charge) -> u32 {
    let Some(seen) = SEEN.get_ptr_mut(0) else {
        return Reason::Contended as u32;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    unsafe { seen.write_volatile(meter.seen()) };
    let [now, cost, horizon] = charge.parts();
    limiter_line_contended(pointer(meter), meter.name(), now, cost, horizon)
}

/// [`limiter_common::engine::Maps::charge_contended`]: what the limit was last read as comes in [`SEEN`], and what changed is left in the scratch. The
/// last three are the parts of the charge.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_contended(
    entry: *mut LineEntry,
    name: u64,
    now: u64,
    cost: u64,
    horizon: u64,
) -> u32 {
    let (Some(scratch), Some(seen)) = (scratch(), SEEN.get_ptr(0)) else {
        return Reason::Contended as u32;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let seen = unsafe { seen.read_volatile() };
    // Of the line it takes nothing, so the version does not matter.
    let Some(meter) = resume(entry, name, 4, seen) else {
        return Reason::Contended as u32;
    };
    let (charge, scale) =
        (Charge::of_parts([now, cost, horizon]), Resolved::from_raw(seen).scale());
    let mut stored = Change::NONE;
    let charged = source::charge_contended(meter.word(), scale, &charge, &mut stored);
    sources::leave(scratch, charged, &stored)
}

/// [`limiter_common::engine::Maps::charge_again`]: what changed is left in the scratch. `kind` is the IP version, and above it the generation.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_again(
    entry: *mut LineEntry,
    source: u64,
    kind: u64,
    length: u64,
    now: u64,
) -> u64 {
    let version = (kind & 0xff) as u32;
    let source = Source::from_word(source, version);
    // The limit is read before anything else.
    let meter = name(&source).and_then(|name| resume(entry, name, version, 0));
    let (Some(scratch), Some(meter)) = (scratch(), meter) else {
        return Outcome::without_rule(Reason::Contended).pack().raw();
    };
    let (generation, now) = (Generation::new(kind >> GENERATION), Ticks::new(now));
    scratch.source_old.set(0);
    scratch.source_new.set(black_box(0));
    let (maps, mut stored) = (Step, Change::NONE);
    source::charge_again(&maps, &meter, generation, &source, length, now, &mut stored).pack().raw()
}

/// [`limiter_common::engine::Maps::re_resolve`]: `new` is the slot, and above it the generation.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_resolve(
    entry: *mut LineEntry,
    name: u64,
    version: u32,
    old: u64,
    new: u64,
) -> u32 {
    if let Some(meter) = resume(entry, name, version, old) {
        let slot = Slot::new((new & 0xffff_ffff) as u32);
        let (old, generation) = (Resolved::from_raw(old), Generation::new(new >> GENERATION));
        source::re_resolve(&KernelMaps, &meter, old, generation, slot);
    }
    0
}

/// [`limiter_common::engine::source::store`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_store(
    entry: *mut LineEntry,
    name: u64,
    resolved: u64,
    word: u64,
    tat: u64,
) -> u32 {
    // As in `limiter_line_contended`.
    if let Some(meter) = resume(entry, name, 4, resolved) {
        let (resolved, word) = (Resolved::from_raw(resolved), Word::from_raw(word));
        source::store(&meter, resolved, word, Ticks::new(tat));
    }
    0
}

#[inline(always)]
fn lane(version: u32) -> Lane {
    if version == 4 { Lane::V4 } else { Lane::V6 }
}

/// [`admission::admit`]: 1 if so.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_admit(version: u32, now: u64) -> u32 {
    u32::from(admission::admit(&KernelMaps, lane(version), Ticks::new(now)))
}

/// [`line::insert`]. `kind` is the IP version, and above it whether the first packet was dropped; returns an [`Insert`], and
/// above it whether another entry left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_insert(name: u64, kind: u64, word: u64, resolved: u64, now: u64) -> u32 {
    let version = (kind & 0xff) as u32;
    let (line, start) = line_of(name, version);
    let dropped = kind >> 8 & 1;
    let bucket = Bucket { word, resolved, passed: 1 - dropped, dropped };
    let now = Ticks::new(now);
    let [keep, least] = line::keep(&KernelMaps, lane(version), now);
    let made = line::insert(&line, start, name, &bucket, &Leave { now, keep }, least);
    made.insert as u32 | u32::from(made.evicted) << 8
}

/// [`line::settle`] of what [`limiter_line_insert`] returned; returns an [`Insert`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_settle(version: u32, made: u32, now: u64) -> u32 {
    let made = Made { insert: made_of(made), evicted: made >> 8 != 0 };
    line::settle(&KernelMaps, lane(version), made, Ticks::new(now)) as u32
}

#[inline(always)]
fn made_of(made: u32) -> Insert {
    match made & 0xff {
        0 => Insert::Made,
        1 => Insert::Exists,
        _ => Insert::Refused,
    }
}

/// [`limiter_common::engine::Maps::insert`]. In three functions, one after the other: their callers share 512 bytes of stack with them.
#[inline(always)]
pub(crate) fn insert(source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
    let (Some(name), (_, version)) = (name(source), source.to_word()) else {
        return Insert::Refused;
    };
    if limiter_line_admit(version, now.get()) == 0 {
        return Insert::Refused;
    }
    let kind = u64::from(version) | (bucket.dropped & 1) << 8;
    let made = limiter_line_insert(name, kind, bucket.word, bucket.resolved, now.get());
    made_of(limiter_line_settle(version, made, now.get()))
}
