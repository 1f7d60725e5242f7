//! The source table: one token bucket for each source address.
//!
//! In the steady state this is one look-up in a bucket map. The rules are asked only for a source
//! without a bucket and after a new generation.

use core::hint::black_box;

use super::Arriving;
use crate::bucket::{Generation, Resolved, Slot, Word};
use crate::cell::{Cell, Meter};
use crate::change::{Changes, instant};
use crate::clock;
use crate::gcra::{self, Charge};
use crate::meter::carried_tat;
use crate::outcome::{Insert, Outcome, Packed};
use crate::register::{Answer, Aside, Register};
use crate::room::aggregate::{debt, judge_aggregate};
use crate::room::source as entry;
use crate::rounds::{MAX_TRIES, Rounds};
use crate::source::Source;
use crate::step::step;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{Bucket, Limit, RULE_NONE};
use crate::world::Maps;

/// Times that a packet may find the bucket pointed at another limit before it is dropped as
/// [`Reason::Contended`]. One rule change takes two; a second one that finds the first unfinished
/// takes four, and an exchange that another CPU wins one more.
pub const MAX_ROUNDS: u64 = 5;

/// The word of a bucket before a charge and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub old: u64,
    /// After.
    pub new: u64,
}

impl Change {
    /// Nothing was charged. Not an option: the compiler leaves what a `None` has no value for as it
    /// is, and the verifier grants no such read without `CAP_PERFMON`.
    pub const NONE: Self = Self { old: 0, new: 0 };
}

/// What became of a packet, if that is known, and what it changed in the bucket of its source.
type Charged = (Option<Packed>, Change);

impl<W: Maps> Answer<W> for Charged {
    const LOST: Self = (Some(Outcome::without_rule(Reason::Contended).pack()), Change::NONE);

    #[inline(always)]
    fn to_register(self, world: &W) -> u64 {
        let (outcome, change) = self;
        if let Some(aside) = world.aside() {
            let [old, new] = &aside.words;
            old.set(change.old);
            // Of two plain zeros the compiler would make a call of memset, as in `Facts::clear`.
            new.set(black_box(change.new));
        }
        Register::to_register(outcome)
    }

    #[inline(always)]
    fn of_register(register: u64, world: &W) -> Self {
        let change = match world.aside() {
            Some(Aside { words: [old, new] }) => Change { old: old.get(), new: new.get() },
            None => Change::NONE,
        };
        (Register::of_register(register), change)
    }
}

/// Judges a packet of a source, and charges it. It may have come up to [`clock::SLACK`] after what
/// it says. If it is deferred, and over a limit that has an action, it is not counted in the
/// bucket: [`count_source`] does that when it is known what the action makes of it.
#[inline(always)]
pub fn judge<M: Maps>(maps: &M, arriving: &Arriving) -> (Packed, Change) {
    let source = &arriving.source;
    let meter = if let Some(meter) = maps.meter(source) {
        meter
    } else {
        let (outcome, stored) = step!(first(maps; &arriving.at(maps.exact(arriving.now))));
        if let Some(outcome) = outcome {
            return (outcome, stored);
        }
        // Another CPU made the bucket between the look-up and the insert.
        let Some(meter) = maps.meter(source) else {
            return unbucketed(maps, arriving);
        };
        meter
    };
    let (outcome, stored) = charge(maps, &meter, arriving);
    let Some(outcome) = outcome else {
        return unbucketed(maps, arriving);
    };
    if !(arriving.deferred && outcome.is_deferred()) {
        if outcome.drops() {
            maps.count_drop(source, &meter);
        } else {
            meter.count(true);
        }
    }
    (outcome, stored)
}

#[inline(always)]
fn unbucketed<M: Maps>(maps: &M, arriving: &Arriving) -> (Packed, Change) {
    let outcome = step!(without_bucket(maps; &arriving.at(maps.exact(arriving.now))));
    (outcome, Change::NONE)
}

/// Counts a packet in the bucket of its source.
#[inline(always)]
pub fn count_source<M: Maps>(maps: &M, source: &Source, passed: bool) {
    if let Some(meter) = maps.meter(source) {
        meter.count(passed);
    }
}

/// Takes back what [`judge`] has done to the bucket of a source whose packet it let pass, where
/// nobody has charged it since; otherwise it stays charged.
#[inline(always)]
pub fn undo<M: Maps>(maps: &M, source: &Source, stored: Change) {
    let Some(meter) = maps.meter(source) else {
        return;
    };
    if stored.old != stored.new {
        meter.word().compare_exchange(stored.new, stored.old);
    }
    meter.uncount();
}

/// A packet whose source has no bucket and gets none.
#[inline(always)]
pub fn without_bucket<M: Maps>(maps: &M, arriving: &Arriving) -> Packed {
    let Arriving { source, length, now, .. } = arriving;
    let Some(slot) = maps.resolve(arriving.generation, source) else {
        return Outcome::without_rule(Reason::NoRule).pack();
    };
    let reason = step!(judge_aggregate(maps; source, slot, *length, *now));
    Outcome::new(reason, maps.limit(slot).map_or(RULE_NONE, |limit| limit.rule)).pack()
}

/// The first packet of a source: the bucket is made with the packet already charged, and with what
/// the source may have used up of the bucket that it shared before. No outcome when another CPU was
/// faster.
#[inline(always)]
pub fn first<M: Maps>(maps: &M, arriving: &Arriving) -> Charged {
    let Arriving { source, generation, length, now, deferred } = arriving;
    let (length, now) = (*length, *now);
    let no_rule = Outcome::without_rule(Reason::NoRule).pack();
    let Some(slot) = maps.resolve(*generation, source) else {
        return (Some(no_rule), Change::NONE);
    };
    let Some(limit) = maps.limit(slot) else {
        return (Some(no_rule), Change::NONE);
    };
    let debt = step!(debt(maps; source, slot));
    let mut made = Insert::Refused;
    let mut stored = Change::NONE;
    let mut reason = Reason::Conforming;
    let mut tat = Some(Ticks::ZERO);
    if limit.is_unlimited() {
        reason = Reason::Unlimited;
    } else {
        let charge = Charge::new(limit, now, limit.units(length));
        tat = charge.apply(debt);
        if tat.is_none() && charge.apply(Ticks::ZERO).is_none() {
            // A frame that no bucket could hold.
            (reason, tat) = (limit.over(), Some(debt));
        }
    }
    let action = if matches!(reason, Reason::OverLimit) { limit.action } else { 0 };
    let outcome = Outcome { action, ..Outcome::new(reason, limit.rule) }.pack();
    if *deferred && outcome.is_deferred() {
        // The next packet makes the bucket.
        return (Some(outcome), Change::NONE);
    }
    // Without a time, the bucket that it would share is used up, and that owes the most that it
    // owes.
    if let Some(tat) = tat {
        let over = outcome.drops();
        let bucket = Bucket {
            word: Word::new(tat, false).raw(),
            resolved: Resolved::new(*generation, slot, Slot::NONE, false).raw(),
            passed: u64::from(!over),
            dropped: u64::from(over),
        };
        made = maps.insert(source, &bucket, now);
        // What owed nothing at `now` still does: in a line, the time of a way never goes back past
        // that (`crate::line`).
        let before = if debt > now { debt } else { now };
        stored = Change { old: Word::new(before, false).raw(), new: bucket.word };
        if over && matches!(made, Insert::Refused) {
            return (Some(outcome), Change::NONE);
        }
    }
    match made {
        Insert::Made => (Some(outcome), stored),
        Insert::Exists => (None, Change::NONE),
        Insert::Refused => {
            let reason = step!(judge_aggregate(maps; source, slot, length, now));
            (Some(Outcome::new(reason, limit.rule).pack()), Change::NONE)
        }
    }
}

/// Charges a packet to its bucket: no outcome when the bucket is leaving. As in [`judge`], it may
/// have come later than it says.
#[inline(always)]
pub fn charge<M: Maps>(maps: &M, meter: &M::Meter, arriving: &Arriving) -> Charged {
    let mut stored = Change::NONE;
    match charge_at_once(maps, meter, arriving, &mut stored) {
        Some(outcome) => (Some(outcome.pack()), stored),
        None => step!(charge_again(maps; meter, &arriving.at(maps.exact(arriving.now)))),
    }
}

/// The steady state: a bucket that is up to date, and one exchange that nobody was in the way of.
/// `None` for all else. Apart from [`charge_again`], because the verifier walks a loop for every
/// way into it.
#[inline(always)]
fn charge_at_once<M: Maps>(
    maps: &M,
    meter: &M::Meter,
    arriving: &Arriving,
    stored: &mut Change,
) -> Option<Outcome> {
    let resolved = Resolved::from_raw(meter.resolved().load());
    if !resolved.generation().covers(arriving.generation) {
        return None;
    }
    let limit = maps.limit(resolved.slot())?;
    if limit.is_unlimited() {
        return Some(Outcome::new(Reason::Unlimited, limit.rule));
    }
    let word = Word::from_raw(meter.word().load());
    if word.scale() != resolved.scale() {
        return None;
    }
    let latest = arriving.now.plus(clock::SLACK);
    let later = Charge::new(limit, latest, limit.units(arriving.length));
    // Over it for long: then the time does not matter.
    if !later.is_over_until_now(word.tat()) {
        let charge = later.at(limit, maps.exact(arriving.now));
        let reason = attempt(meter.word(), word, &charge, stored)?;
        if !matches!(reason, Reason::OverLimit) {
            return Some(Outcome::new(reason, limit.rule));
        }
    }
    // The word of a bucket that is leaving is over any limit.
    if entry::is_gone(word) { None } else { Some(over(limit)) }
}

/// The outcome of a packet over a limit.
#[inline(always)]
fn over(limit: &Limit) -> Outcome {
    let reason = limit.over();
    let action = if matches!(reason, Reason::OverLimit) { limit.action } else { 0 };
    Outcome { action, ..Outcome::new(reason, limit.rule) }
}

/// The rest of [`charge`], after a first try: brings the bucket up to the rules in force, and tries
/// on.
#[inline(always)]
pub fn charge_again<M: Maps>(maps: &M, meter: &M::Meter, arriving: &Arriving) -> Charged {
    let Arriving { source, generation, now, .. } = arriving;
    let mut rule = RULE_NONE;
    let mut rounds = Rounds::new();
    while rounds.more(MAX_ROUNDS) {
        let resolved = Resolved::from_raw(meter.resolved().load());
        let word = Word::from_raw(meter.word().load());
        if word.scale() != resolved.scale() {
            // Before a newer rule is looked up: only its own generation tells what its slots meant.
            rescale(maps, meter, resolved, word, *now);
            continue;
        }
        if !resolved.generation().covers(*generation) {
            match maps.resolve(*generation, source) {
                Some(slot) => step!(re_resolve(maps; meter, source, *generation, slot)),
                None => return said(Outcome::without_rule(Reason::NoRule)),
            }
            continue;
        }
        let Some(limit) = maps.limit(resolved.slot()) else {
            return said(Outcome::without_rule(Reason::NoRule));
        };
        rule = limit.rule;
        if limit.is_unlimited() {
            return said(Outcome::new(Reason::Unlimited, rule));
        }
        let (outcome, stored) = step!(charge_contended(maps; meter, arriving));
        if outcome.is_some() {
            return (outcome, stored);
        }
    }
    if entry::is_gone(Word::from_raw(meter.word().load())) {
        return (None, Change::NONE);
    }
    said(Outcome::new(Reason::Contended, rule))
}

#[inline(always)]
const fn said(outcome: Outcome) -> Charged {
    (Some(outcome.pack()), Change::NONE)
}

/// Tries once. A source over its limit is answered from a read alone. `None` when another CPU was
/// faster.
#[inline(always)]
fn attempt(cell: &impl Cell, word: Word, charge: &Charge, stored: &mut Change) -> Option<Reason> {
    let Some(tat) = charge.apply(word.tat()) else {
        return Some(Reason::OverLimit);
    };
    let next = Word::new(tat, word.scale());
    if !cell.compare_exchange(word.raw(), next.raw()) {
        return None;
    }
    *stored = Change { old: word.raw(), new: next.raw() };
    Some(Reason::Conforming)
}

/// Charges a bucket that is up to date, after a first try. No outcome when it is not, or not any
/// more.
#[inline(always)]
pub fn charge_contended<M: Maps>(maps: &M, meter: &M::Meter, arriving: &Arriving) -> Charged {
    let mut stored = Change::NONE;
    let resolved = Resolved::from_raw(meter.resolved().load());
    if !resolved.generation().covers(arriving.generation) {
        return (None, stored);
    }
    let Some(limit) = maps.limit(resolved.slot()) else {
        return (None, stored);
    };
    let charge = Charge::new(limit, arriving.now, limit.units(arriving.length));
    let outcome = match exchange(meter.word(), resolved.scale(), &charge, &mut stored) {
        None => None,
        Some(Reason::OverLimit) => Some(over(limit).pack()),
        Some(reason) => Some(Outcome::new(reason, limit.rule).pack()),
    };
    (outcome, stored)
}

/// The rest of the compare-and-exchange loop, after a first try, at a word with the scale bit
/// `scale`. `None` when the bucket was converted to another limit meanwhile, or is leaving.
#[inline(always)]
pub fn exchange(
    cell: &impl Cell,
    scale: bool,
    charge: &Charge,
    stored: &mut Change,
) -> Option<Reason> {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES - 1) {
        let word = Word::from_raw(cell.load());
        // One that is leaving: the caller looks again, and sees that.
        if word.scale() != scale || entry::is_gone(word) {
            return None;
        }
        if let Some(reason) = attempt(cell, word, charge, stored) {
            return Some(reason);
        }
    }
    Some(Reason::Contended)
}

/// Points the bucket at the limit of a newer generation. The caller looks again, whoever won.
#[inline(always)]
pub fn re_resolve<M: Maps>(
    maps: &M,
    meter: &M::Meter,
    _source: &Source,
    generation: Generation,
    slot: Slot,
) {
    let old = Resolved::from_raw(meter.resolved().load());
    if old.generation().covers(generation) {
        return;
    }
    let word = Word::from_raw(meter.word().load());
    // An earlier change that waits for its conversion comes first.
    if entry::is_gone(word) || word.scale() != old.scale() {
        return;
    }
    let known = match maps.limit(old.slot()) {
        Some(limit) => old.generation().knows(limit.since),
        None => false,
    };
    let new = if known && old.slot() == slot {
        Resolved::new(generation, slot, Slot::NONE, old.scale())
    } else {
        let previous = if known { old.slot() } else { Slot::NONE };
        Resolved::new(generation, slot, previous, !old.scale())
    };
    meter.resolved().compare_exchange(old.raw(), new.raw());
}

/// Converts the bucket to the limit that it was pointed at.
#[inline(always)]
fn rescale<M: Maps>(maps: &M, meter: &M::Meter, resolved: Resolved, word: Word, now: Ticks) {
    let at = step!(changed_at(maps; resolved, now));
    let tat = step!(converted(maps; resolved, word.tat(), at, now));
    step!(store(; meter, resolved, word, tat));
}

/// When the limit changed of a bucket that waits for its conversion.
#[inline(always)]
pub fn changed_at<M: Maps>(maps: &M, resolved: Resolved, now: Ticks) -> Ticks {
    let ended = maps.limit(resolved.previous()).map_or(0, |old| old.ended);
    let since = maps.limit(resolved.slot()).map_or(0, |new| new.since);
    step!(instant(maps; u32::from(ended), since, resolved.generation(), now))
}

/// The TAT of a bucket, which waits for its conversion, under the limit that it was pointed at.
#[inline(always)]
pub fn converted<M: Maps>(
    maps: &M,
    resolved: Resolved,
    tat: Ticks,
    at: Ticks,
    now: Ticks,
) -> Ticks {
    let old = match maps.limit(resolved.previous()) {
        Some(old) if resolved.knows_previous(old.since) => Some(old),
        _ => None,
    };
    // A slot that was filled anew is no limit of this bucket, and where there was no rule for its
    // source there is none: what it owes stays as it is until the next look-up, which forgets to
    // the safe side.
    match maps.limit(resolved.slot()) {
        Some(new) if resolved.generation().knows(new.since) => convert(old, new, tat, at, now),
        _ => tat,
    }
}

/// Stores what [`converted`] made of a word, unless the bucket is leaving, or was pointed at
/// another limit or charged meanwhile.
#[inline(always)]
pub fn store(meter: &impl Meter, resolved: Resolved, word: Word, tat: Ticks) {
    if entry::is_gone(word) {
        return;
    }
    let converted = Word::new(tat, resolved.scale());
    // While `resolved` stands, both slots mean what was read from them. A packet that was held up
    // past that must not store what it computed from them.
    if meter.resolved().load() != resolved.raw() {
        return;
    }
    meter.word().compare_exchange(word.raw(), converted.raw());
}

/// The TAT under `new` of a bucket that was charged under `old`, `None` when that is not known. The
/// one was changed into the other at `at`.
#[inline(always)]
fn convert(old: Option<&Limit>, new: &Limit, tat: Ticks, at: Ticks, now: Ticks) -> Ticks {
    match old {
        Some(old) if old.is_unlimited() => Ticks::ZERO,
        Some(old) => carried_tat((old, new), tat, at),
        None => gcra::forget(new, tat, now),
    }
}

/// The TAT that the next packet of a source would meet at `now`, when its rule is in `slot` since
/// the rule set `generation` at the latest: what [`judge`] would do to the bucket first, without
/// doing it. `limit_in` reads a slot.
pub fn arrival(
    changes: &impl Changes,
    bucket: &Bucket,
    (slot, generation): (Slot, Generation),
    limit_in: impl Fn(Slot) -> Option<Limit>,
    now: Ticks,
) -> Ticks {
    let word = Word::from_raw(bucket.word);
    let resolved = Resolved::from_raw(bucket.resolved);
    let mut tat = word.tat();
    let Some(at) = limit_in(resolved.slot()) else {
        // There was no rule for it.
        return match limit_in(slot) {
            Some(new) if resolved.slot() != slot => gcra::forget(&new, tat, now),
            _ => tat,
        };
    };
    let known = resolved.generation().knows(at.since);
    if known && word.scale() != resolved.scale() {
        let old = limit_in(resolved.previous()).filter(|old| resolved.knows_previous(old.since));
        let ended = old.map_or(0, |old| old.ended);
        let change = instant(changes, u32::from(ended), at.since, resolved.generation(), now);
        tat = convert(old.as_ref(), &at, tat, change, now);
    }
    match limit_in(slot) {
        Some(new) if !known || resolved.slot() != slot => {
            let change = instant(changes, u32::from(at.ended), new.since, generation, now);
            convert(known.then_some(&at), &new, tat, change, now)
        }
        _ => tat,
    }
}
