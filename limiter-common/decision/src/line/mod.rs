//! The line table: buckets of sources in an array of lines, without an allocator and without
//! chains.
//!
//! A seeded hash gives a source two lines of the table and one of its overflow: [`Place`]. The
//! source may have any way of these. It takes one in its first line while that has few entries that
//! must stay, else in the one of both that has fewer, and in the overflow only where both are full.
//! An entry whose limit has drained holds no information, so a new source takes the way of one:
//! nothing is lost with it, and nothing has to be removed first. What becomes of a source that
//! finds all three lines full of entries that owe is its rule's policy, as in [`crate::entries`].
//!
//! Everything changes by compare-and-exchange. Names change only under the lock of their line. A
//! source gets an entry only under the lock of its first line (`insert`), so that it gets no
//! second one. Charges take no lock: [`LineBucket`] says why none lands in the bucket of another
//! source.

mod bucket;
mod carry;
mod counts;
mod enter;
#[cfg(not(target_arch = "bpf"))]
mod host;
mod insert;
mod line_slot;
mod lock;
mod parts;
mod place;
mod victim;

pub use bucket::LineBucket;
pub use carry::carry;
pub use enter::{count_insert, enter};
#[cfg(not(target_arch = "bpf"))]
pub use host::{HostEntry, HostLine, LiveEntry};
pub use insert::{LineInsert, choose, leave, lock_lines, settle, unlock_lines};
pub use line_slot::{
    LineSlot, bucket_again, bucket_in, elsewhere, in_line_slot, line_slot, repoint,
};
pub use lock::take_lock;
pub use parts::{Entry, Head, Line, NOBODY};
pub use place::{Lines, Place};
pub use victim::{Choice, ChosenLine, victim};
