//! Reports: hits of what was done already. They are charged whether they fit or not, and what does
//! not fit is owed: each hit counts at the first moment at which it would have conformed.
//!
//! * A bucket's word is the moment at which nothing is owed any more: it moves on by the cost.
//! * A log has the moments of its latest hits, which may be to come.
//! * A window or slot counts more than the limit, and what is too much moves on with the time, as
//!   much at once as the limit: [`brought_forward`].

use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::time::MAX_TICKS;
use limiter_common::window::{MAX_SIZE, Tally, WallOffset, WindowLimit};
use limiter_common::wire::{Algorithm, Limit};
use limiter_decision::meter::Undo;

use super::{Charges, Copied, LONGEST, Limits, ReadyLimit, TRIES, charge, conforms, least, offset};
use crate::clock::Moment;

impl Limits {
    /// Charges hits of what was done already, whatever is left.
    pub(crate) fn report(&self, words: &[AtomicU64], moment: &Moment, hits: u64) {
        for limit in &self.0 {
            // What is over a soft limit is not charged to it.
            if limit.written.is_soft && !conforms(limit, words, moment, hits) {
                continue;
            }
            match limit.spec.algorithm() {
                Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                    owe(limit, words, moment, hits);
                }
                Algorithm::SlidingLog => log(limit, words, moment, hits),
                Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingSlots => {
                    count(limit, words, moment, hits);
                }
            }
        }
    }
}

fn owe(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment, hits: u64) {
    let Limit { increment, shift, .. } = limit.spec.rate();
    let cost = (u128::from(increment) * u128::from(hits)).div_ceil(1_u128 << shift);
    let Some(word) = words.get(usize::from(limit.spec.first)) else { return };
    let later = |raw: u64| {
        let owed = u128::from((raw >> 1).max(moment.now.get())) + cost;
        // More than the clock can hold is as much as it can.
        let owed = u64::try_from(owed).map_or(MAX_TICKS, |owed| owed.min(MAX_TICKS));
        Some(owed << 1 | raw & 1)
    };
    // It always has a value.
    let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
}

/// Charges hits to a log, each at the first moment at which it conforms. Of more than the log has
/// room for only the last ones are seen, which are later by a window for each time that the log
/// was full.
fn log(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment, hits: u64) {
    let size = limit.written.amount();
    let copy = Copied::of(words);
    let first = |words: &[AtomicU64]| {
        least(0, LONGEST, |nanos| conforms(limit, words, &moment.plus(nanos), 1)).unwrap_or(LONGEST)
    };
    let mut at = Vec::new();
    for _ in 0..size.min(hits) {
        let nanos = first(&copy.0);
        charge(limit, &copy.0, &moment.plus(nanos), 1, &mut Charges::default());
        at.push(nanos);
    }
    let window = limit.spec.log().window;
    for number in hits.saturating_sub(size)..hits {
        let (lap, index) = (number / size.max(1), number % size.max(1));
        let later = usize::try_from(index).ok().and_then(|index| at.get(index).copied());
        let later = later.unwrap_or_default();
        let nanos = later.saturating_add(lap.saturating_mul(window)).min(LONGEST);
        // Where somebody was faster it is later still.
        let mut tries = 0..MAX_SIZE;
        let mut moment = moment.plus(nanos);
        while !charge(limit, words, &moment, 1, &mut Charges::default()) && tries.next().is_some() {
            moment = moment.plus(window.min(LONGEST));
        }
    }
}

fn count(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment, hits: u64) {
    let window = limit.spec.window();
    let number = number(limit, &window, moment);
    for _ in 0..TRIES {
        bring_forward(limit, words, moment);
        let newest = newest(limit, &window, words);
        let (number, index) = if limit.spec.algorithm() == Algorithm::FixedWindow {
            let is_late = newest.count > 0 && window.is_late(number, newest.number) != 0;
            (if is_late { newest.number } else { window.cut(number) }, 0)
        } else {
            let number = number.max(newest.number);
            (number, usize::try_from(number).unwrap_or_default() & (words_of(limit) - 1))
        };
        let Some(word) = words.get(usize::from(limit.spec.first) + index) else { return };
        let raw = word.load(Ordering::Acquire);
        let before = window.unpack(raw >> 1).count_in(number);
        // More than a word can hold is as much as it can.
        let count = before.saturating_add(hits).min(window.max_limit());
        let new = (window.pack(Tally { number, count }) << 1) | (raw & 1);
        if word.compare_exchange(raw, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return;
        }
    }
}

/// The number of the window or slot at a moment: only fixed windows are those of the wall clock.
fn number(limit: &ReadyLimit, window: &WindowLimit, moment: &Moment) -> u64 {
    let offset = match limit.spec.algorithm() {
        Algorithm::FixedWindow => offset(limit, moment),
        _ => WallOffset::BOOT,
    };
    window.at(moment.now, offset).number
}

/// Words of a limit that counts in windows: a power of two.
fn words_of(limit: &ReadyLimit) -> usize {
    usize::from(limit.spec.words).max(1)
}

fn own<'a>(limit: &ReadyLimit, words: &'a [AtomicU64]) -> impl Iterator<Item = &'a AtomicU64> {
    words.iter().skip(usize::from(limit.spec.first)).take(words_of(limit))
}

fn tallies(
    limit: &ReadyLimit,
    window: &WindowLimit,
    words: &[AtomicU64],
) -> impl Iterator<Item = Tally> {
    own(limit, words).map(|word| window.unpack(word.load(Ordering::Acquire) >> 1))
}

/// What counts in a slot: the counts of it and of those before it, as many as there are.
fn counted(window: &WindowLimit, all: impl Iterator<Item = Tally>, number: u64) -> u64 {
    let counts = |of: &Tally| number.saturating_sub(of.number) < u64::from(window.slots);
    all.filter(counts).map(|of| of.count).fold(0, u64::saturating_add)
}

/// The newest window or slot that has a count.
fn newest(limit: &ReadyLimit, window: &WindowLimit, words: &[AtomicU64]) -> Tally {
    let counted = tallies(limit, window, words).filter(|tally| tally.count > 0);
    counted.max_by_key(|tally| tally.number).unwrap_or(Tally { number: 0, count: 0 })
}

/// Moves what was too much for its window into those since then.
pub(super) fn bring_forward(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment) {
    let Some(changes) = brought_forward(limit, words, moment) else { return };
    for Undo { index, old, new } in changes {
        let word = usize::try_from(index).ok().and_then(|index| words.get(index));
        let swapped = word.map(|word| {
            word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
        });
        if swapped != Some(true) {
            // Somebody else does it.
            return;
        }
    }
}

/// A copy of words in which what was too much for its window counts in the present one; none if
/// the words say so already.
pub(super) fn as_of(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment) -> Option<Copied> {
    let changes = brought_forward(limit, words, moment)?;
    let copy = Copied::of(words);
    for Undo { index, new, .. } in changes {
        if let Some(word) = usize::try_from(index).ok().and_then(|index| copy.0.get(index)) {
            word.store(new, Ordering::Release);
        }
    }
    Some(copy)
}

/// The changes that move what was too much for its window into those since then: the first one is
/// of the word that holds it.
fn brought_forward(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment) -> Option<Vec<Undo>> {
    let algorithm = limit.spec.algorithm();
    if limit.spec.is_rate() || algorithm == Algorithm::SlidingLog {
        return None;
    }
    let window = limit.spec.window();
    let holder = newest(limit, &window, words);
    let too_much = match algorithm {
        Algorithm::SlidingSlots => counted(&window, tallies(limit, &window, words), holder.number),
        _ => holder.count,
    };
    if too_much <= window.limit {
        return None;
    }
    let raws: Vec<u64> = own(limit, words).map(|word| word.load(Ordering::Acquire)).collect();
    let before: Vec<Tally> = raws.iter().map(|raw| window.unpack(raw >> 1)).collect();
    let now = number(limit, &window, moment);
    let mut after = before.clone();
    match algorithm {
        Algorithm::FixedWindow => {
            let now = window.cut(now);
            if window.is_late(now, holder.number) != 0 {
                return None;
            }
            let passed = window.cut(now.wrapping_sub(holder.number));
            // A clock that was set back forgives nothing.
            let passed = if passed > window.cut(u64::MAX) / 2 { 0 } else { passed };
            let given = window.limit.saturating_mul(passed);
            after = vec![Tally { number: now, count: holder.count.saturating_sub(given) }];
        }
        Algorithm::SlidingCounter => {
            for number in [now.saturating_sub(1), now].into_iter().filter(|of| *of >= holder.number)
            {
                let given = window.limit.saturating_mul(number - holder.number);
                let count = holder.count.saturating_sub(given);
                let most = if number < now { window.limit } else { u64::MAX };
                let slot = after.get_mut(usize::try_from(number & 1).unwrap_or_default())?;
                *slot = Tally { number, count: count.min(most) };
            }
        }
        _ => slots(&window, &mut after, holder.number, now)?,
    }
    let mut changes = Vec::new();
    for (index, (old, (before, after))) in
        (u32::from(limit.spec.first)..).zip(raws.iter().zip(before.iter().zip(&after)))
    {
        if before != after {
            let change = Undo { index, old: *old, new: window.pack(*after) << 1 | old & 1 };
            let place = if *before == holder { 0 } else { changes.len() };
            changes.insert(place, change);
        }
    }
    (!changes.is_empty()).then_some(changes)
}

/// Moves slots from `newest` on to `now`: with each slot that is left behind, what was too much
/// goes into the next one.
fn slots(window: &WindowLimit, all: &mut [Tally], newest: u64, now: u64) -> Option<()> {
    let count = u64::from(window.slots.max(1));
    let index = |number: u64| usize::try_from(number & (count - 1)).unwrap_or_default();
    let too_much = |all: &[Tally], number| {
        counted(window, all.iter().copied(), number).saturating_sub(window.limit)
    };
    let mut at = newest;
    // After as many slots as there are, all is as before, and less by the limit.
    let rounds = (now.checked_sub(at)? / count).min(too_much(all, at) / window.limit.max(1));
    let holder = all.get_mut(index(at))?;
    holder.count = holder.count.saturating_sub(rounds.saturating_mul(window.limit));
    at += rounds * count;
    for tally in all.iter_mut().filter(|of| newest.saturating_sub(of.number) < count) {
        tally.number += rounds * count;
    }
    while at < now {
        let owed = too_much(all, at);
        if owed == 0 {
            break;
        }
        let holder = all.get_mut(index(at))?;
        holder.count = holder.count.saturating_sub(owed);
        at += 1;
        *all.get_mut(index(at))? = Tally { number: at, count: owed };
    }
    Some(())
}
