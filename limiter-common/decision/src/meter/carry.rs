//! The state of a limit across a change of that limit.
//!
//! **What was used stays used, and no change grants what is used up.** Three kinds of changes:
//!
//! * **The rate, the burst, the number of a window.** The bucket owes the packets that passed and
//!   did not come back yet, and the limit says how many it may owe. So a raise gives the difference
//!   at once, and a cut nothing until so much has come back as is owed beyond it. Cut and raised
//!   again, it is as it was. A token and a leaky bucket owe units, whatever the rate; where the
//!   rate is the same, or the windows are, the words stay as they are.
//! * **The size of a log**: the new ring has the newest entries of the old one ([`resized`]).
//! * **The algorithm, or the length of a window.** No word of the one says what is used of the
//!   other: the count of a day is over with the first second of a limit by the second. There what
//!   is *available* stays available, up to the capacity of the new limit.
//!
//! Every algorithm has a *capacity*, what it lets pass at once, and knows how much of that is used
//! at an instant:
//!
//! | algorithm | capacity C | used | what comes back in a time t: R(t) |
//! |---|---|---|---|
//! | token bucket | the burst | what is owed | rate * t |
//! | leaky bucket | backlog and one unit | what is owed; all of it when a packet would be over | rate * t |
//! | fixed window | N | the present window's count | N * ceil(t / W) |
//! | counter | N | the weighted sum | N * t / W |
//! | slots | N | the sum | N * ceil(max(0, ceil(t / slot) + 1 - S) / S) |
//! | log | N | the packets of the last window | N * floor(t / W) |
//!
//! **Proof for buckets of a rate**, over any number of changes: let D be what is owed, in units. A
//! packet adds its units to D and passes only if D is at most the burst of then; time takes from D
//! at the rate of then; a change leaves D as it is. So what passes in any time is what D grew, and
//! that is at most the largest burst, and what was taken from it, which is at most the integral of
//! the rate:
//!
//! ```text
//! what passes in any time  <=  the largest burst  +  the integral of the rate
//! ```
//!
//! **For windows that keep their length**: the count of a window is what passed in it, and it only
//! grows while the limit of then is larger. So no window has more than the largest number that was
//! in force in it, and every other bound of the algorithm holds with that number.
//!
//! **For a change of the algorithm or of the length of a window**, with `A` units available of the
//! old limit at the instant of the change ([`crate::change::instant`]), `min(C', A)` are available
//! of the new one: a debt of the rest of its capacity, a count in the window or slot of then, or
//! that many packets in the log, which all leave it a window from then. What is owed beyond the
//! capacity of the old limit, since that was cut, is forgotten there: what is available does not
//! grow, but if a raise comes after it, its difference counts once more.
//!
//! * Exact but for rounding against the sender: to 2^-32 of a unit and a tick between limits of a
//!   rate, to a unit where one of both counts. A leaky bucket of bytes takes its last frame whole:
//!   one frame more on its side.
//! * **Another unit** (packets to bytes, say) has no such number. There the used *share* is
//!   carried, rounded up to 2^-32: for one change, with `p` passed before and `q` after it,
//!   `(p - R) / C + (q - R') / C' <= 1`; a change to and fro can give back what a small capacity
//!   gets back in between as a share of the large one.
//! * The instant of the change may be before the last packet that was charged under the old limit:
//!   by a CPU that was held up. Units are owed all the same. Where that changes the measure, it is
//!   the instant at which no more than all of the capacity was owed, if that is within [`LATE`].

use core::hint::black_box;

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::window::{LATE, LogLimit, MAX_SIZE, Tally, WallOffset, larger, less, smaller};
use limiter_common::wire::{Algorithm, Limit, LimitSpec};

use super::debt::{debt, full_at};
use super::exchange::{Unit, Units, exchange, owed};
use super::place::Place;
use super::share::Share;
use crate::algorithm::sliding_log::{self, Head};
use crate::algorithm::{Words, fixed_window, sliding_counter};
use crate::gcra::cost;
use crate::rounds::Rounds;
use crate::step::step;

/// The used part of a limit at a change, and the instant of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The used part in the measure of a limit: ticks of debt of a rate, units of a count.
    pub used: u64,
    /// The instant of the change.
    pub at: Ticks,
}

/// The used part at an instant, and the capacity, both in one measure: ticks of a rate, units of a
/// count, and of a sliding counter units times its width.
#[derive(Clone, Copy)]
struct Fill {
    used: u64,
    capacity: u64,
}

/// The share of a limit that is used at `now`, rounded up. Scale bits are ignored.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn used<W: Words>(spec: &LimitSpec, words: &W, now: Ticks, offset: WallOffset) -> Share {
    let fill = fill(spec, words, now, offset);
    let used = until_over(spec, fill.used, fill.capacity);
    // One division for all algorithms, and not one for each.
    Share::of(black_box(used), black_box(fill.capacity))
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn fill<W: Words>(spec: &LimitSpec, words: &W, now: Ticks, offset: WallOffset) -> Fill {
    // The scale bit is not looked at.
    let place = Place::new(spec, words, false);
    let (used, capacity) = match spec.algorithm() {
        Algorithm::TokenBucket => (owing(&place, now), spec.rate().tolerance),
        Algorithm::LeakyBucket => (owing(&place, now), leaky_capacity(&spec.rate())),
        Algorithm::FixedWindow => {
            let limit = spec.window();
            let position = limit.at(now, offset);
            (fixed_window::present(&limit, place.state(0), position).count, limit.limit)
        }
        Algorithm::SlidingCounter => {
            let (states, _) = place.two();
            sliding_counter::weighted(&spec.window(), &states, now)
        }
        Algorithm::SlidingSlots => {
            let limit = spec.window();
            let number = limit.at(now, WallOffset::BOOT).number;
            (place.slots(&limit, number).0.sum(), limit.limit)
        }
        Algorithm::SlidingLog => (logged(&spec.log(), &place, now), u64::from(spec.log().size)),
    };
    Fill { used, capacity }
}

/// What a bucket of a rate owes: [`debt`].
#[cfg_attr(target_arch = "bpf", inline(always))]
fn owing<W: Words>(place: &Place<'_, W>, now: Ticks) -> u64 {
    debt(Ticks::new(place.state(0)), now)
}

/// The used part of a limit at an instant, in its own measure.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn used_at<W: Words>(spec: &LimitSpec, words: &W, at: Ticks, offset: WallOffset) -> u64 {
    fill(spec, words, at, offset).used
}

/// The used part of `old` at its change to `new`, of which `used` was used at `at`; and the instant
/// of which that is seeded in `new`. Where a rate is given up for another measure, that is the one at
/// which no more than its capacity was owed, at most [`LATE`] after the change, and a leaky bucket is
/// used up once a packet would be over.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn given_up((old, new): (&LimitSpec, &LimitSpec), at: Ticks, used: u64) -> Carried {
    let given_up = old.are_rates(old) & !old.are_rates(new);
    let rate = old.rate();
    let capacity = rate.tolerance.wrapping_add(cost(&rate, 1).get() & old.is_leaky());
    let capacity = smaller(capacity, MAX_TICKS >> 1);
    let late = late(used, capacity) & given_up;
    let used = until_over(old, used, capacity & given_up);
    Carried { used, at: at.plus(Ticks::new_within(late)) }
}

/// The ticks for which more than the capacity was owed, at most [`LATE`]. A leaky bucket may owe a
/// frame that is longer, a cut bucket anything; and a fixed window takes no word that a late clock
/// does not explain.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn late(used: u64, capacity: u64) -> u64 {
    smaller(used.saturating_sub(capacity), Ticks::from_nanos(LATE).get())
}

/// The used part, and all of the capacity of a leaky bucket once a packet is over.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn until_over(spec: &LimitSpec, used: u64, capacity: u64) -> u64 {
    larger(used, capacity & spec.is_leaky() & less(spec.rate().tolerance, used))
}

/// What `new` is owed, once `old`, to which `debt` was owed, changed to it: both of a rate.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn taken_over(old: &LimitSpec, new: &LimitSpec, debt: u64) -> u64 {
    let units = Units { from: Unit::of_rate(&old.rate()), to: Unit::of_rate(&new.rate()) };
    step!(owed(; &units, debt))
}

/// The used part of `new`, in its measure, once `old`, of which `used` was used, changed to it: what
/// is available of both is the same.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn converted(old: &LimitSpec, new: &LimitSpec, used: u64) -> u64 {
    let (before, after) = (measured_capacity(old), capacity_of(new));
    if old.counts() as u8 == new.counts() as u8 {
        let units = Units { from: Unit::of_used(old), to: Unit::of_seeded(new) };
        let left = before.saturating_sub(used);
        after.saturating_sub(step!(exchange(; &units, left, after)))
    } else {
        step!(proportion(; used, before, after, new.is_rate()))
    }
}

/// The word at `index` of the log `new` that takes the place of `old`, a log of the same window and
/// another size, of which so many packets counted at the change: the entries of the newest packets,
/// with the times at which they passed. Those that find no room are in the head, as long as the
/// oldest entry counts; they were older. A larger ring takes them for packets of that time.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn resized<W: Words>(
    old: &LimitSpec,
    new: &LimitSpec,
    words: &W,
    used: u64,
    index: u32,
) -> u64 {
    let place = Place::new(old, words, false);
    let (size, new_size) = (u32::from(old.log().size), u32::from(new.log().size));
    if index == 0 {
        return Head::seeded(used.saturating_sub(u64::from(new_size))).raw();
    }
    let head = Head::from_raw(place.state(0));
    let head = head.caught_up(old.log().size, place.state(head.index().wrapping_add(1)));
    let older = new_size.wrapping_sub(index);
    if older >= size.wrapping_add(head.left_over()) {
        return 0;
    }
    let older = if older < size { older } else { size.wrapping_sub(1) };
    // The newest one is before the head, in a circle.
    let at = head.index().wrapping_add(size).wrapping_sub(1).wrapping_sub(older);
    let at = if at < size { at } else { at.wrapping_sub(size) };
    sliding_log::without_lap(place.state(at.wrapping_add(1)))
}

/// The share of `after` that `used` is of `before`, rounded up to 2^-32, and to a tick of a rate,
/// or to a unit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn proportion(used: u64, before: u64, after: u64, is_rate: bool) -> u64 {
    let share = Share::of(black_box(used), black_box(before));
    if is_rate { share.of_time(after) } else { share.of_count(after) }
}

/// The used part of a limit at its change ([`given_up`]), in the measure of the new limit
/// ([`taken_over`], [`converted`]), where that does not go on with its words.
pub fn carried<W: Words>(
    (old, new): (&LimitSpec, &LimitSpec),
    words: &W,
    at: Ticks,
    offset: WallOffset,
) -> Carried {
    let Carried { used, at } = given_up((old, new), at, used_at(old, words, at, offset));
    let convert = if old.are_rates(new) == 0 { converted } else { taken_over };
    Carried { used: convert(old, new, used), at }
}

/// The capacity of a limit in the measure of [`used_at`].
#[cfg_attr(target_arch = "bpf", inline(always))]
fn measured_capacity(spec: &LimitSpec) -> u64 {
    match spec.algorithm() {
        Algorithm::SlidingCounter => {
            let window = spec.window();
            window.limit.wrapping_mul(window.cut_width())
        }
        _ => capacity_of(spec),
    }
}

/// True if at least half of a limit is used, by the measure of [`used_at`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_half_used(spec: &LimitSpec, used: u64) -> bool {
    used >= measured_capacity(spec).div_ceil(2)
}

/// The capacity of a limit in the measure in which its state is seeded.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn capacity_of(spec: &LimitSpec) -> u64 {
    match spec.algorithm() {
        Algorithm::TokenBucket => spec.rate().tolerance,
        Algorithm::LeakyBucket => leaky_capacity(&spec.rate()),
        Algorithm::SlidingLog => u64::from(spec.log().size),
        Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingSlots => {
            spec.window().limit
        }
    }
}

/// The theoretical arrival time under `new` of a token bucket that was charged under `old`, which
/// changed to it at `at`: [`carried`] of a bucket of the source table.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn carried_tat((old, new): (&Limit, &Limit), tat: Ticks, at: Ticks) -> Ticks {
    if old.same_state(new) {
        return tat;
    }
    if old.count == new.count {
        let units = Units { from: Unit::of_rate(old), to: Unit::of_rate(new) };
        // No steps: there is no stack left for another call.
        return full_at(at, owed(&units, debt(tat, at)));
    }
    let used = debt(tat, at);
    let at = at.plus(Ticks::new_within(late(used, old.tolerance)));
    at.plus(Ticks::new(proportion(used, old.tolerance, new.tolerance, true)))
}

/// The 63-bit state of the word at `index`, below `spec.words`, of a limit whose used part is
/// `carried`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn seed(spec: &LimitSpec, carried: Carried, offset: WallOffset, index: u32) -> u64 {
    Seed::new(spec, carried, offset).word(index)
}

/// The states of all words of a limit with a used part: one value in some of them, and zero in the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    first: u32,
    /// A bit for each word that is not zero.
    mask: u64,
    state: u64,
}

impl Seed {
    /// The states of a limit whose used part is `carried`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn new(spec: &LimitSpec, carried: Carried, offset: WallOffset) -> Self {
        let Carried { used, at } = carried;
        if used == 0 {
            return Self { first: 0, mask: 0, state: 0 };
        }
        match spec.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Self { first: 0, mask: 1, state: full_at(at, used).get() }
            }
            Algorithm::FixedWindow => Self::count(spec, carried, offset, 0),
            Algorithm::SlidingCounter => Self::count(spec, carried, WallOffset::BOOT, 1),
            Algorithm::SlidingSlots => {
                let last = u64::from(spec.window().slots).wrapping_sub(1);
                Self::count(spec, carried, WallOffset::BOOT, last)
            }
            Algorithm::SlidingLog => {
                let size = u64::from(spec.log().size);
                // The head is zero: at the first entry of its first lap. The free entries come
                // first, so that all others free up together, and none is of the head's lap. All
                // are at most 31.
                let free = size.wrapping_sub(used) & 31;
                let (first, last) = (free + 1, size & 31);
                let mask = (2u64 << last).wrapping_sub(1 << first);
                Self { first: (first & 63) as u32, mask, state: sliding_log::stamped(at) }
            }
        }
    }

    /// The state of one word.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn word(&self, index: u32) -> u64 {
        // No branch: the verifier would walk both sides for every word.
        self.state & (self.mask >> (index & 63) & 1).wrapping_neg()
    }

    /// The first word that is not zero; 0 if all are.
    ///
    /// CPUs whose clocks are on both sides of a border disagree about it. The CPU that converts a
    /// limit stores this word first: then a mixture of two conversions holds the share once or
    /// twice, but never not at all.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// A count in the window of the change, whose word is that of the low bits of its number.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn count(spec: &LimitSpec, carried: Carried, offset: WallOffset, last: u64) -> Self {
        let limit = spec.window();
        let number = limit.at(carried.at, offset).number;
        let state = limit.pack(Tally { number: limit.cut(number), count: carried.used });
        // At most 7.
        let first = (number & last & 7) as u32;
        Self { first, mask: 1 << first, state }
    }
}

/// The capacity of a leaky bucket: it conforms up to its backlog and then takes one more.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn leaky_capacity(limit: &Limit) -> u64 {
    let capacity = limit.tolerance.wrapping_add(cost(limit, 1).get());
    // Room for one more bit; the compile step allows nothing as long.
    if capacity > MAX_TICKS >> 1 { MAX_TICKS >> 1 } else { capacity }
}

/// The packets of the last window.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn logged<W: Words>(limit: &LogLimit, place: &Place<'_, W>, now: Ticks) -> u64 {
    let mut count = Head::from_raw(place.state(0)).over(limit, place.state(1), now);
    let mut rounds = Rounds::new();
    // At most 31, and no branch within, for the verifier.
    while let Some(entry) = rounds.next(u64::from(limit.size & MAX_SIZE)) {
        count = count
            .wrapping_add(sliding_log::counts(limit, place.state(entry.wrapping_add(1)), now) & 1);
    }
    count
}
