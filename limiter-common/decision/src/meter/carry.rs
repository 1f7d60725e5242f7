//! The state of a limit across a change of that limit.
//!
//! **No change grants what is used up.** From the change on the new rate counts, and
//!
//! * **windows keep their words** while only their number changes, and a log its newest entries
//!   ([`resized`]): what passed in each window stays counted. So a raise gives the difference at
//!   once, and a cut and a raise together change nothing;
//! * **a token or a leaky bucket that is raised** keeps what it owes, in units, as long as the rule
//!   was never cut since it began ([`LimitSpec::is_largest`]): the difference is there at once;
//! * **a token or a leaky bucket that is cut on trial** owes on, in units and beyond its capacity
//!   ([`LimitSpec::is_cut_on_trial`]): so the limit before finds what it would have left. Whoever
//!   confirms the trial puts the same limit in force anew, which owes no more than its capacity;
//! * **everywhere else what is available stays available**, up to the new limit's capacity.
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
//! With `A` units available of the old limit at the instant of the change
//! ([`crate::change::instant`]), `min(C', A)` are available of the new one at that instant: a debt
//! of the rest of its capacity, a count in the window or slot of then, or that many packets in the
//! log, which all leave it a window from then. Over any number of changes of a rule, with `R` the
//! sum of what each limit gives back while it counts,
//!
//! ```text
//! what passes in any time  <=  the largest C  +  R
//! ```
//!
//! Proof for rates. Let `P` be what passed since the rule began, and `L` the largest C of the
//! limits marked [`LimitSpec::is_largest`] until then. At the start `A = C = L`, so `P + A <= L +
//! R`. A packet takes from `A` what it adds to `P`; time adds to `A` at most what it adds to `R`; a
//! change that keeps what is available adds nothing to `A`. A raise from one marked limit to
//! another adds `C' - C` to `A`, and to `L`, for `L` was C: no limit is marked after a cut, so all
//! before were marked and none was larger. (A rule set on trial marks nothing, for it may be taken
//! back.)
//!
//! Why no raise after a cut gives its difference: a cut bucket of which all was used and one of
//! which as much was used as is left of the capacity hold the same word. A raise cannot distinguish
//! them, so it would grant the first one a burst, with each change back and forth. To remember the
//! difference as a debt instead would make a source silent for `(C - C') / rate'`: hours, where a
//! quota of a day is cut.
//!
//! For windows of one length: the count of a window is what passed in it, and grows only while the
//! number in force is larger. So no window has more than the largest number that was in force in
//! it.
//!
//! * Exact but for rounding down: to 2^-32 of a unit and a tick between limits of a rate, to a unit
//!   where one of both counts. A leaky bucket of bytes takes its last frame whole: one frame more
//!   on its side.
//! * **Another unit** (packets to bytes, say) has no such number. There the used *share* is
//!   carried, rounded up to 2^-32: for one change, with `p` passed before and `q` after it, `(p -
//!   R) / C + (q - R') / C' <= 1`; a change back and forth can give back what a small capacity gets
//!   back in between as a share of the large one.
//! * The instant of the change may be before the last packet that was charged under the old limit:
//!   by a CPU that was held up. A debt says so, for it never exceeds the capacity: then it is the
//!   instant at which all of it was owed.
//! * Words that mean the same under both limits are not touched ([`LimitSpec::same_state`]).

use core::hint::black_box;

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::window::{LATE, LogLimit, MAX_SIZE, Tally, WallOffset};
use limiter_common::wire::{Algorithm, Limit, LimitSpec};

use super::exchange::{Unit, Units, exchange, owed, rounded};
use super::place::Place;
use super::share::Share;
use crate::algorithm::sliding_log::{self, Head};
use crate::algorithm::{Words, fixed_window, sliding_counter};
use crate::call::call;
use crate::gcra::cost;
use crate::rounds::Rounds;

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
    // One division for all algorithms, and not one for each.
    Share::of(black_box(fill.used), black_box(fill.capacity))
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn fill<W: Words>(spec: &LimitSpec, words: &W, now: Ticks, offset: WallOffset) -> Fill {
    // The scale bit is not looked at.
    let place = Place::new(spec, words, false);
    let (used, capacity) = match spec.algorithm() {
        Algorithm::TokenBucket => {
            (Ticks::new(place.state(0)).since(now).get(), spec.rate().tolerance)
        }
        Algorithm::LeakyBucket => {
            let limit = spec.rate();
            let owed = Ticks::new(place.state(0)).since(now).get();
            let capacity = leaky_capacity(&limit);
            let is_all = owed > limit.tolerance && !spec.is_cut_on_trial();
            (if is_all { capacity } else { owed }, capacity)
        }
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

/// The used part of a limit at the instant at which it changed, in its own measure, and that
/// instant: `at`, or later if all of a rate's capacity was owed later than that.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn used_at<W: Words>(spec: &LimitSpec, words: &W, at: Ticks, offset: WallOffset) -> Carried {
    let at = match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket if !spec.is_cut_on_trial() => {
            let state = Ticks::new(Place::new(spec, words, false).state(0));
            later(at, state.since(Ticks::new(capacity_of(spec))))
        }
        _ => at,
    };
    Carried { used: fill(spec, words, at, offset).used, at }
}

/// The most ticks that a limit cut on trial owes: 2.28 years.
const MOST_OWED: u64 = 1 << 61;

/// Ticks of a debt that may have been more than [`MOST_OWED`] up to 52 days ago.
const MAYBE_MORE: u64 = MOST_OWED - (1 << 57);

/// True if a change of `old` to `new` goes on with what is owed: a raise of one rule, or a cut on
/// trial and the way back from it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn goes_on(old: &LimitSpec, new: &LimitSpec, same_rule: bool) -> bool {
    if old.counts() as u8 != new.counts() as u8 || !old.is_rate() || !new.is_rate() {
        return false;
    }
    if old.is_largest() && new.is_largest() {
        return same_rule;
    }
    let units = |spec: &LimitSpec| units_of(&spec.rate(), capacity_of(spec));
    is_cut(old.is_cut_on_trial(), new.is_cut_on_trial(), || units(old), || units(new))
}

/// True if `new` is on trial in the place of a larger limit, or takes the place of one that was.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_cut(
    old_on_trial: bool,
    new_on_trial: bool,
    old: impl Fn() -> u64,
    new: impl Fn() -> u64,
) -> bool {
    new_on_trial && old() >= new() || old_on_trial && new() >= old()
}

/// Units of a capacity in ticks, roughly: what is nearly the same is converted nearly the same.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn units_of(limit: &Limit, capacity: u64) -> u64 {
    capacity.checked_div(limit.increment >> (limit.shift & 63)).unwrap_or_default()
}

/// What is owed of `new`, which goes on with what `used` of `old` was owed.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn raised(old: &LimitSpec, new: &LimitSpec, used: u64) -> u64 {
    let capacity = capacity_of(new);
    if old.is_cut_on_trial() && used > MAYBE_MORE {
        return capacity;
    }
    let units = Units { from: Unit::of_rate(&old.rate()), to: Unit::of_rate(&new.rate()) };
    call!(owed(; &units, used, if new.is_cut_on_trial() { MOST_OWED } else { capacity }))
}

/// The used part of `new`, in its measure, once `old`, of which `used` was used, changed to it:
/// what is available of both is the same.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn converted(old: &LimitSpec, new: &LimitSpec, used: u64) -> u64 {
    let (before, after) = (measured_capacity(old), capacity_of(new));
    if old.counts() as u8 == new.counts() as u8 {
        let units = Units { from: Unit::of_used(old), to: Unit::of_seeded(new) };
        let left = before.saturating_sub(used);
        after.saturating_sub(call!(exchange(; &units, left, after)))
    } else {
        call!(proportion(; used, before, after, new.is_rate()))
    }
}

/// The word at `index` of the log `new` that takes the place of `old`, a log of the same window and
/// another size, of which so many packets counted at the change: the entries of the newest packets,
/// with the times at which they passed. The head keeps the number of those that find no room, as
/// long as the oldest entry counts; they were older. A larger ring takes them for packets of that
/// time.
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

/// The used part of a limit at its change to another one of its rule ([`used_at`]), in the measure
/// of that ([`raised`], [`converted`]), where it does not go on with its words.
pub fn carried<W: Words>(
    (old, new): (&LimitSpec, &LimitSpec),
    words: &W,
    at: Ticks,
    offset: WallOffset,
) -> Carried {
    let owed = used_at(old, words, at, offset);
    let convert = if goes_on(old, new, true) { raised } else { converted };
    Carried { used: convert(old, new, owed.used), at: seeded_at(new, at, owed.at) }
}

/// The instant of which the used part is seeded in `new`: `owed_at` of [`used_at`], but of a count
/// at most [`LATE`] after the change at `at`. A leaky bucket may owe a frame that is longer, and a
/// fixed window takes no word that a late clock does not explain.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn seeded_at(new: &LimitSpec, at: Ticks, owed_at: Ticks) -> Ticks {
    let latest = at.plus(Ticks::from_nanos(LATE));
    if new.is_rate() || owed_at < latest { owed_at } else { latest }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn later(a: Ticks, b: Ticks) -> Ticks {
    if b > a { b } else { a }
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
    let was_cut = old.is_cut_on_trial();
    let at = if was_cut { at } else { later(at, tat.since(Ticks::new(old.tolerance))) };
    let owed = tat.since(at).get();
    let owed = if old.count == new.count {
        if old.increment == new.increment
            && old.shift == new.shift
            && old.tolerance == new.tolerance
            && !was_cut
        {
            // Only what happens over the limit changed.
            return tat;
        }
        // Of a raise what is owed stays, and otherwise what is left.
        let units = |limit: &Limit| units_of(limit, limit.tolerance);
        let cut = new.is_cut_on_trial();
        let raised = old.is_largest() && new.is_largest() && old.rule == new.rule
            || is_cut(was_cut, cut, || units(old), || units(new));
        let amount = if raised { owed } else { old.tolerance.saturating_sub(owed) };
        let most = if cut { MOST_OWED } else { new.tolerance };
        let units = Units { from: Unit::of_rate(old), to: Unit::of_rate(new) };
        // No subprograms: there is no stack left for another call.
        let amount = rounded(&units, amount, if raised { most } else { new.tolerance }, raised);
        if !raised {
            new.tolerance.saturating_sub(amount)
        } else if was_cut && owed > MAYBE_MORE {
            new.tolerance
        } else {
            amount
        }
    } else {
        proportion(owed, old.tolerance, new.tolerance, true)
    };
    at.plus(Ticks::new(owed))
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
                Self { first: 0, mask: 1, state: at.plus(Ticks::new(used)).get() }
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
    let size = u64::from(limit.size & MAX_SIZE);
    while let Some(entry) = rounds.next_within(size, u64::from(MAX_SIZE)) {
        count = count
            .wrapping_add(sliding_log::counts(limit, place.state(entry.wrapping_add(1)), now) & 1);
    }
    count
}
