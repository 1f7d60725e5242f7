//! How a look at a table ends, and the numbers that its parts share.

use crate::bucket::Slot;
use crate::register::variants;
use crate::wire::{MAX_LIMITS, MAX_RECORDS, WORDS};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// Go on.
    Ready = 0,
    /// The packet is over the limit.
    Over = 1,
    /// Something is to be repaired first.
    Stale = 2,
    /// Other CPUs were in the way.
    Contended = 3,
}

variants!(Code: Ready Over Stale, else Contended; lost Contended);

/// [`MAX_LIMITS`], as places are counted.
pub(super) const PLACES: u64 = 4;

/// [`WORDS`], as words are counted.
pub(super) const WORD_COUNT: u64 = 32;

const _: () = assert!(PLACES == MAX_LIMITS as u64 && WORD_COUNT == WORDS as u64);

/// A slot that is not [`Slot::NONE`] and never holds a record: `RECORDS` is not made that large.
pub(super) const NO_RECORD: Slot = Slot::new(MAX_RECORDS);
