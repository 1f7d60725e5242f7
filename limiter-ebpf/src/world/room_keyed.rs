//! Room for the keys of tables: the frames beside `KEYED`.

use core::ptr::NonNull;

use aya_ebpf::bindings::BPF_NOEXIST;
use limiter_common::cell::Cell;
use limiter_common::outcome::Insert;
use limiter_common::room::{self, AdmissionCells, Frames, Leave, SpaceWords, Spaces};
use limiter_common::table::{self, Scratch};
use limiter_common::time::Ticks;
use limiter_common::wire::{KeyedBucket, Lane, TableKey};

use super::atomic::{MapKeyed, MapWord};
use super::kernel::{Kernel, inserted, scratch};
use super::maps::{FRAMES_KEYED, KEYED};
use super::room::admission;
use crate::step::step;

/// The frames of the keys of tables.
pub(crate) struct KeyedFrames;

impl Spaces for KeyedFrames {
    #[inline(always)]
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        Kernel.space(lane)
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
    fn give_up(&self, index: u32, state: u64, leave: &Leave) -> bool {
        let Leave { now, keep } = *leave;
        let leave = || Some(step!(leave_keyed(scratch()?; index, state, now, keep)));
        leave().unwrap_or(false)
    }
}

/// [`Frames::give_up`] of a key of a table.
#[inline(always)]
pub(crate) fn leave_keyed(
    scratch: &Scratch,
    index: u32,
    state: u64,
    now: Ticks,
    keep: Ticks,
) -> bool {
    let Some(frame) = FRAMES_KEYED.get_ptr(index) else {
        return false;
    };
    // A copy of this CPU's own: the frame may get another key meanwhile.
    // SAFETY: a whole value of the array; a torn key is found in the state that is read after it.
    unsafe {
        scratch.set_probe((&raw const (*frame).key).read_volatile());
        if (&raw const (*frame).state).read_volatile() != state {
            return false;
        }
    }
    // SAFETY: this CPU's own copy, which nothing changes during the look-up.
    let key: &TableKey = unsafe { &*scratch.probe_ptr() };
    let Some(bucket) = KEYED.get_ptr_mut(key).and_then(NonNull::new) else {
        return true;
    };
    let bucket = MapKeyed::new(bucket);
    if !table::retire(&Kernel, scratch, &bucket, &Leave { now, keep }) {
        return false;
    }
    // It was there, and nobody else removes it.
    let _ = KEYED.remove(key);
    true
}

/// [`limiter_common::world::Tables::insert_keyed`].
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
