//! How an entry is made, and how the one before it leaves.

use super::{Entry, FREE, HELD, Line, NOBODY, Place, find};
use crate::bucket::Word;
use crate::cell::Cell as _;
use crate::engine::Insert;
use crate::room::Leave;
use crate::room::source::{GONE, is_gone};
use crate::rounds::Rounds;
use crate::time::Ticks;
use crate::wire::Bucket;

/// Entries that are asked to leave for one that is made. Each but the last was charged since it was looked at.
const VICTIMS: u64 = 3;

/// What became of [`insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Whether there is an entry now.
    pub insert: Insert,
    /// Whether another one left for it.
    pub evicted: bool,
}

impl Made {
    const fn without(insert: Insert) -> Self {
        Self { insert, evicted: false }
    }
}

/// Makes the entry of a source, if there is none and another one may leave.
///
/// [`Insert::Exists`] as well where another CPU makes an entry in the same line for longer than this one
/// waits: the caller looks again, and finds the entry or goes without.
#[inline(always)]
pub fn insert<L: Line>(line: &L, start: u32, name: u64, bucket: &Bucket, leave: &Leave) -> Made {
    if !lock(line) {
        return Made::without(Insert::Exists);
    }
    let made = insert_locked(line, start, name, bucket, leave);
    unlock(line);
    made
}

/// Takes the lock of a line, in a bounded number of tries.
#[inline(always)]
pub(super) fn lock<L: Line>(line: &L) -> bool {
    let mut tries = Rounds::new();
    while tries.more(L::LOCK_TRIES) {
        if line.lock().compare_exchange(FREE, HELD) {
            return true;
        }
    }
    false
}

/// Gives it back.
#[inline(always)]
pub(super) fn unlock(line: &impl Line) {
    line.lock().compare_exchange(HELD, FREE);
}

#[inline(always)]
fn insert_locked<L: Line>(line: &L, start: u32, name: u64, bucket: &Bucket, leave: &Leave) -> Made {
    // Names change under the lock alone: an entry that is not there now is made by nobody else.
    if find(line, start, name).is_some() {
        return Made::without(Insert::Exists);
    }
    let mut tries = Rounds::new();
    while tries.more(VICTIMS) {
        let Some(entry) = victim(line, start, leave) else {
            return Made::without(Insert::Refused);
        };
        let word = Word::from_raw(entry.word().load());
        if may_leave(&entry, word, leave) && entry.word().compare_exchange(word.raw(), GONE.raw()) {
            let evicted = entry.name().load() != NOBODY;
            fill(&entry, name, bucket, leave.now);
            return Made { insert: Insert::Made, evicted };
        }
    }
    Made::without(Insert::Refused)
}

/// Of the entries that may leave, the one that drained first: it is the last that anybody could miss. Nobody's is the
/// oldest of all.
#[inline(always)]
fn victim<L: Line>(line: &L, start: u32, leave: &Leave) -> Option<L::Entry> {
    // The way and not the entry: the verifier knows more of a number than of a pointer that could be any of them.
    let (mut oldest, mut least) = (0, u64::MAX);
    let mut steps = Rounds::new();
    while let Some(step) = steps.next(u64::from(L::LAST) + 1) {
        let way = Place::way(start, step, L::LAST);
        let Some(entry) = line.entry(way) else {
            continue;
        };
        let word = Word::from_raw(entry.word().load());
        let since = word.tat().get();
        if since < least && may_leave(&entry, word, leave) {
            (oldest, least) = (way, since);
        }
    }
    if least == u64::MAX { None } else { line.entry(oldest) }
}

/// Whether an entry with this word may leave. One that drains at this very instant stays: the time in a way has to grow
/// from one source to the next.
#[inline(always)]
fn may_leave(entry: &impl Entry, word: Word, leave: &Leave) -> bool {
    let is_nobodys = entry.name().load() == NOBODY;
    let drained = !is_gone(word) && word.tat() < leave.now;
    is_nobodys || drained && leave.allows(word.tat(), entry.packets())
}

/// Makes an entry of one whose word is [`GONE`].
///
/// The time of a bucket that owes nothing becomes the present one, which means the same: so the time in a way
/// grows from one source to the next, and a charge that was computed for the one before cannot be stored.
#[inline(always)]
fn fill(entry: &impl Entry, name: u64, bucket: &Bucket, now: Ticks) {
    let word = Word::from_raw(bucket.word);
    let tat = if word.tat() > now { word.tat() } else { now };
    // Nobody else writes these three: that takes the lock.
    entry.name().compare_exchange(entry.name().load(), name);
    entry.resolved().compare_exchange(entry.resolved().load(), bucket.resolved);
    entry.begin_counts(bucket.passed, bucket.dropped);
    entry.word().compare_exchange(GONE.raw(), Word::new(tat, word.scale()).raw());
}
