//! Room for entries: the frames beside the bucket maps, and the budgets of new entries.

use core::ptr::NonNull;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{Array, HashMap, PerCpuArray},
    macros::btf_map,
};
use limiter_common::cell::Cell;
use limiter_common::engine::Insert;
use limiter_common::room::clock::{self, Claim};
use limiter_common::room::{self, AdmissionCells, Frames, Leave, SpaceWords, Spaces, source};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{AGGREGATES as AGGREGATE_COUNT, Bucket, Lane, Space};

use crate::atomic::{MapMeter, MapWord};
use crate::maps::{KernelMaps, by_family, inserted};

/// Settings and hands of the tables of entries. Settings are written by the daemon that makes the maps.
#[btf_map]
static SPACES: Array<Space, { Lane::COUNT }> = Array::new();

/// New entries by table. Written here, summed by the daemon.
#[btf_map]
static ADMISSION: PerCpuArray<AdmissionCells, { Lane::COUNT }> = PerCpuArray::new();

/// Buckets of IPv4 sources. Written here; read by the daemon. What may leave: [`room`].
#[btf_map]
pub(crate) static SOURCES_V4: HashMap<[u8; 4], Bucket, 262_144> = HashMap::new();

/// Buckets of IPv6 /64s. As above.
#[btf_map]
pub(crate) static SOURCES_V6: HashMap<[u8; 8], Bucket, 262_144> = HashMap::new();

/// The sources of `SOURCES_V4`: [`source::name`].
#[btf_map]
static FRAMES_V4: Array<u64, 262_144> = Array::new();

/// The sources of `SOURCES_V6`.
#[btf_map]
static FRAMES_V6: Array<u64, 262_144> = Array::new();

/// Buckets that sources without one of their own share.
#[btf_map]
static AGGREGATES: Array<u64, { AGGREGATE_COUNT as usize }> = Array::new();

/// A word of [`AGGREGATES`].
#[inline(always)]
pub(crate) fn aggregate(index: u32) -> Option<MapWord> {
    AGGREGATES.get_ptr_mut(index).and_then(NonNull::new).map(MapWord::new)
}

/// A [`Space`] inside its map.
struct MapSpace(NonNull<Space>);

impl MapSpace {
    #[inline(always)]
    fn read(&self, field: impl FnOnce(*mut Space) -> *mut u64) -> u64 {
        // SAFETY: a field of a whole value of the array, alive as long as the program, aligned to 8.
        unsafe { field(self.0.as_ptr()).read_volatile() }
    }

    #[inline(always)]
    fn word(&self, field: impl FnOnce(*mut Space) -> *mut u64) -> MapWord {
        // SAFETY: a field of a value that is not null is not null.
        MapWord::new(unsafe { NonNull::new_unchecked(field(self.0.as_ptr())) })
    }
}

/// The address of a field of a [`Space`].
macro_rules! field {
    ($name:ident) => {
        // SAFETY: only the address of the field is computed, of a whole value.
        |space: *mut Space| unsafe { &raw mut (*space).$name }
    };
}

impl SpaceWords for MapSpace {
    #[inline(always)]
    fn entries(&self) -> u64 {
        self.read(field!(entries))
    }

    #[inline(always)]
    fn keep(&self) -> Ticks {
        Ticks::new(self.read(field!(keep)))
    }

    #[inline(always)]
    fn cost(&self) -> Ticks {
        Ticks::new(self.read(field!(cost)))
    }

    #[inline(always)]
    fn tolerance(&self) -> Ticks {
        Ticks::new(self.read(field!(tolerance)))
    }

    #[inline(always)]
    fn seed(&self) -> u64 {
        self.read(field!(seed))
    }

    #[inline(always)]
    fn hand(&self) -> impl Cell {
        self.word(field!(hand))
    }

    #[inline(always)]
    fn flood_until(&self) -> impl Cell {
        self.word(field!(flood_until))
    }

    #[inline(always)]
    fn total(&self) -> impl Cell {
        self.word(field!(total))
    }
}

#[inline(always)]
pub(crate) fn admission<'a>(lane: Lane) -> Option<&'a AdmissionCells> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU, and every
    // field is a cell.
    ADMISSION.get_ptr_mut(lane.index()).map(|cells| unsafe { &*cells })
}

impl Spaces for KernelMaps {
    #[inline(always)]
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        SPACES.get_ptr_mut(lane.index()).and_then(NonNull::new).map(MapSpace)
    }

    #[inline(always)]
    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        admission(lane)
    }
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

/// In two functions, one after the other: their callers share 512 bytes of stack with them.
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
