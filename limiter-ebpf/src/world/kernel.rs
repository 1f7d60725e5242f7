//! The maps of the kernel, and what all look-ups share.

use limiter_common::cell::Meter;
use limiter_common::outcome::Insert;
use limiter_common::packet::Facts;
use limiter_common::register::Place;
use limiter_common::source::Source;
use limiter_common::table::Scratch;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Control};

use super::frame::Frame;
use super::maps::{CONTROL, SCRATCH};

/// The maps.
pub(crate) struct Kernel;

/// The clock: the kernel's, or one of tests.
pub(crate) trait Clock {
    /// The time at the beginning of a packet: now, or a little before ([`limiter_common::clock`]).
    fn recent<const LAYER_3: bool>(&self, frame: &Frame<LAYER_3>) -> Ticks;

    /// The time now, when the packet came with a recent one.
    fn now(&self, recent: Ticks) -> Ticks;
}

/// Where the buckets of sources are.
pub(crate) trait Home {
    /// A value of a map that has a bucket.
    type Bucket;

    /// A bucket in place.
    type Meter: Meter + Place;

    /// The bucket of a source.
    fn find(&self, source: &Source) -> Option<Self::Meter>;

    /// The bucket of a source that was found before, and crossed to a BPF function.
    fn at(&self, bucket: *mut Self::Bucket, source: &Source) -> Option<Self::Meter>;

    /// The bucket of the source with a name ([`Place::name`]) that was found before, without a
    /// lock.
    fn named(&self, bucket: *mut Self::Bucket, name: u64) -> Option<Self::Meter>;

    /// Counts packets that were dropped.
    fn count_drops(&self, meter: &Self::Meter, packets: u64);

    /// Makes the bucket of a source, if there is none and there is room.
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert;
}

/// `EEXIST`: another CPU inserted first.
const EEXIST: i32 = -17;

#[inline(always)]
pub(crate) fn inserted(result: Result<(), i32>) -> Insert {
    match result {
        Ok(()) => Insert::Made,
        Err(EEXIST) => Insert::Exists,
        Err(_) => Insert::Refused,
    }
}

/// The packet under way on this CPU.
#[inline(always)]
pub(crate) fn scratch<'a>() -> Option<&'a Scratch> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU. Its
    // only field that is no cell is written through `facts`, before any shared reference.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &*scratch })
}

/// The facts of the packet under way, to be written. The caller has no other reference to them.
#[inline(always)]
pub(crate) fn facts<'a>() -> Option<&'a mut Facts> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU, and
    // whoever calls this has no other reference to it.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut (*scratch).facts })
}

/// A word of the control map.
#[inline(always)]
pub(crate) fn control(word: Control) -> u64 {
    control_at(word.index())
}

/// A word of the control map by its index.
#[inline(always)]
pub(super) fn control_at(index: u32) -> u64 {
    match CONTROL.get_ptr(index) {
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        Some(value) => unsafe { value.read_volatile() },
        None => 0,
    }
}

/// An instruction that no other call of this has, so that the compiler joins nothing before it.
#[inline(always)]
pub(crate) fn apart<const NUMBER: u32>() {
    // SAFETY: it changes a register that a call has used up.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("r1 = {number}", number = const NUMBER, out("r1") _, options(nomem, nostack));
    }
}
