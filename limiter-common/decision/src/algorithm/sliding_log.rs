//! The sliding-window log: exactly `size` packets in any window, in constant time.
//!
//! A ring keeps the time of the last `size` packets that passed. The next one conforms when the
//! packet `size` before it is at least a window old; it then takes that one's place. Nothing else
//! has to be looked at, so a packet costs the head and one entry, whatever the size.
//!
//! * Guarantee: at most `size` packets in any half-open window `[x, x + window)`, and
//!   `size * (floor(t / window) + 1)` in a closed one of length `t`. Exact, for every interleaving
//!   and however the clocks of CPUs disagree: the packets that used one entry are pairwise a window
//!   apart, and there are `size` entries.
//! * A source that sends no more than that loses nothing. Time is in whole nanoseconds.
//! * State: `1 + size` words, 16 to 256 bytes a key: the dearest there is. Packets only: a byte
//!   limit would need a look at many entries.
//! * Cost: two reads; a packet that passes exchanges the entry and then the head.
//! * Concurrency: the exchange of the entry is the decision. An entry carries the low bits of the
//!   lap that wrote it, so a CPU that meets an entry of the present lap knows that the head lags,
//!   moves it for the other CPU and goes on: no packet is refused because another one is half done.
//!   A CPU would have to sleep for 32 windows between two instructions to mistake the lap; that
//!   could skip an entry, but never pass a packet too many.
//! * The compile step refuses bytes and sizes other than 1 to [`MAX_SIZE`].

use limiter_common::time::Ticks;
use limiter_common::window::{LogLimit, MAX_SIZE, less, opaque_less};
use limiter_common::wire::WORDS;

use crate::algorithm::{Charged, Words};
use crate::cell::Cell;
use crate::rounds::MAX_TRIES;
use crate::rounds::Rounds;

const LAP_BITS: u32 = 5;
const LAP_MASK: u64 = (1 << LAP_BITS) - 1;
const INDEX_BITS: u32 = 5;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

const _: () = assert!(MAX_SIZE as usize == WORDS - 1);
const _: () = assert!((MAX_SIZE as u32) < 1 << INDEX_BITS);

/// All ones for an entry of a packet that passed less than a window before `now`, otherwise zero.
/// Without a branch, because the verifier walks both sides of each.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) const fn counts(limit: &LogLimit, entry: u64, now: Ticks) -> u64 {
    let stamp = entry >> LAP_BITS;
    // A later stamp comes from a clock that is ahead.
    less(now.as_nanos(), stamp.wrapping_add(limit.window)) & opaque_less(0, stamp)
}

/// The entry of a packet that passed at `now`, in no lap of a head at zero: the start of a changed
/// limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn stamped(now: Ticks) -> u64 {
    stamp(now) << LAP_BITS
}

/// An entry of the same packet, in no lap of a head at zero.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) const fn without_lap(entry: u64) -> u64 {
    entry & !LAP_MASK
}

/// Zero is an unused entry.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn stamp(now: Ticks) -> u64 {
    if now.as_nanos() == 0 { 1 } else { now.as_nanos() }
}

/// Bits of a head for the number of packets without an entry.
const OVER_BITS: u32 = 5;
const OVER_AT: u32 = 63 - OVER_BITS;

/// The index of the next entry, the lap, and how many packets of the last window had no entry when
/// the ring became shorter: `over:5 | lap | index:5`.
///
/// These packets were older than all entries. So they count no longer than the first entry, and the
/// first packet that passes takes its place and forgets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(u64);

limiter_common::raw_word!(Head);

impl Head {
    /// The entry's place in the ring.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn index(self) -> u32 {
        (self.0 & INDEX_MASK) as u32
    }

    /// The head of a ring whose first entry is next, with no entry for `over` packets.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn seeded(over: u64) -> Self {
        Self((over & ((1 << OVER_BITS) - 1)) << OVER_AT)
    }

    /// The packets of the last window without an entry; `first` is the first entry.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn over(self, limit: &LogLimit, first: u64, now: Ticks) -> u64 {
        // An entry with a lap belongs to a packet that passed since then.
        let seeded = opaque_less(first & LAP_MASK, 1);
        (self.0 >> OVER_AT) & counts(limit, first, now) & seeded
    }

    /// The number of packets without an entry, whether or not they still count. At most 31.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn left_over(self) -> u32 {
        (self.0 >> OVER_AT & ((1 << OVER_BITS) - 1)) as u32
    }

    /// The head, or the next one if its `entry` shows that the head lags behind.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn caught_up(self, size: u8, entry: u64) -> Self {
        if entry & LAP_MASK == self.lap() { self.next(size) } else { self }
    }

    /// The head after this entry is used.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn next(self, size: u8) -> Self {
        let next = (self.0 & INDEX_MASK) + 1;
        let next = if next < size as u64 {
            self.0 + 1
        } else {
            ((self.0 >> INDEX_BITS) + 1) << INDEX_BITS
        };
        Self(next & ((1 << OVER_AT) - 1))
    }

    /// The lap number in entries of this lap: one more than the lap, so that an unused entry
    /// belongs to the lap before the first.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn lap(self) -> u64 {
        (self.0 >> INDEX_BITS).wrapping_add(1) & LAP_MASK
    }
}

/// A decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDecision {
    /// The packet conforms: exchange the entry for `entry`, then move the head to `head`.
    Pass {
        /// The entry's new word.
        entry: u64,
        /// The head's new word.
        head: u64,
    },
    /// The head lags behind its entry: move the head to this word and decide again.
    Behind(u64),
    /// The packet is over the limit.
    Over,
}

/// The decision from the head and the entry to which it points.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn decide(limit: &LogLimit, head: Head, entry: u64, now: Ticks) -> LogDecision {
    let next = head.next(limit.size).raw();
    if entry & LAP_MASK == head.lap() {
        return LogDecision::Behind(next);
    }
    if counts(limit, entry, now) != 0 {
        return LogDecision::Over;
    }
    LogDecision::Pass { entry: stamp(now) << LAP_BITS | head.lap(), head: next }
}

/// Charges a packet to the head and the ring of a key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge(limit: &LogLimit, head: &impl Cell, ring: &impl Words, now: Ticks) -> Charged {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES) {
        let seen = Head::from_raw(head.load());
        let Some(cell) = ring.cell(seen.index()) else {
            return Charged::Over;
        };
        let entry = cell.load();
        match decide(limit, seen, entry, now) {
            LogDecision::Over => return Charged::Over,
            LogDecision::Behind(next) => {
                head.compare_exchange(seen.raw(), next);
            }
            LogDecision::Pass { entry: new, head: next } => {
                if cell.compare_exchange(entry, new) {
                    // A faster CPU may have moved it already.
                    head.compare_exchange(seen.raw(), next);
                    return Charged::Conforming;
                }
            }
        }
    }
    Charged::Contended
}
