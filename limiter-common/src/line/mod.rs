//! The line table: buckets of sources in an array of lines, without an allocator and without
//! chains.
//!
//! A source has one line, chosen by a seeded hash, and may have any way of it. It begins to look at
//! a way of its own. An entry whose limit has drained holds no information, so a new source takes
//! the way of one: nothing is lost with it, and nothing has to be removed first. What becomes of a
//! source whose line is full of entries that owe is its rule's policy, as in [`crate::entries`].
//!
//! Everything changes by compare-and-exchange. Names change only under the lock of the line
//! ([`insert`]), so that no source gets two entries. Charges take no lock: [`LineBucket`] says why
//! none lands in the bucket of another source.

mod bucket;
mod enter;
#[cfg(not(target_arch = "bpf"))]
mod host;
mod insert;
mod none;

pub use bucket::LineBucket;
pub use enter::{FirstPacket, bucket_of, count_insert, enter, insert_line, place};
#[cfg(not(target_arch = "bpf"))]
pub use host::{HostEntry, HostLine};
pub use insert::{LineInsert, insert, take_lock, victim};
pub use none::NoLine;

use crate::bucket::Word;
use crate::cell::Cell;
use crate::entries::ring::scatter;
use crate::register::Numbered;
use crate::wire::LINE_WAYS;

/// The name in an entry of nobody.
pub const NOBODY: u64 = 0;

/// The last way. Ways are counted behind the head of a line.
const LAST_WAY: u32 = 7;

const _: () = assert!(LAST_WAY as usize == LINE_WAYS && (LINE_WAYS + 1).is_power_of_two());

/// The state of [`Line::lock`] while nobody makes an entry.
const FREE: u64 = 0;

/// The state of [`Line::lock`] while somebody makes an entry.
const HELD: u64 = 1;

/// An entry in place.
pub trait Entry: Clone {
    /// The name of the source that has the entry: [`crate::entries::source::name`].
    fn name(&self) -> impl Cell;

    /// The word with the theoretical arrival time: [`crate::bucket::Word`].
    fn word(&self) -> impl Cell;

    /// The word with the limit: [`crate::bucket::Resolved`].
    fn resolved(&self) -> impl Cell;

    /// Packets that the entry has counted.
    fn packets(&self) -> u64;

    /// Sets both counts. Only the CPU that makes the entry calls this.
    fn begin_counts(&self, passed: u64, dropped: u64);

    /// Counts one packet that passed, by atomic addition.
    fn count_passed(&self);

    /// Counts packets that were dropped, by atomic addition.
    fn count_dropped(&self, packets: u64);

    /// Takes back one packet that was counted as passed.
    fn uncount(&self);
}

/// A line in place.
pub trait Line: Clone + Numbered {
    /// The highest number of a way: a power of two less one.
    const LAST: u32 = LAST_WAY;

    /// Tries to get the lock. The lock is held for two looks at the line, about as long as ten
    /// tries take, so a packet that loses all of them met a CPU that was held up.
    const LOCK_TRIES: u64 = 128;

    /// The type of an entry.
    type Entry: Entry;

    /// The lock word: held by the CPU that makes an entry.
    fn lock(&self) -> impl Cell;

    /// The entry at a way up to [`Line::LAST`]; `None` where the head of the line is.
    fn entry(&self, way: u32) -> Option<Self::Entry>;
}

/// The lines of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Number of lines.
    pub count: u32,
    /// The seed of the hash that chooses a line.
    pub seed: u64,
}

/// The place at which a source is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of the line.
    pub line: u32,
    /// The way that is looked at first.
    pub start: u32,
}

impl Place {
    /// The place of a name.
    #[inline(always)]
    pub const fn of(name: u64, lines: &Lines) -> Self {
        let hash = scatter(name ^ lines.seed);
        // As many as there are, without a division.
        let line = (hash >> 32).wrapping_mul(lines.count as u64) >> 32;
        Self { line: (line & 0xffff_ffff) as u32, start: (hash & 0xffff_ffff) as u32 }
    }

    /// The way that is looked at in a step.
    #[inline(always)]
    const fn way(start: u32, step: u32, last: u32) -> u32 {
        (start ^ step) & last
    }
}

/// The entry with a name.
#[inline(always)]
fn find<L: Line>(line: &L, start: u32, name: u64) -> Option<L::Entry> {
    let mut step = 0;
    while step <= L::LAST {
        if let Some(entry) = line.entry(Place::way(start, step, L::LAST))
            && entry.name().load() == name
        {
            return Some(entry);
        }
        step += 1;
    }
    None
}

/// The bucket of a source. `None` as well while it is being made: a packet that then asks for the
/// lock waits for that.
#[inline(always)]
pub fn bucket<L: Line>(line: &L, start: u32, name: u64) -> Option<LineBucket<L>> {
    let entry = find(line, start, name)?;
    if Word::from_raw(entry.word().load()).is_gone() {
        return None;
    }
    Some(LineBucket::new(line.clone(), entry, name))
}
