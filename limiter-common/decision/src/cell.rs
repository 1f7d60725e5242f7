//! A shared word, independent of where it is stored: in a BPF map, in an atomic of the host, or in
//! a model checker.

/// A 64-bit word that several CPUs change by compare-and-exchange.
///
/// An exchange that stores is a full barrier in both directions. A load, and an exchange that does
/// not store, order nothing by themselves.
pub trait Cell {
    /// Reads the word.
    fn load(&self) -> u64;

    /// Orders earlier reads of any word before everything that follows: an acquire fence, on
    /// processors that may reorder loads. Does nothing by default, for words whose loads acquire.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn acquire_fence(&self) {}

    /// Reads the word, ordered before everything that follows.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn load_acquire(&self) -> u64 {
        let word = self.load();
        self.acquire_fence();
        word
    }

    /// Stores `new` if the word is still `current`. Returns whether it did.
    fn compare_exchange(&self, current: u64, new: u64) -> bool;
}

impl<T: Cell> Cell for &T {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn load(&self) -> u64 {
        T::load(self)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn acquire_fence(&self) {
        T::acquire_fence(self);
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        T::compare_exchange(self, current, new)
    }
}

/// The bucket of one source, in place.
pub trait SourceBucket {
    /// The address, by which it is passed to a subprogram.
    #[cfg(target_arch = "bpf")]
    fn address(&self) -> *mut u8;

    /// The name of the source, if it is not known from the address:
    /// [`limiter_common::bucket_key::BucketKey::name`].
    #[cfg(target_arch = "bpf")]
    fn name(&self) -> u64;

    /// The word with the theoretical arrival time: [`limiter_common::bucket::Word`].
    fn word(&self) -> impl Cell;

    /// The word with the limit: [`limiter_common::bucket::Resolved`].
    fn resolved(&self) -> impl Cell;

    /// Counts passed packets by atomic addition. The complement undoes that.
    fn count_passed(&self, packets: u64);

    /// Counts dropped packets by atomic addition.
    fn count_dropped(&self, packets: u64);

    /// Number of counted packets.
    fn packets(&self) -> u64;

    /// True in a line, where the limit changes only under the lock: [`crate::line::repoint`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn is_in_line(&self) -> bool {
        false
    }

    /// True if the upper bits of a count must be carried: [`crate::line::carry`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn is_due(&self) -> bool {
        false
    }
}

#[cfg(not(target_arch = "bpf"))]
mod host {
    use core::sync::atomic::{AtomicU64, Ordering};

    // BPF has no compare-and-exchange method on `AtomicU64` (the target says `atomic-cas: false`);
    // limiter-ebpf implements the trait with an intrinsic.
    impl super::Cell for AtomicU64 {
        fn load(&self) -> u64 {
            Self::load(self, Ordering::Acquire)
        }

        fn compare_exchange(&self, current: u64, new: u64) -> bool {
            Self::compare_exchange(self, current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
        }
    }
}
