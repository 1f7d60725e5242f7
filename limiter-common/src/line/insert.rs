//! The insertion of an entry, and the eviction of the one before it.

use core::hint::black_box;

use super::{Entry, FREE, HELD, Line, NOBODY, Place, find};
use crate::bucket::Word;
use crate::cell::Cell as _;
use crate::entries::EvictionPolicy;
use crate::outcome::Insert;
use crate::register::{Register, answer};
use crate::rounds::Rounds;
use crate::step::step;
use crate::time::{MAX_TICKS, Ticks};
use crate::wire::Bucket;

/// Entries that are tried in turn for eviction. Each but the last was charged since it was looked
/// at.
const VICTIMS: u64 = 3;

/// The result of [`insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInsert {
    /// The result as for a hash map: made, exists or refused.
    pub insert: Insert,
    /// True if another entry left for it.
    pub evicted: bool,
}

answer!(LineInsert, Self::without(Insert::Refused));

impl Register for LineInsert {
    #[inline(always)]
    fn to_register(self) -> u64 {
        self.insert as u64 | u64::from(self.evicted) << 8
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        Self { insert: Register::of_register(register & 0xff), evicted: register >> 8 != 0 }
    }
}

impl LineInsert {
    pub(super) const fn without(insert: Insert) -> Self {
        Self { insert, evicted: false }
    }
}

/// Makes the entry of a source, if there is none and another one may leave: one by `policy`, or
/// else one that was kept for `least`.
///
/// [`Insert::Exists`] as well where another CPU makes an entry in the same line for longer than
/// this one waits: the caller looks again, and finds the entry or goes without.
#[inline(always)]
pub fn insert<L: Line>(
    line: &L,
    start: u32,
    name: u64,
    bucket: &Bucket,
    policy: &EvictionPolicy,
    least: Ticks,
) -> LineInsert {
    if !step!(take_lock(; line)) {
        return LineInsert::without(Insert::Exists);
    }
    let policy = EvictionPolicy { now: arrival(policy.now), ..*policy };
    let made = insert_locked(line, start, name, bucket, &policy, least);
    unlock(line);
    made
}

/// The arrival of a packet, for the question which entries have drained before it. At the first
/// tick of all, so have the entries of nobody.
#[inline(always)]
fn arrival(now: Ticks) -> Ticks {
    if now.get() == 0 { Ticks::new(1) } else { now }
}

/// Takes the lock of a line, in a bounded number of tries.
#[inline(always)]
pub fn take_lock<L: Line>(line: &L) -> bool {
    let mut tries = Rounds::new();
    while tries.more(L::LOCK_TRIES) {
        if line.lock().compare_exchange(FREE, HELD) {
            return true;
        }
    }
    false
}

/// Gives the lock of a line back.
#[inline(always)]
pub(super) fn unlock(line: &impl Line) {
    line.lock().compare_exchange(HELD, FREE);
}

#[inline(always)]
fn insert_locked<L: Line>(
    line: &L,
    start: u32,
    name: u64,
    bucket: &Bucket,
    policy: &EvictionPolicy,
    least: Ticks,
) -> LineInsert {
    // Names change under the lock alone: an entry that is not there now is made by nobody else.
    if find(line, start, name).is_some() {
        return LineInsert::without(Insert::Exists);
    }
    let mut tries = Rounds::new();
    while tries.more(VICTIMS) {
        let mut oldest = step!(victim(; line, start, policy.now, policy.keep));
        if !is_way(oldest) && least < policy.keep {
            oldest = step!(victim(; line, start, policy.now, least));
        }
        let Some(entry) = entry_of(line, oldest) else {
            return LineInsert::without(Insert::Refused);
        };
        let word = Word::from_raw(entry.word().load());
        // The entry has drained, and was not charged since.
        if is_since(word, oldest)
            && word.tat() < policy.now
            && entry.word().compare_exchange(word.raw(), Word::GONE.raw())
        {
            let evicted = entry.name().load() != NOBODY;
            fill(&entry, name, bucket, policy.now);
            return LineInsert { insert: Insert::Made, evicted };
        }
    }
    LineInsert::without(Insert::Refused)
}

/// The way and the time of the entry that drained first, of those that may leave: the last that
/// anybody could miss. An entry of nobody is the oldest of all. The way is in the last bits, over
/// them is the time.
#[inline(always)]
pub fn victim<L: Line>(line: &L, start: u32, now: Ticks, keep: Ticks) -> u64 {
    let policy = &EvictionPolicy { now, keep };
    // The way and not the entry: the verifier knows more of a number than of a pointer that could
    // be any of them. In one word with the time, so that it has one number to follow; that takes
    // the last bits of the time. And without a loop or a branch: it walks both sides of each, for
    // every way.
    let older = |oldest: u64, step| {
        let way = Place::way(start, step, L::LAST);
        let Some(entry) = line.entry(way) else {
            return oldest;
        };
        let since = since(&entry, Word::from_raw(entry.word().load()), policy);
        let candidate = since & !WAYS | u64::from(way);
        let less = candidate.wrapping_sub(oldest);
        oldest.wrapping_add(less & is_negative(less))
    };
    let mut oldest = older(older(NEVER, 0), 1);
    if L::LAST > 1 {
        oldest = older(older(older(oldest, 2), 3), 4);
        oldest = older(older(older(oldest, 5), 6), 7);
    }
    oldest
}

/// The entry that [`victim`] found.
#[inline(always)]
fn entry_of<L: Line>(line: &L, victim: u64) -> Option<L::Entry> {
    if is_way(victim) { line.entry((victim & WAYS) as u32) } else { None }
}

#[inline(always)]
const fn is_way(victim: u64) -> bool {
    victim < NEVER & !WAYS
}

/// True if a word has the time at which [`victim`] found it.
#[inline(always)]
const fn is_since(word: Word, victim: u64) -> bool {
    word.tat().get() & !WAYS == victim & !WAYS
}

/// The bits of a way.
const WAYS: u64 = super::LAST_WAY as u64;

/// The time of an entry that must not leave.
const NEVER: u64 = MAX_TICKS;

/// The time since when an entry with this word may leave, or [`NEVER`]. An entry that drains at
/// this very instant stays: the time in a way has to grow from one source to the next. An entry of
/// nobody has a time of 0, and was never used.
#[inline(always)]
fn since(entry: &impl Entry, word: Word, policy: &EvictionPolicy) -> u64 {
    let (since, now) = (word.tat().get(), policy.now.get());
    // All ones for one that was used more than once.
    let again = !is_negative(entry.packets().wrapping_sub(2));
    let stays = since.wrapping_add(policy.keep.get() & again);
    // Times have 63 bits, so a difference of two has its sign in the last. The time of one that is
    // leaving is past any other.
    let may_leave = is_negative(since.wrapping_sub(now) & stays.wrapping_sub(now).wrapping_sub(1));
    since | NEVER & !may_leave
}

/// All ones if the sign bit is set, otherwise 0. The compiler must know nothing of the word: else
/// it makes a branch.
#[inline(always)]
fn is_negative(word: u64) -> u64 {
    0_u64.wrapping_sub(black_box(word) >> 63)
}

/// Fills an entry whose word is [`Word::GONE`].
///
/// The time of a bucket that owes nothing becomes the present one, which means the same: so the
/// time in a way grows from one source to the next, and a charge that was computed for the one
/// before cannot be stored.
#[inline(always)]
fn fill(entry: &impl Entry, name: u64, bucket: &Bucket, now: Ticks) {
    let word = Word::from_raw(bucket.word);
    let tat = if word.tat() > now { word.tat() } else { now };
    // Nobody else writes these three: that takes the lock.
    entry.name().compare_exchange(entry.name().load(), name);
    entry.resolved().compare_exchange(entry.resolved().load(), bucket.resolved);
    entry.begin_counts(bucket.passed, bucket.dropped);
    entry.word().compare_exchange(Word::GONE.raw(), Word::new(tat, word.scale()).raw());
}
