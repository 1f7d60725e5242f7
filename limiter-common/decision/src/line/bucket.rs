//! The bucket of one source in a way of its line.
//!
//! Between reading the name and the charge, the way may be given to another source. Three readings
//! make a charge exact: the word, then the limit and the name, and then the word again, by the
//! exchange. A way is given to another source only after it has drained, and its time only grows
//! with that. So a successful exchange proves that the way was not given away since the word was
//! read, and the name was read in between: it is the bucket of this source. A word that no longer
//! belongs to this source reads as one that is being removed.

use core::cell::Cell as Local;

use limiter_common::bucket::{Generation, MAX_SLOTS, Resolved, Slot, Word};

use super::{Entry, Line, counts};
use crate::cell::{Cell, SourceBucket};

/// The parts of [`Resolved`] on which a charge depends: a newer generation can mean the same limit.
const LIMIT: u64 =
    Resolved::new(Generation::new(0), Slot::new(MAX_SLOTS - 1), Slot::new(0), true).raw();

/// A bucket in a line, for one source. As a [`Cell`] it is its word.
#[derive(Clone, Debug)]
pub struct LineBucket<L: Line> {
    entry: L::Entry,
    resolved: LineResolved<L>,
}

/// The limit of a bucket in a line.
#[derive(Clone, Debug)]
struct LineResolved<L: Line> {
    entry: L::Entry,
    name: u64,
    /// The limit that was read last, by which charges are computed.
    seen: Local<u64>,
    /// [`LIMIT`] once the limit was read, otherwise 0.
    compared: Local<u64>,
}

impl<L: Line> LineBucket<L> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn new(entry: L::Entry, name: u64) -> Self {
        Self::with(entry, name, 0, 0)
    }

    /// The bucket of a source in an entry that was found before. Reads its limit before anything
    /// else.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn resume(entry: L::Entry, name: u64) -> Self {
        Self::with(entry, name, 0, LIMIT)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn with(entry: L::Entry, name: u64, seen: u64, compared: u64) -> Self {
        let (seen, compared) = (Local::new(seen), Local::new(compared));
        let resolved = LineResolved { entry: entry.clone(), name, seen, compared };
        Self { entry, resolved }
    }

    /// The entry of the line that holds the bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn entry(&self) -> &L::Entry {
        &self.entry
    }

    /// True if the way still belongs to this source, with the limit that was read last.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn stands(&self) -> bool {
        let LineResolved { entry, name, seen, compared, .. } = &self.resolved;
        let limit = (entry.resolved().load() ^ seen.get()) & compared.get();
        // In a single comparison, because the verifier walks both sides of each in every attempt.
        limit | (entry.name().load() ^ name) == 0
    }
}

impl<L: Line> Cell for LineBucket<L> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn load(&self) -> u64 {
        let word = self.entry.word().load_acquire();
        if self.stands() { word } else { Word::GONE.raw() }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn acquire_fence(&self) {
        self.entry.word().acquire_fence();
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.stands() && self.entry.word().compare_exchange(current, new)
    }
}

impl<L: Line> Cell for LineResolved<L> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn load(&self) -> u64 {
        let resolved = self.entry.resolved().load();
        self.seen.set(resolved);
        self.compared.set(LIMIT);
        resolved
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn acquire_fence(&self) {
        self.entry.resolved().acquire_fence();
    }

    /// Always fails: a limit changes only under the lock, by [`super::repoint`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn compare_exchange(&self, _current: u64, _new: u64) -> bool {
        false
    }
}

impl<L: Line> SourceBucket for LineBucket<L> {
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn address(&self) -> *mut u8 {
        self.entry.address()
    }

    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    fn name(&self) -> u64 {
        self.resolved.name
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn word(&self) -> impl Cell {
        self
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn resolved(&self) -> impl Cell {
        &self.resolved
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn count_passed(&self, packets: u64) {
        self.entry.count_passed(packets);
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn count_dropped(&self, packets: u64) {
        self.entry.count_dropped(packets);
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn packets(&self) -> u64 {
        counts::packets(self.entry.counts())
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn is_in_line(&self) -> bool {
        true
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn is_due(&self) -> bool {
        counts::is_due(self.entry.counts())
    }
}
