//! The parts of a line in place: its head, and the entries in its ways.

use limiter_common::wire::LINE_WAYS;

use crate::cell::Cell;

/// The name in an entry of nobody.
pub const NOBODY: u64 = 0;

/// The last way. Ways are counted behind the head of a line.
pub(super) const LAST_WAY: u32 = 7;

const _: () = assert!(LAST_WAY as usize == LINE_WAYS && (LINE_WAYS + 1).is_power_of_two());

/// An entry in place.
pub trait Entry: Clone {
    /// The address, by which its bucket crosses to a subprogram.
    #[cfg(target_arch = "bpf")]
    fn address(&self) -> *mut u8;

    /// The name of the source that has the entry: [`limiter_common::bucket_key::BucketKey::name`].
    fn name(&self) -> impl Cell;

    /// The word with the theoretical arrival time: [`limiter_common::bucket::Word`].
    fn word(&self) -> impl Cell;

    /// The word with the limit: [`limiter_common::bucket::Resolved`].
    fn resolved(&self) -> impl Cell;

    /// Packets that passed, in the lower half, and that were dropped, in the upper one. What was
    /// carried to the head of the line is not in it: [`super::carry()`].
    fn counts(&self) -> u64;

    /// Sets both counts. Only the CPU that makes the entry calls this.
    fn begin_counts(&self, passed: u64, dropped: u64);

    /// Counts packets that passed, by atomic addition, modulo 2^32.
    fn count_passed(&self, packets: u64);

    /// Counts packets that were dropped, by atomic addition, modulo 2^32.
    fn count_dropped(&self, packets: u64);
}

/// The words of the head of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The lock: held by the CPU that makes an entry.
    Lock,
    /// 0 until a source whose first line this is went to the overflow.
    Spilled,
    /// Halves that were carried of the packets that passed: [`super::carry()`].
    Passed,
    /// Halves that were carried of the packets that were dropped.
    Dropped,
}

/// A line in place.
pub trait Line: Clone {
    /// The highest number of a way: a power of two less one.
    const LAST: u32 = LAST_WAY;

    /// Tries to get the lock. The lock is held for four looks at lines, about as long as twenty
    /// tries take, so a packet that loses all of them met a CPU that was held up.
    const LOCK_TRIES: u64 = 256;

    /// The most entries that must stay in the first line of a source, for it to take a way there
    /// without a look at the second one.
    const PREFERRED: u64 = 4;

    /// The type of an entry.
    type Entry: Entry;

    /// The index among all lines, by which it crosses to a subprogram.
    #[cfg(target_arch = "bpf")]
    fn number(&self) -> u64;

    /// A word of the head.
    fn head(&self, word: Head) -> impl Cell;

    /// The entry at a way up to [`Line::LAST`]; `None` where the head of the line is.
    fn entry(&self, way: u32) -> Option<Self::Entry>;
}
