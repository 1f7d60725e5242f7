//! Room for the keys of tables: the frames beside `KEYED`.

use core::ptr::NonNull;

use aya_ebpf::{bindings::BPF_NOEXIST, btf_maps::Array, macros::btf_map};
use limiter_common::cell::Cell;
use limiter_common::engine::Insert;
use limiter_common::room::clock::{self, Claim};
use limiter_common::room::{self, AdmissionCells, Frames, Leave, SpaceWords, Spaces};
use limiter_common::table::{self, Scratch};
use limiter_common::time::Ticks;
use limiter_common::wire::{KeyedBucket, KeyedFrame, Lane, TableKey};

use crate::atomic::{MapKeyed, MapWord};
use crate::maps::{KEYED, KernelMaps, inserted};
use crate::room::admission;
use crate::tables::scratch;

/// The keys of `KEYED`.
#[btf_map]
static FRAMES_KEYED: Array<KeyedFrame, 65_536> = Array::new();

/// The frames of the keys of tables.
struct KeyedFrames;

impl Spaces for KeyedFrames {
    #[inline(always)]
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        KernelMaps.space(lane)
    }

    #[inline(always)]
    fn admission(&self, lane: Lane) -> Option<&AdmissionCells> {
        admission(lane)
    }
}

impl Frames for KeyedFrames {
    const LANE: Lane = Lane::Keyed;

    #[inline(always)]
    fn frame(&self, index: u32) -> Option<impl Cell> {
        let frame = FRAMES_KEYED.get_ptr_mut(index).and_then(NonNull::new)?;
        // SAFETY: a field of a whole value, and so not null.
        Some(MapWord::new(unsafe { NonNull::new_unchecked(&raw mut (*frame.as_ptr()).state) }))
    }

    #[inline(always)]
    fn probe(&self, number: u32, now: Ticks) -> Option<Claim> {
        Claim::unpack(limiter_probe_keyed(number, now.get()))
    }

    #[inline(always)]
    fn give_up(&self, index: u32, state: u64, leave: &Leave) -> bool {
        limiter_leave_keyed(index, state, leave.now.get(), leave.keep.get()) != 0
    }
}

/// As [`limiter_probe_v4`], of a key of a table.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_probe_keyed(number: u32, now: u64) -> u64 {
    Claim::pack(clock::probe(&KeyedFrames, number, Ticks::new(now)))
}

/// [`Frames::give_up`] of a key of a table.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_leave_keyed(index: u32, state: u64, now: u64, keep: u64) -> u32 {
    let (Some(scratch), Some(frame)) = (scratch(), FRAMES_KEYED.get_ptr(index)) else {
        return 0;
    };
    // A copy of this CPU's own: the frame may get another key meanwhile.
    // SAFETY: a whole value of the array; a torn key is found in the state that is read after it.
    unsafe {
        scratch.set_probe((&raw const (*frame).key).read_volatile());
        if (&raw const (*frame).state).read_volatile() != state {
            return 0;
        }
    }
    // SAFETY: this CPU's own copy, which nothing changes during the look-up.
    let key: &TableKey = unsafe { &*scratch.probe_ptr() };
    let Some(bucket) = KEYED.get_ptr_mut(key).and_then(NonNull::new) else {
        return 1;
    };
    let leave = Leave { now: Ticks::new(now), keep: Ticks::new(keep) };
    if !table::retire(&KernelMaps, scratch, &MapKeyed::new(bucket), &leave) {
        return 0;
    }
    // It was there, and nobody else removes it.
    let _ = KEYED.remove(key);
    1
}

/// [`limiter_common::table::Tables::insert_keyed`].
#[inline(always)]
pub(crate) fn insert_keyed(scratch: &Scratch, key: &TableKey, bucket: &KeyedBucket) -> Insert {
    let make = || inserted(KEYED.insert(key, bucket, u64::from(BPF_NOEXIST)));
    let name = |index: u32, before: u64| {
        if let Some(frame) = FRAMES_KEYED.get_ptr_mut(index) {
            // SAFETY: a whole value of the array, and this CPU has taken the frame.
            unsafe { (&raw mut (*frame).key).write_volatile(*key) };
        }
        before.max(room::BUSY) + 1
    };
    room::insert(&KeyedFrames, scratch.now(), make, name)
}
