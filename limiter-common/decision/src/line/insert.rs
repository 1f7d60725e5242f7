//! Inserts an entry, and evicts the previous one.
//!
//! The parts are subprograms that are called one after the other instead of from each other,
//! because they share 512 bytes of stack with their callers. Each finds the lines of the source by
//! itself.

use limiter_common::bucket::Word;
use limiter_common::bucket_key::BucketKey;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, EntryKind};

use super::line_slot::place_of;
use super::lock::unlock;
use super::victim::{Choice, ChosenLine, Victim};
use super::{Entry, Head, Line, NOBODY, Place, carry, line_slot, take_lock};
use crate::call::call;
use crate::cell::Cell as _;
use crate::entries::EntryTableWords as _;
use crate::entries::admission::is_flooded;
use crate::maps::Maps;
use crate::outcome::Insert;
use crate::register::Register;

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInsert {
    /// The result as for a hash map: made, exists or refused.
    pub insert: Insert,
    /// True if another entry was evicted for it.
    pub evicted: bool,
}

impl Register for LineInsert {
    const LOST: Self = Self { insert: Insert::Refused, evicted: false };

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        self.insert as u64 | u64::from(self.evicted) << 8
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self { insert: Register::of_register(register & 0xff), evicted: register >> 8 != 0 }
    }
}

/// Makes the entry of a source, if there is none and another one may be evicted.
///
/// Also [`Insert::Exists`] if another CPU makes an entry in the same lines for longer than this one
/// waits: the caller looks again, and finds the entry or continues without it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn insert<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    bucket: &Bucket,
    now: Ticks,
) -> LineInsert {
    let mut made = LineInsert { insert: Insert::Exists, evicted: false };
    if !call!(lock_lines(maps; bucket_key)) {
        return made;
    }
    // A source gets its entry only under the lock of its first line, so nobody else makes one now.
    if call!(line_slot(maps; bucket_key)).is_none() {
        made.insert = Insert::Refused;
        let mut choice = call!(choose(maps; bucket_key, now));
        if choice.line().is_some() && !call!(leave(maps; bucket_key, choice, now)) {
            // Try again, because that entry was charged meanwhile, or given to another source.
            choice = make_room(maps, bucket_key, now);
        }
        if choice.line().is_some() {
            let choice = choice.for_packet(bucket.dropped & 1 != 0);
            let word = beginning(Word::from_raw(bucket.word), now);
            made.insert = Insert::Made;
            made.evicted = call!(settle(maps; bucket_key, choice, word.raw(), bucket.resolved));
        }
    }
    call!(unlock_lines(maps; bucket_key));
    made
}

/// Evicts an entry, if any may be evicted.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn make_room<W: Maps>(maps: &W, bucket_key: &BucketKey, now: Ticks) -> Choice {
    let choice = call!(choose(maps; bucket_key, now));
    if choice.line().is_some() && call!(leave(maps; bucket_key, choice, now)) {
        choice
    } else {
        Choice::NONE
    }
}

/// The first word of an entry.
///
/// The time of a bucket without a debt is replaced by the present time, which means the same. So
/// the time in a way grows from one source to the next, and a charge computed for the previous one
/// cannot be stored.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn beginning(word: Word, now: Ticks) -> Word {
    let now = arrival(now);
    Word::new(if word.tat() > now { word.tat() } else { now }, word.scale())
}

/// The arrival of a packet, for comparing which entries drained before it. At the very first tick,
/// unused entries have drained as well.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn arrival(now: Ticks) -> Ticks {
    if now.get() == 0 { Ticks::new(1) } else { now }
}

/// Takes the locks of both lines of a source, the lower index first, so that no two CPUs wait for
/// each other.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn lock_lines<W: Maps>(maps: &W, bucket_key: &BucketKey) -> bool {
    let kind = bucket_key.kind();
    let Some(place) = place_of(maps, bucket_key) else {
        return false;
    };
    let (first, second) = (place.first(), place.second());
    let (lower, upper) = if first < second { (first, second) } else { (second, first) };
    let (Some(lower_line), Some(upper_line)) = (maps.line(kind, lower), maps.line(kind, upper))
    else {
        return false;
    };
    if !call!(take_lock(; &lower_line)) {
        return false;
    }
    if place.is_one() || call!(take_lock(; &upper_line)) {
        return true;
    }
    unlock(&lower_line);
    false
}

/// Releases the locks of both lines of a source.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn unlock_lines<W: Maps>(maps: &W, bucket_key: &BucketKey) {
    let kind = bucket_key.kind();
    let Some(place) = place_of(maps, bucket_key) else {
        return;
    };
    let (first, second) = (place.first(), place.second());
    if !place.is_one()
        && let Some(second) = maps.line(kind, second)
    {
        unlock(&second);
    }
    if let Some(first) = maps.line(kind, first) {
        unlock(&first);
    }
}

/// Chooses the entry to evict for a source: one that was not used more than once recently, or else,
/// without a flood, the one that drained first.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn choose<W: Maps>(maps: &W, bucket_key: &BucketKey, now: Ticks) -> Choice {
    let (kind, now) = (bucket_key.kind(), arrival(now));
    let Some(place) = place_of(maps, bucket_key) else {
        return Choice::NONE;
    };
    let (keep, flooded) = match maps.entry_table(kind) {
        Some(entry_table) => (entry_table.keep(), is_flooded(&entry_table, now)),
        None => (Ticks::ZERO, true),
    };
    let mut choice = emptier(maps, kind, &place, now, keep);
    if choice.line().is_none() && !flooded {
        choice = emptier(maps, kind, &place, now, Ticks::ZERO);
    }
    if choice.line().is_some() {
        return choice;
    }
    let Some(overflow) = place.overflow() else {
        return Choice::NONE;
    };
    let Some(overflow) = maps.line(kind, overflow) else {
        return Choice::NONE;
    };
    let mut oldest = Victim::of(&overflow, place.start(), now, keep);
    if !oldest.is_some() && !flooded {
        oldest = Victim::of(&overflow, place.start(), now, Ticks::ZERO);
    }
    if oldest.is_some() { oldest.chosen(ChosenLine::Overflow) } else { Choice::NONE }
}

/// The entry to evict in one of the source's own lines: in the first one while few others must stay
/// there, otherwise in the one with fewer entries that must stay.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn emptier<W: Maps>(maps: &W, kind: EntryKind, place: &Place, now: Ticks, keep: Ticks) -> Choice {
    let Some(line) = maps.line(kind, place.first()) else {
        return Choice::NONE;
    };
    let first = Victim::of(&line, place.start(), now, keep);
    if first.staying() > <W::Line as Line>::PREFERRED
        && !place.is_one()
        && let Some(line) = maps.line(kind, place.second())
    {
        let second = Victim::of(&line, place.start(), now, keep);
        if second.staying() < first.staying() {
            return second.chosen(ChosenLine::Second);
        }
    }
    if first.is_some() { first.chosen(ChosenLine::First) } else { Choice::NONE }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn line_of<W: Maps>(maps: &W, kind: EntryKind, place: &Place, choice: Choice) -> Option<W::Line> {
    let index = match choice.line()? {
        ChosenLine::First => place.first(),
        ChosenLine::Second => place.second(),
        ChosenLine::Overflow => place.overflow()?,
    };
    maps.line(kind, index)
}

/// Marks an entry with [`Word::GONE`], unless it was charged since it was chosen. An overflow entry
/// is evicted under the lock of its line, which [`settle`] releases, and the newcomer's first line
/// is marked as having spilled.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn leave<W: Maps>(maps: &W, bucket_key: &BucketKey, choice: Choice, now: Ticks) -> bool {
    let kind = bucket_key.kind();
    let Some(place) = place_of(maps, bucket_key) else {
        return false;
    };
    let (Some(line), Some(first)) =
        (line_of(maps, kind, &place, choice), maps.line(kind, place.first()))
    else {
        return false;
    };
    let Some(entry) = line.entry(choice.way()) else {
        return false;
    };
    let spills = matches!(choice.line(), Some(ChosenLine::Overflow));
    if spills {
        if !call!(take_lock(; &line)) {
            return false;
        }
        first.head(Head::Spilled).compare_exchange(0, 1);
    }
    let word = Word::from_raw(entry.word().load());
    if choice.is(word)
        && word.tat() < arrival(now)
        && entry.word().compare_exchange(word.raw(), Word::GONE.raw())
    {
        return true;
    }
    if spills {
        unlock(&line);
    }
    false
}

/// Gives an entry whose word is [`Word::GONE`] to a source. True if it belonged to another one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn settle<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    choice: Choice,
    word: u64,
    resolved: u64,
) -> bool {
    let kind = bucket_key.kind();
    let (Some(place), Some(name)) = (place_of(maps, bucket_key), bucket_key.name()) else {
        return false;
    };
    let Some(line) = line_of(maps, kind, &place, choice) else {
        return false;
    };
    let Some(entry) = line.entry(choice.way()) else {
        return false;
    };
    // Nobody else writes name, limit and counts, because that needs the lock.
    let before = entry.name().load();
    carry::begin(&line, choice.way());
    entry.name().compare_exchange(before, name);
    entry.resolved().compare_exchange(entry.resolved().load(), resolved);
    let dropped = u64::from(choice.drops());
    entry.begin_counts(1 - dropped, dropped);
    entry.word().compare_exchange(Word::GONE.raw(), word);
    if matches!(choice.line(), Some(ChosenLine::Overflow)) {
        unlock(&line);
    }
    before != NOBODY
}
