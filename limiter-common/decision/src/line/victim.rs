//! The entry of a line that may be evicted for another one.

use core::hint::black_box;

use limiter_common::bucket::Word;
use limiter_common::time::{MAX_TICKS, Ticks};

use super::place::way;
use super::{Entry, Line, counts};
use crate::call::call;
use crate::cell::Cell as _;
use crate::register::Register;

/// The bits of a victim that hold its way, in place of the lowest bits of its time.
const WAYS: u64 = super::parts::LAST_WAY as u64;

/// The position of the number of entries of the line that must stay.
const STAYING: u32 = 3;

/// The position of the bit of a choice for a dropped packet.
const DROPS: u32 = 5;

/// The bits of a victim that do not belong to its time.
const LOW: u64 = WAYS << STAYING | WAYS;

/// A time at which nothing drains.
const NEVER: u64 = MAX_TICKS;

/// The entry of a line that drained first among those that may be evicted, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim(u64);

impl Victim {
    /// The victim of a line whose lock the caller holds.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn of<L: Line>(line: &L, start: u32, now: Ticks, keep: Ticks) -> Self {
        Self(call!(victim(; line, start, now, now.since(keep))))
    }

    /// True if an entry may be evicted.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn is_some(self) -> bool {
        self.0 < NEVER & !LOW
    }

    /// Number of entries of the line that must stay.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn staying(self) -> u64 {
        self.0 >> STAYING & WAYS
    }

    /// The entry as it was chosen, in one of three lines.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn chosen(self, line: ChosenLine) -> Choice {
        Choice(self.0 & !(WAYS << STAYING) | (line as u64) << STAYING)
    }
}

/// The newcomer's line in which an entry is evicted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenLine {
    /// The first candidate line.
    First = 1,
    /// The second candidate line.
    Second = 2,
    /// The overflow line.
    Overflow = 3,
}

/// The entry to evict for a newcomer, with its line; or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice(u64);

impl Register for Choice {
    const LOST: Self = Self::NONE;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        self.0
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self(register)
    }
}

impl Choice {
    /// No entry may be evicted.
    pub(super) const NONE: Self = Self(0);

    /// The line; `None` if no entry may be evicted.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn line(self) -> Option<ChosenLine> {
        match self.0 >> STAYING & 3 {
            1 => Some(ChosenLine::First),
            2 => Some(ChosenLine::Second),
            3 => Some(ChosenLine::Overflow),
            _ => None,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn way(self) -> u32 {
        (self.0 & WAYS) as u32
    }

    /// The choice for a source whose first packet passes, or is dropped.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn for_packet(self, drops: bool) -> Self {
        Self(self.0 | (drops as u64) << DROPS)
    }

    /// True if the first packet of the source is dropped.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn drops(self) -> bool {
        self.0 >> DROPS & 1 != 0
    }

    /// True if an entry with this word drained at the time of the chosen one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn is(self, word: Word) -> bool {
        word.tat().get() & !LOW == self.0 & !LOW
    }
}

/// The register of a `Victim`: its time, with the way in the last bits and the number of entries
/// that stay above them. An unused entry is the oldest of all.
///
/// Holds the way instead of the entry, because the verifier knows more about a number than about a
/// pointer to any of several values. In one word, so that it tracks a single number; that takes the
/// last bits of the time. Without a loop or a branch, because it walks both sides of each for every
/// way.
///
/// Entries that drained by `since` may be evicted, and those of one packet that drained before
/// `now`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn victim<L: Line>(line: &L, start: u32, now: Ticks, since: Ticks) -> u64 {
    // The number of entries that stay is above the start: so few words are kept that the subprogram
    // has a small frame.
    let mut found = [NEVER, u64::from(start)];
    found = older(line, 0, now, since, found);
    found = older(line, 1, now, since, found);
    if L::LAST > 1 {
        found = older(line, 2, now, since, found);
        found = older(line, 3, now, since, found);
        found = older(line, 4, now, since, found);
        found = older(line, 5, now, since, found);
        found = older(line, 6, now, since, found);
        found = older(line, 7, now, since, found);
    }
    let [oldest, start] = found;
    oldest & !(WAYS << STAYING) | (start >> 32 & WAYS) << STAYING
}

/// The victim among the previous ways and one more, and the number of entries that stay, above the
/// start.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn older<L: Line>(
    line: &L,
    step: u32,
    now: Ticks,
    since: Ticks,
    [oldest, start]: [u64; 2],
) -> [u64; 2] {
    let way = way((start & 0xffff_ffff) as u32, step, L::LAST);
    let Some(entry) = line.entry(way) else {
        return [oldest, start];
    };
    let left = left(&entry, now, since);
    // [`NEVER`] has all bits of a time, so only then does the sum have the highest bit.
    let stays = black_box((left | LOW).wrapping_add(1)) >> 63;
    let candidate = left & !LOW | u64::from(way);
    let less = candidate.wrapping_sub(oldest);
    [oldest.wrapping_add(less & is_negative(less)), start.wrapping_add(stays << 32)]
}

/// The time since which an entry may be evicted, or [`NEVER`]. An entry that drains at this very
/// instant stays, because the time in a way must grow from one source to the next. An unused entry
/// has the time 0. Times have 63 bits, so the difference of two has its sign in the last bit. The
/// time of an entry that is being removed is later than any other.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn left(entry: &impl Entry, now: Ticks, since: Ticks) -> u64 {
    let drained = Word::from_raw(entry.word().load()).tat().get();
    // All ones for an entry that was not used more than once.
    let once = is_negative(counts::packets(entry.counts()).wrapping_sub(2));
    let lately = is_negative(since.get().wrapping_sub(drained));
    let may_leave = is_negative(drained.wrapping_sub(now.get())) & (once | !lately);
    drained | NEVER & !may_leave
}

/// All ones if the sign bit is set, otherwise 0. The word must be opaque to the compiler, which
/// would otherwise make a branch.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_negative(word: u64) -> u64 {
    0_u64.wrapping_sub(black_box(word) >> 63)
}
