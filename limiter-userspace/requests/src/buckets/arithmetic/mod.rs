//! The arithmetic of `limiter-decision`, over the words of one key: the only module that knows it.
//!
//! The words of a key are those of all limits of its rule, one after the other. They change by
//! compare-and-exchange alone, as those of packets do.

mod ahead;
mod owed;

use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::time::{MAX_TICKS, TICK_BITS, Ticks};
use limiter_common::window::WallOffset;
use limiter_common::wire::{Algorithm, Limit, LimitSpec, WORDS};
use limiter_decision::algorithm::Words;
use limiter_decision::meter::{self, Arrival, Carried, Charged, Peek, Seed, Undo, carry};
use limiter_rules::compile::Failure;
use limiter_rules::file::requests::{Calendar, ReadyLimit, RequestLimit};
use limiter_rules::model::Meter;
use smallvec::SmallVec;

use crate::clock::Moment;

/// Charges that are tried while other threads are faster. Each failure is another's success, so
/// this many in a row mean that hundreds of threads ask for one key.
const TRIES: usize = 1 << 12;

fn is_log(limit: &ReadyLimit) -> bool {
    limit.spec.algorithm() == Algorithm::SlidingLog
}

/// A limit as a request of so many hits meets it; none if that is more than time can hold. A bucket
/// charges one unit, as of a packet, and here that unit is all hits together.
fn met(limit: &ReadyLimit, moment: &Moment, hits: u64) -> Option<(LimitSpec, Arrival)> {
    let arrival = |units| Arrival {
        now: moment.now,
        offset: offset(limit, moment),
        units,
        is_super_frame: false,
    };
    let spec = limit.spec;
    if hits <= 1 || !spec.is_rate() {
        return Some((spec, arrival(hits)));
    }
    let rate = spec.rate();
    let most = MAX_TICKS >> 1;
    let increment = rate.increment.checked_mul(hits).filter(|all| *all <= most);
    // A leaky bucket takes all at once, and owes as much as time can hold.
    let is_leaky = spec.algorithm() == Algorithm::LeakyBucket;
    let increment = increment.or_else(|| is_leaky.then_some(most))?;
    let all = Limit { increment, ..rate };
    let all = LimitSpec::of_rate(spec.algorithm(), &all, spec.role());
    Some((all.at(spec.first), arrival(1)))
}

/// The windows of the wall clock. A window of the calendar gets the number of its months and the
/// longest of their lengths, whatever the length of this one.
fn offset(limit: &ReadyLimit, moment: &Moment) -> WallOffset {
    match limit.written.calendar {
        // They have no windows.
        None if limit.spec.is_rate() => WallOffset::BOOT,
        None => moment.offset(),
        Some(Calendar { months }) => {
            moment.calendar(months).offset(moment.now, limit.spec.window().width)
        }
    }
}

/// The limits of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits(Box<[ReadyLimit]>);

/// Some of the limits of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(u8);

impl Places {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(u8::MAX);

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, place: usize) -> bool {
        u32::try_from(place).is_ok_and(|place| self.0.checked_shr(place).unwrap_or(0) & 1 != 0)
    }

    pub(crate) fn add(&mut self, place: usize) {
        let bit = u32::try_from(place).ok().and_then(|place| 1_u8.checked_shl(place));
        self.0 |= bit.unwrap_or(0);
    }

    /// True if all of these are among others.
    pub(crate) const fn are_in(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
}

/// A limit that a request is over, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over(pub usize);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charges {
    made: SmallVec<[Undo; 1]>,
    /// True if the request is over a soft limit, to which it is not charged.
    pub(crate) over_soft: bool,
}

impl Charges {
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    fn latest_first(&self) -> impl Iterator<Item = &Undo> {
        self.made.iter().rev()
    }
}

/// What is left of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Hits that would pass now, one by one.
    pub remaining: u64,
    /// Nanoseconds until nothing of the limit is used.
    pub reset: u64,
    /// Nanoseconds until the request would pass, if nobody else asks; none if it never does.
    pub wait: Option<u64>,
}

struct Shared<'a>(&'a [AtomicU64]);

impl<'a> Words for Shared<'a> {
    type Cell = &'a AtomicU64;

    fn cell(&self, index: u32) -> Option<Self::Cell> {
        self.0.get(usize::try_from(index).ok()?)
    }
}

/// The words of a key at one moment, that nobody else changes.
struct Copied([AtomicU64; WORDS]);

impl Copied {
    fn of(words: &[AtomicU64]) -> Self {
        let word = |word: &AtomicU64| word.load(Ordering::Acquire);
        Self(std::array::from_fn(|index| AtomicU64::new(words.get(index).map_or(0, word))))
    }
}

impl Limits {
    /// Limits that a file says.
    pub(crate) fn of(ready: &[ReadyLimit]) -> Self {
        Self(ready.into())
    }

    /// Limits that no file says.
    pub(crate) fn compile(written: &[RequestLimit]) -> Result<Self, Failure> {
        ReadyLimit::compile(written).map(Self)
    }

    /// The limits in their order.
    pub fn all(&self) -> &[ReadyLimit] {
        &self.0
    }

    pub(crate) fn written(&self) -> Box<[RequestLimit]> {
        self.0.iter().map(|limit| limit.written).collect()
    }

    /// True if all of them can say when a request may go: token and leaky buckets.
    pub(crate) fn are_rates(&self) -> bool {
        self.0.iter().all(|limit| limit.spec.is_rate())
    }

    pub(crate) fn words(&self) -> usize {
        self.0.iter().map(|limit| usize::from(limit.spec.words)).sum()
    }

    /// Looks at some of the limits whether requests of so many hits would pass, one after the
    /// other. Changes nothing.
    pub(crate) fn peek(
        &self,
        places: Places,
        words: &[AtomicU64],
        moment: &Moment,
        hits: &[u64],
    ) -> Result<(), Over> {
        for (number, limit) in self.some(places) {
            if !limit.written.is_soft && !all_conform(limit, words, moment, hits) {
                return Err(Over(number));
            }
        }
        Ok(())
    }

    /// Charges a request to some of the limits, or to none: to each of them as of the first moment
    /// at which it takes the request, within so many nanoseconds.
    pub(crate) fn charge(
        &self,
        places: Places,
        words: &[AtomicU64],
        moment: &Moment,
        (hits, ahead): (u64, u64),
    ) -> Result<Charges, Over> {
        // What is taken back of a log is of no use for a while: it is looked at first, too.
        if self.0.len() > 1 || hits > 1 && self.0.iter().any(is_log) {
            self.peek(places, words, &moment.plus(ahead), &[hits])?;
        }
        let mut charges = Charges::default();
        for (number, limit) in self.some(places) {
            let is_soft = limit.written.is_soft;
            let first = match ahead {
                0 => Some(0),
                _ => wait(limit, &Copied::of(words), moment, &[hits], ahead),
            };
            let at = first.map(|nanos| moment.plus(nanos));
            if is_soft && !at.is_some_and(|at| conforms(limit, words, &at, hits)) {
                charges.over_soft = true;
                continue;
            }
            if !at.is_some_and(|at| charge(limit, words, &at, hits, &mut charges)) {
                if is_soft {
                    // Somebody was faster.
                    charges.over_soft = true;
                    continue;
                }
                take_back(words, &charges);
                return Err(Over(number));
            }
        }
        Ok(charges)
    }

    /// Limits over which nothing passes.
    pub(crate) fn hard(&self) -> impl Iterator<Item = &ReadyLimit> {
        self.0.iter().filter(|limit| !limit.written.is_soft)
    }

    fn some(&self, places: Places) -> impl Iterator<Item = (usize, &ReadyLimit)> {
        self.0.iter().enumerate().filter(move |(number, _)| places.has(*number))
    }

    /// True if at least half of any limit is used.
    pub(crate) fn is_half_used(&self, words: &[AtomicU64], moment: &Moment) -> bool {
        let half =
            |limit: &ReadyLimit| carry::is_half_used(&limit.spec, used(limit, words, moment));
        self.0.iter().any(half)
    }

    /// True if nothing of any limit is used: the key is as good as one that was never seen.
    pub(crate) fn is_drained(&self, words: &[AtomicU64], moment: &Moment) -> bool {
        self.0.iter().all(|limit| used(limit, words, moment) == 0)
    }

    /// What is left of a limit, for requests of so many hits, one after the other.
    pub(crate) fn left(
        &self,
        number: usize,
        words: &[AtomicU64],
        moment: &Moment,
        hits: &[u64],
    ) -> Option<Left> {
        let limit = self.0.get(number)?;
        let words = Copied::of(words);
        let reset = if used(limit, &words.0, moment) == 0 {
            0
        } else if let Some(Calendar { months }) = limit.written.calendar {
            // A clock that went back counts in the window behind this one, and a report in more.
            let mut ends = 0;
            while ends < LONGEST / 2 && used(limit, &words.0, &moment.plus(ends)) != 0 {
                ends += moment.plus(ends).calendar(months).ends_in;
            }
            ends
        } else {
            let drained = |nanos| used(limit, &words.0, &moment.plus(nanos)) == 0;
            let near = owed(limit, &words, moment).map(nanos);
            // Half of the clock's time tells a window that is long over from one to come.
            let most = if limit.spec.is_rate() { LONGEST } else { LONGEST / 2 };
            least_near(near, 0, most, drained).unwrap_or(LONGEST)
        };
        Some(Left {
            remaining: remaining(limit, &words, moment),
            reset,
            wait: wait(limit, &words, moment, hits, reset),
        })
    }

    /// The words that these limits begin with, where a key had `words` of `old`: what is available
    /// stays available, as for packets.
    pub(crate) fn convert(
        &self,
        old: &Self,
        words: &[AtomicU64],
        moment: &Moment,
    ) -> Box<[AtomicU64]> {
        let new: Box<[AtomicU64]> = (0..self.words()).map(|_| AtomicU64::new(0)).collect();
        for (limit, before) in self.0.iter().zip(&old.0) {
            let word = |index: u8, first: u8| usize::from(first.saturating_add(index));
            let same = limit.spec.same_state(&before.spec)
                && limit.written.calendar == before.written.calendar;
            let log = before.spec.same_log(&limit.spec);
            let of_before = offset(before, moment);
            let carried =
                meter::carried((&before.spec, &limit.spec), &Shared(words), moment.now, of_before);
            let seed = Seed::new(&limit.spec, carried, offset(limit, moment));
            for index in 0..limit.spec.words {
                let Some(to) = new.get(word(index, limit.spec.first)) else {
                    continue;
                };
                let from = words.get(word(index, before.spec.first));
                let state = match from {
                    Some(from) if same => from.load(Ordering::Acquire),
                    _ if log => {
                        let of = (&before.spec, &Shared(words));
                        let used = meter::used_at(of.0, of.1, moment.now, of_before).used;
                        meter::resized(of.0, &limit.spec, of.1, used, index.into()) << 1
                    }
                    // The lowest bit is for limits that change in place.
                    _ => seed.word(u32::from(index)) << 1,
                };
                to.store(state, Ordering::Release);
            }
        }
        new
    }
}

impl Limits {
    /// The words of a key on another clock, where it had `words` at `then` on the one before: what
    /// was used then is used at `from`. Windows of the wall clock are what they were.
    pub(crate) fn on_another_clock(
        &self,
        words: &[AtomicU64],
        then: Ticks,
        from: Ticks,
    ) -> Box<[AtomicU64]> {
        let new: Box<[AtomicU64]> = (0..self.words()).map(|_| AtomicU64::new(0)).collect();
        for ReadyLimit { spec, .. } in &self.0 {
            let of_wall = spec.algorithm() == Algorithm::FixedWindow;
            let Carried { used, at } =
                meter::carried((spec, spec), &Shared(words), then, WallOffset::BOOT);
            let at = from.plus(at.since(then));
            let seed = Seed::new(spec, Carried { used, at }, WallOffset::BOOT);
            for index in 0..spec.words {
                let place = usize::from(spec.first.saturating_add(index));
                let (Some(to), Some(word)) = (new.get(place), words.get(place)) else {
                    continue;
                };
                let state = if of_wall {
                    word.load(Ordering::Acquire)
                } else {
                    seed.word(u32::from(index)) << 1
                };
                to.store(state, Ordering::Release);
            }
        }
        new
    }
}

/// Takes charges back, as far as nobody charged the same words since; true if all were.
pub(crate) fn take_back(words: &[AtomicU64], charges: &Charges) -> bool {
    let taken = charges.latest_first().map(|charge| meter::undo(&Shared(words), charge));
    taken.fold(true, |all, taken| all & taken)
}

/// [`take_back`] of rates; true if nothing of the charges counts any more.
pub(crate) fn give_back(words: &[AtomicU64], charges: &Charges, moment: &Moment) -> bool {
    let gone = |charge: &Undo| {
        // Others charged it since, and time has given it back.
        meter::undo(&Shared(words), charge) || charge.new >> 1 <= moment.now.get()
    };
    charges.latest_first().map(gone).fold(true, |all, gone| all & gone)
}

/// True if requests would pass, one after the other.
fn all_conform(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment, hits: &[u64]) -> bool {
    if let [hits] = hits {
        return conforms(limit, words, moment, *hits);
    }
    let copy = Copied::of(words);
    hits.iter().all(|hits| charge(limit, &copy.0, moment, *hits, &mut Charges::default()))
}

/// True if a request would pass.
fn conforms(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment, hits: u64) -> bool {
    let present = owed::as_of(limit, words, moment);
    let words = present.as_ref().map_or(words, |copy| &copy.0);
    if is_log(limit) && hits > 1 {
        // A log keeps one entry a charge.
        let copy = Copied::of(words);
        return charge(limit, &copy.0, moment, hits, &mut Charges::default());
    }
    let Some((spec, arrival)) = met(limit, moment, hits) else {
        return false;
    };
    match meter::peek(&spec, &Shared(words), false, &arrival) {
        Peek::Conforming => true,
        Peek::Over | Peek::Moved => false,
    }
}

/// Charges one limit; false if the request is over it. Charges before a failure stay in `charges`.
fn charge(
    limit: &ReadyLimit,
    words: &[AtomicU64],
    moment: &Moment,
    hits: u64,
    charges: &mut Charges,
) -> bool {
    let (times, hits) = if is_log(limit) { (hits, 1) } else { (1, hits) };
    if is_log(limit) && times > limit.written.amount() {
        return false;
    }
    let Some((spec, arrival)) = met(limit, moment, hits) else {
        return false;
    };
    owed::bring_forward(limit, words, moment);
    let words = Shared(words);
    for _ in 0..times {
        let mut undo = Undo::default();
        let mut tries = 0..TRIES;
        let outcome = loop {
            match meter::charge(&spec, &words, false, &arrival, &mut undo) {
                Charged::Contended if tries.next().is_some() => std::hint::spin_loop(),
                other => break other,
            }
        };
        match outcome {
            Charged::Conforming => charges.made.push(undo),
            Charged::Over | Charged::Contended | Charged::Moved => return false,
        }
    }
    true
}

/// The used part of a limit; only whether it is zero has a meaning here.
fn used(limit: &ReadyLimit, words: &[AtomicU64], moment: &Moment) -> u64 {
    let present = owed::as_of(limit, words, moment);
    let words = Shared(present.as_ref().map_or(words, |copy| &copy.0));
    meter::used_at(&limit.spec, &words, moment.now, offset(limit, moment)).used
}

/// The longest time that is looked for: that of the clock, in nanoseconds.
pub(crate) const LONGEST: u64 = u64::MAX >> (TICK_BITS + 1);

/// Hits that would pass one by one: found with the decision itself.
fn remaining(limit: &ReadyLimit, words: &Copied, moment: &Moment) -> u64 {
    let most = limit.written.amount();
    if !conforms(limit, &words.0, moment, 1) {
        return 0;
    }
    // A leaky bucket takes any number at once: so many that one more would pass.
    if let Meter::LeakyBucket { .. } = limit.written.meter {
        let passes = |hits: u64| {
            let copy = Copied::of(&words.0);
            charge(limit, &copy.0, moment, hits, &mut Charges::default())
                && conforms(limit, &copy.0, moment, 1)
        };
        let (mut low, mut high) = (0, 1);
        while high < u64::MAX >> 1 && passes(high) {
            (low, high) = (high, high * 2);
        }
        return 1 + least(low, high, |hits| !passes(hits + 1)).unwrap_or(low);
    }
    let near = owed(limit, words, moment).and_then(|owed| {
        let Limit { tolerance, increment, shift, .. } = limit.spec.rate();
        let free = u128::from(tolerance.saturating_sub(owed)) << shift;
        u64::try_from(free.checked_div(increment.into())?).ok()
    });
    least_near(near, 1, most, |hits| {
        hits >= most || !conforms(limit, &words.0, moment, hits.saturating_add(1))
    })
    .unwrap_or(most)
}

/// Nanoseconds until requests would pass, at most so many: found with the decision itself.
fn wait(
    limit: &ReadyLimit,
    words: &Copied,
    moment: &Moment,
    hits: &[u64],
    longest: u64,
) -> Option<u64> {
    let conform = |nanos| all_conform(limit, &words.0, &moment.plus(nanos), hits);
    if conform(0) {
        return Some(0);
    }
    let near = match limit.written.calendar {
        Some(_) => Some(longest),
        None => owed(limit, words, moment).and_then(|owed| {
            let Limit { tolerance, increment, shift, .. } = limit.spec.rate();
            let hits: u128 = hits.iter().map(|hits| u128::from(*hits)).sum();
            let over = (u128::from(owed) + ((u128::from(increment) * hits) >> shift))
                .saturating_sub(tolerance.into());
            u64::try_from(over).ok().map(nanos)
        }),
    };
    least_near(near, 0, longest, conform)
}

/// Ticks until nothing of a rate is owed; none of what is no rate. A guess, which the decision then
/// confirms.
fn owed(limit: &ReadyLimit, words: &Copied, moment: &Moment) -> Option<u64> {
    let used = || meter::used_at(&limit.spec, &Shared(&words.0), moment.now, WallOffset::BOOT);
    let Carried { used, at } = limit.spec.is_rate().then(used)?;
    Some(at.get().saturating_sub(moment.now.get()).saturating_add(used))
}

/// Nanoseconds that are at least so many ticks.
const fn nanos(ticks: u64) -> u64 {
    ticks.div_ceil(1 << TICK_BITS)
}

/// [`least`], if it is probably `near`: two looks then take the place of sixty.
fn least_near(near: Option<u64>, low: u64, high: u64, has: impl Fn(u64) -> bool) -> Option<u64> {
    let near = near.filter(|near| (low..=high).contains(near));
    match near {
        Some(near) if has(near) && (near == low || !has(near - 1)) => Some(near),
        _ => least(low, high, has),
    }
}

/// The least number from `low` to `high` that has a property, which all above it have, too; none
/// if not even `high` has it.
pub(crate) fn least(low: u64, high: u64, mut has: impl FnMut(u64) -> bool) -> Option<u64> {
    if !has(high) {
        return None;
    }
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        if has(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}
