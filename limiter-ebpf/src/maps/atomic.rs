//! Atomic access to map values. `AtomicU64` has no such methods on BPF, and its `load` does not
//! survive instruction selection, so only this file uses intrinsics and volatile reads.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};
use core::ptr::NonNull;

use super::words::{exchange_word, load_word};
use crate::call::call;

use limiter_common::time::Ticks;
use limiter_common::wire::{KeyedBucket, Lease as LeaseWords};
use limiter_decision::algorithm::Words;
use limiter_decision::cell::Cell;
use limiter_decision::maps::{Keyed, Lease};

/// Orders all earlier reads before everything that follows.
///
/// x86 keeps loads in order by itself, so nothing is emitted there. BPF of this instruction set has
/// no fence and no acquiring load, but a fetching atomic instruction is a full barrier: on arm64
/// the kernel turns it into `ldsetal`, or `ldxr`, `stlxr` and `dmb ish` (a failing exchange is not
/// a barrier there). The word is on this CPU's stack, so that CPUs do not wait for each other.
#[inline(always)]
pub(crate) fn acquire_fence() {
    #[cfg(all(target_arch = "bpf", not(bpf_target_arch = "x86_64")))]
    {
        let mut own = 0_u64;
        // SAFETY: a word on the stack that was written before, and is left unchanged. In assembly,
        // because the compiler removes an atomic instruction on a word that nobody else sees.
        unsafe {
            core::arch::asm!("{zero} = atomic_fetch_or((u64 *)({own} + 0), {zero})",
                own = in(reg) &raw mut own, zero = inout(reg) 0_u64 => _, options(nostack));
        }
    }
}

/// A `u64` inside a map value.
pub(crate) struct MapWord(NonNull<u64>);

impl MapWord {
    /// Wraps a field of a value that a map look-up returned.
    #[inline(always)]
    pub(crate) fn new(word: NonNull<u64>) -> Self {
        Self(word)
    }
}

impl Cell for MapWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: the pointer comes from a map look-up in this run of the program, which keeps the
        // value alive (RCU), and it is aligned: the kernel aligns values to 8 bytes.
        unsafe { self.0.as_ptr().read_volatile() }
    }

    #[inline(always)]
    fn acquire_fence(&self) {
        acquire_fence();
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        // SAFETY: as above. SeqCst is what the BPF instruction gives.
        let (_, stored) = unsafe {
            atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                self.0.as_ptr(),
                current,
                new,
            )
        };
        stored
    }
}

/// A bucket of a table, or a budget, inside a map.
#[derive(Clone, Copy)]
pub(crate) struct MapKeyed(NonNull<KeyedBucket>);

impl MapKeyed {
    /// Wraps the result of a map look-up.
    #[inline(always)]
    pub(crate) fn new(bucket: NonNull<KeyedBucket>) -> Self {
        Self(bucket)
    }

    /// Wraps a pointer that was passed to a BPF function.
    #[inline(always)]
    pub(crate) fn at(bucket: *mut KeyedBucket) -> Option<Self> {
        NonNull::new(bucket).map(Self)
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut KeyedBucket {
        self.0.as_ptr()
    }
}

pub(crate) struct KeyedWord {
    bucket: MapKeyed,
    index: u32,
}

impl Cell for KeyedWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        call!(load_word(; &self.bucket, self.index))
    }

    #[inline(always)]
    fn acquire_fence(&self) {
        acquire_fence();
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        call!(exchange_word(; &self.bucket, self.index, current, new))
    }
}

impl Words for MapKeyed {
    type Cell = KeyedWord;

    #[inline(always)]
    fn cell(&self, index: u32) -> Option<KeyedWord> {
        // A word that does not exist reads as zero and cannot be exchanged. No branch, because the
        // verifier would walk both sides for every word.
        Some(KeyedWord { bucket: *self, index })
    }
}

impl Keyed for MapKeyed {
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn address(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    #[inline(always)]
    fn first(&self) -> impl Cell {
        // SAFETY: a field of a whole value, so it is not null.
        unsafe { MapWord(NonNull::new_unchecked((&raw mut (*self.0.as_ptr()).words[0]).cast())) }
    }

    #[inline(always)]
    fn second(&self) -> impl Cell {
        // SAFETY: a field of a whole value, so it is not null.
        unsafe { MapWord(NonNull::new_unchecked((&raw mut (*self.0.as_ptr()).words[1]).cast())) }
    }

    #[inline(always)]
    fn resolved(&self) -> impl Cell {
        // SAFETY: a field of a whole value, so it is not null.
        unsafe { MapWord(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).resolved)) }
    }

    #[inline(always)]
    fn count(&self, passed: bool, packets: u64) {
        // SAFETY: as in `MapBucket::count_passed` of `source_store::hashed`.
        unsafe {
            let bucket = self.0.as_ptr();
            if passed {
                let counter = &raw mut (*bucket).passed;
                atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, packets);
            } else {
                let counter = &raw mut (*bucket).dropped;
                atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, packets);
            }
        }
    }

    #[inline(always)]
    fn touch(&self, now: Ticks) {
        // SAFETY: as in `MapWord::load`; any CPU's time is as good.
        unsafe { (&raw mut (*self.0.as_ptr()).used).write_volatile(now.get()) };
    }

    #[inline(always)]
    fn used(&self) -> u64 {
        // SAFETY: as in `MapWord::load`.
        unsafe { (&raw const (*self.0.as_ptr()).used).read_volatile() }
    }

    #[inline(always)]
    fn packets(&self) -> u64 {
        // SAFETY: as in `MapWord::load`.
        unsafe {
            let bucket = self.0.as_ptr();
            let passed = (&raw const (*bucket).passed).read_volatile();
            passed.wrapping_add((&raw const (*bucket).dropped).read_volatile())
        }
    }
}

pub(crate) struct MapLease(NonNull<LeaseWords>);

impl MapLease {
    /// Wraps the result of a map look-up.
    #[inline(always)]
    pub(crate) fn new(lease: NonNull<LeaseWords>) -> Self {
        Self(lease)
    }
}

impl Lease for MapLease {
    #[inline(always)]
    fn granted(&self) -> u64 {
        // SAFETY: as in `MapWord::load`; the daemon may store to it meanwhile.
        unsafe { (&raw const (*self.0.as_ptr()).granted).read_volatile() }
    }

    #[inline(always)]
    fn expires(&self) -> Ticks {
        // SAFETY: as in `MapWord::load`; the daemon may store to it meanwhile.
        Ticks::new(unsafe { (&raw const (*self.0.as_ptr()).expires).read_volatile() })
    }

    #[inline(always)]
    fn used(&self) -> impl Cell {
        // SAFETY: a field of a whole value, so it is not null.
        unsafe { MapWord(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).used)) }
    }

    #[inline(always)]
    fn deny(&self, units: u64) {
        // SAFETY: as in `MapWord::load`; an atomic addition.
        unsafe {
            let denied = &raw mut (*self.0.as_ptr()).denied;
            atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(denied, units);
        }
    }
}
