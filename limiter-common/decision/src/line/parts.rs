//! The parts of a line in place: its head, and its entries.

use limiter_common::wire::LINE_WAYS;

use crate::cell::Cell;

/// The name in an unused entry.
pub const NOBODY: u64 = 0;

/// The last way. Ways are counted behind the head of a line.
pub(super) const LAST_WAY: u32 = 7;

const _: () = assert!(LAST_WAY as usize == LINE_WAYS && (LINE_WAYS + 1).is_power_of_two());

/// An entry in place.
pub trait Entry: Clone {
    /// The address, by which its bucket is passed to a subprogram.
    #[cfg(target_arch = "bpf")]
    fn address(&self) -> *mut u8;

    /// The name of the source that has the entry: [`limiter_common::bucket_key::BucketKey::name`].
    fn name(&self) -> impl Cell;

    /// The word with the theoretical arrival time: [`limiter_common::bucket::Word`].
    fn word(&self) -> impl Cell;

    /// The word with the limit: [`limiter_common::bucket::Resolved`].
    fn resolved(&self) -> impl Cell;

    /// Packets that passed, in the lower half, and that were dropped, in the upper half. Without
    /// what was carried to the head of the line: [`super::carry()`].
    fn counts(&self) -> u64;

    /// Sets both counts. Only the CPU that makes the entry calls this.
    fn begin_counts(&self, passed: u64, dropped: u64);

    /// Counts passed packets by atomic addition, modulo 2^32.
    fn count_passed(&self, packets: u64);

    /// Counts dropped packets by atomic addition, modulo 2^32.
    fn count_dropped(&self, packets: u64);
}

/// The words of the head of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The lock: held by the CPU that makes an entry.
    Lock,
    /// 0 until a source with this first line goes to the overflow.
    Spilled,
    /// Carried halves of passed packets: [`super::carry()`].
    Passed,
    /// Carried halves of dropped packets.
    Dropped,
}

/// A line in place.
pub trait Line: Clone {
    /// The highest number of a way: a power of two less one.
    const LAST: u32 = LAST_WAY;

    /// Attempts to take the lock. It is held for four looks at lines, about as long as twenty
    /// attempts take, so a packet that fails in all of them met a CPU that was suspended.
    const LOCK_TRIES: u64 = 256;

    /// The most entries that must stay in the first line of a source for it to take a way there
    /// without looking at the second one.
    const PREFERRED: u64 = 4;

    /// The type of an entry.
    type Entry: Entry;

    /// The index among all lines, by which it is passed to a subprogram.
    #[cfg(target_arch = "bpf")]
    fn number(&self) -> u64;

    /// A word of the head.
    fn head(&self, word: Head) -> impl Cell;

    /// The entry at a way up to [`Line::LAST`]; `None` at the place of the head.
    fn entry(&self, way: u32) -> Option<Self::Entry>;
}
