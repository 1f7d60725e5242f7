//! The sliding window of 2, 4 or 8 slots: the counts of the present slot and those before it.
//!
//! A packet conforms when the sum over the present slot and the `slots - 1` before it, with the
//! packet, is at most `limit`. Slots are `width` long.
//!
//! * Guarantee: `limit` in any window of length `(slots - 1) * width`, wherever it starts, because
//!   such a window touches no more than `slots` slots. In a window of length `t` at most
//!   `limit * ceil((ceil(t / width) + 1) / slots)`. Exact on one CPU.
//! * A source that sends at most `limit` in every window of `slots * width` loses nothing, because
//!   the sum never looks further back than that.
//! * So the error is one slot, and the rule's window can be put on either side of it: a *lenient*
//!   compile makes `slots` slots of the window (a source within the limit loses nothing; after an
//!   idle slot up to twice the limit may pass in one window, and `limit` in `1 - 1 / slots` of it),
//!   a *strict* one makes `slots - 1` (never over in any window; a steady source gets
//!   `(slots - 1) / slots` of the rate, 87.5 % with 8 slots).
//! * State: one word a slot, `number | count`: with 8 slots in one second 31 bits of count, and
//!   more for longer windows ([`WindowLimit::count_bits_of`]). Eight words are one cache line.
//! * Cost: one division and a read of each slot; a packet that passes exchanges its own slot's
//!   word.
//! * Concurrency: within a slot exact. A packet that read the words before the border of a slot and
//!   is stored after another CPU has judged one behind it is missing in that judgement: at most one
//!   packet for each other CPU at a border is passed too many. Words of slots after the packet's
//!   count for it as well, and its own word never goes back. But a packet whose clock is a slot
//!   late or more may be charged in a slot before the newest, and is forgotten that much sooner:
//!   each such packet may be one too many. The clocks of Linux's CPUs are not a slot apart.
//! * The compile step refuses other numbers of slots, a limit that the count's bits cannot hold,
//!   and one that holds no frame.

use limiter_common::time::Ticks;
use limiter_common::window::{MAX_SLOTS, Tally, WallOffset, WindowLimit, larger, less};

use crate::algorithm::{Change, Charged, Words, charge_one_of};

/// Reads the words of a limit for a packet in one slot, one after the other, so that none has to be
/// kept: in the order of their slots, the slot's own word last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    number: u64,
    /// Units that count in the slot.
    sum: u64,
    /// The last word that was read.
    own: u64,
}

impl Reading {
    /// A reading before its first word.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn new(number: u64) -> Self {
        Self { number, sum: 0, own: 0 }
    }

    /// The index of the word for a round, from 0.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[expect(clippy::cast_possible_truncation, reason = "masked before the cast")]
    pub(crate) const fn index(&self, limit: &WindowLimit, round: u32) -> u32 {
        let last = (limit.slots as u64).wrapping_sub(1);
        (self.number.wrapping_add(round as u64).wrapping_add(1) & last) as u32
    }

    /// Adds the next word. Without a branch.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn add(&mut self, limit: &WindowLimit, word: u64) {
        let tally = limit.unpack(word);
        // A word counts if it belongs to this slot, to one of the previous ones, or to a later one:
        // the subtraction wraps.
        let age = self.number.wrapping_sub(tally.number);
        self.sum = self.sum.wrapping_add(tally.count & less(age, limit.slots as u64));
        self.own = word;
    }

    /// Units that count in the slot.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn sum(&self) -> u64 {
        self.sum
    }

    /// The word to exchange if the packet conforms.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn decide(&self, limit: &WindowLimit, units: u64) -> Option<Change> {
        let sum = self.sum.wrapping_add(units);
        // Checked separately, so that the sum cannot wrap.
        if units > limit.limit || sum > limit.limit {
            return None;
        }
        let own = limit.unpack(self.own);
        // Never back: a later slot of this word may have replaced the clock's.
        let number = larger(self.number, own.number);
        let new = limit.pack(Tally { number, count: own.count_in(number).wrapping_add(units) });
        // Below `slots`, which is at most 8.
        let index = (self.number & u64::from(limit.slots).wrapping_sub(1) & 7) as u32;
        Some(Change { index, old: self.own, new })
    }
}

/// Reads the words at `now`. Words past the limit's slots are not read.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn read<const N: usize>(limit: &WindowLimit, words: &[u64; N], now: Ticks) -> Reading {
    let mut reading = Reading::new(limit.at(now, WallOffset::BOOT).number);
    for round in 0..u32::from(limit.slots) {
        let index = reading.index(limit, round) as usize;
        reading.add(limit, words.get(index).copied().unwrap_or_default());
    }
    reading
}

/// Units that count at `now`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn sum<const N: usize>(limit: &WindowLimit, words: &[u64; N], now: Ticks) -> u64 {
    read(limit, words, now).sum()
}

/// The word to exchange if the packet conforms.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn decide<const N: usize>(
    limit: &WindowLimit,
    words: &[u64; N],
    now: Ticks,
    units: u64,
) -> Option<Change> {
    read(limit, words, now).decide(limit, units)
}

/// Charges a packet to the words of a key, of which there are at least as many as slots.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge(limit: &WindowLimit, words: &impl Words, now: Ticks, units: u64) -> Charged {
    charge_one_of::<MAX_SLOTS>(words, |words| decide(limit, words, now, units))
}
