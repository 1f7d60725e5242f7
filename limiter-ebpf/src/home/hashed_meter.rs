//! A bucket of a source inside a hash map.

use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::ptr::NonNull;

use limiter_common::cell::{Cell, Meter};
use limiter_common::register::Place;
use limiter_common::wire::Bucket;

use crate::world::atomic::MapWord;

/// A bucket inside a map.
pub(crate) struct MapMeter {
    word: MapWord,
    resolved: MapWord,
    bucket: NonNull<Bucket>,
}

impl MapMeter {
    /// Takes what a map look-up returned.
    #[inline(always)]
    pub(crate) fn new(bucket: NonNull<Bucket>) -> Self {
        // SAFETY: `bucket` points at a whole value; these are addresses of its fields.
        let (word, resolved) =
            unsafe { (&raw mut (*bucket.as_ptr()).word, &raw mut (*bucket.as_ptr()).resolved) };
        // SAFETY: fields of a non-null value are not null.
        unsafe {
            Self {
                word: MapWord::new(NonNull::new_unchecked(word)),
                resolved: MapWord::new(NonNull::new_unchecked(resolved)),
                bucket,
            }
        }
    }
}

impl Place for MapMeter {
    #[inline(always)]
    fn place(&self) -> *mut u8 {
        self.bucket.as_ptr().cast()
    }
}

impl MapMeter {
    /// Counts packets that were dropped.
    #[inline(always)]
    pub(crate) fn count_drops(&self, packets: u64) {
        // SAFETY: as in `MapWord::load`, and the result stays unused, as in `count`.
        unsafe {
            let counter = &raw mut (*self.bucket.as_ptr()).dropped;
            atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, packets);
        }
    }

    /// Packets that it has counted.
    #[inline(always)]
    pub(crate) fn packets(&self) -> u64 {
        // SAFETY: as in `MapWord::load`.
        unsafe {
            let bucket = self.bucket.as_ptr();
            let passed = (&raw const (*bucket).passed).read_volatile();
            passed.wrapping_add((&raw const (*bucket).dropped).read_volatile())
        }
    }
}

impl Meter for MapMeter {
    #[inline(always)]
    fn word(&self) -> &impl Cell {
        &self.word
    }

    #[inline(always)]
    fn resolved(&self) -> &impl Cell {
        &self.resolved
    }

    #[inline(always)]
    fn count(&self, passed: bool) {
        // SAFETY: as in `MapWord::load`. The result must stay unused: with a used result LLVM
        // 22 returns the addend instead of the old value (llvm/llvm-project#210280). The orderings
        // differ so that the two stay two instructions: joined, they would add to a pointer with an
        // offset that depends on the way there, which the verifier grants only with CAP_PERFMON.
        unsafe {
            let bucket = self.bucket.as_ptr();
            if passed {
                let counter = &raw mut (*bucket).passed;
                atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, 1);
            } else {
                let counter = &raw mut (*bucket).dropped;
                atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, 1);
            }
        }
    }
    #[inline(always)]
    fn uncount(&self) {
        // SAFETY: as in `count`. The complement of one, so the sum is one less.
        unsafe {
            let counter = &raw mut (*self.bucket.as_ptr()).passed;
            atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, u64::MAX);
        }
    }
}
