//! The source table: one token bucket for each source address.
//!
//! In the steady state this is one look-up in a bucket map. The rules are asked only for a source
//! without a bucket and after a new generation.

use super::{Insert, MAX_ROUNDS, MAX_TRIES, Maps, Outcome, Packed};
use crate::bucket::{Generation, Resolved, Slot, Word};
use crate::cell::{Cell, Meter};
use crate::change::Changes;
use crate::clock;
use crate::gcra::{self, Charge};
use crate::meter::carried_tat;
use crate::room::source as entry;
use crate::rounds::Rounds;
use crate::source::Source;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{Bucket, Limit, RULE_NONE};

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

/// Judges a packet of a source, and charges it. `now` may be up to [`clock::SLACK`] before. With `defer`, a packet over a limit that
/// has an action is not counted in the bucket: [`count`] does that when it is known what the action makes of it.
#[inline(always)]
pub fn judge<M: Maps>(
    maps: &M,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
    defer: bool,
) -> (Packed, Change) {
    let meter = if let Some(meter) = maps.meter(source) {
        meter
    } else {
        let now = maps.exact(now);
        let (outcome, stored) = maps.first(generation, source, length, now, defer);
        if outcome != Packed::GONE {
            return (outcome, stored);
        }
        // Another CPU made the bucket between the look-up and the insert.
        let Some(meter) = maps.meter(source) else {
            let outcome = maps.without_bucket(generation, source, length, maps.exact(now));
            return (outcome, Change::NONE);
        };
        meter
    };
    let mut stored = Change::NONE;
    let outcome = charge(maps, &meter, generation, source, length, now, &mut stored);
    if outcome == Packed::GONE {
        let outcome = maps.without_bucket(generation, source, length, maps.exact(now));
        return (outcome, Change::NONE);
    }
    if !(defer && outcome.is_deferred()) {
        if outcome.drops() {
            maps.count_drop(source, &meter);
        } else {
            meter.count(true);
        }
    }
    (outcome, stored)
}

/// Counts a packet in the bucket of its source.
#[inline(always)]
pub fn count<M: Maps>(maps: &M, source: &Source, passed: bool) {
    if let Some(meter) = maps.meter(source) {
        meter.count(passed);
    }
}

/// Takes back what [`judge`] has done to the bucket of a source whose packet it let pass, where nobody has charged it since;
/// otherwise it stays charged.
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
pub fn without_bucket<M: Maps>(
    maps: &M,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
) -> Outcome {
    let Some(slot) = maps.resolve(generation, source) else {
        return Outcome::without_rule(Reason::NoRule);
    };
    let reason = maps.judge_aggregate(source, slot, length, now);
    Outcome::new(reason, maps.limit(slot).map_or(RULE_NONE, |limit| limit.rule))
}

/// The first packet of a source: the bucket is made with the packet already charged, and with what
/// the source may have used up of the bucket that it shared before. `Packed::GONE` when another CPU
/// was faster.
#[inline(always)]
pub fn first<M: Maps>(
    maps: &M,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
    defer: bool,
) -> (Packed, Change) {
    let Some(slot) = maps.resolve(generation, source) else {
        return (Outcome::without_rule(Reason::NoRule).pack(), Change::NONE);
    };
    let Some(limit) = maps.limit(slot) else {
        return (Outcome::without_rule(Reason::NoRule).pack(), Change::NONE);
    };
    let debt = maps.debt(source, slot);
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
    if defer && outcome.is_deferred() {
        // The next packet makes the bucket.
        return (outcome, Change::NONE);
    }
    // Without a time, the bucket that it would share is used up, and that owes the most that it owes.
    if let Some(tat) = tat {
        let over = outcome.drops();
        let bucket = Bucket {
            word: Word::new(tat, false).raw(),
            resolved: Resolved::new(generation, slot, Slot::NONE, false).raw(),
            passed: u64::from(!over),
            dropped: u64::from(over),
        };
        made = maps.insert(source, &bucket, now);
        // What owed nothing at `now` still does: in a line, the time of a way never goes back past that
        // (`crate::line`).
        let before = if debt > now { debt } else { now };
        stored = Change { old: Word::new(before, false).raw(), new: bucket.word };
        if over && matches!(made, Insert::Refused) {
            return (outcome, Change::NONE);
        }
    }
    match made {
        Insert::Made => (outcome, stored),
        Insert::Exists => (Packed::GONE, Change::NONE),
        Insert::Refused => {
            let reason = maps.judge_aggregate(source, slot, length, now);
            (Outcome::new(reason, limit.rule).pack(), Change::NONE)
        }
    }
}

/// Charges a packet to its bucket: `Packed::GONE` when the bucket is leaving. `now` as in [`judge`].
#[inline(always)]
pub fn charge<M: Maps>(
    maps: &M,
    meter: &M::Meter,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
    stored: &mut Change,
) -> Packed {
    match charge_at_once(maps, meter, generation, length, now, stored) {
        Some(outcome) => outcome.pack(),
        None => maps.charge_again(meter, generation, source, length, maps.exact(now), stored),
    }
}

/// The steady state: a bucket that is up to date, and one exchange that nobody was in the way of. `None`
/// for all else. Apart from [`charge_again`], because the verifier walks a loop for every way into it.
#[inline(always)]
fn charge_at_once<M: Maps>(
    maps: &M,
    meter: &M::Meter,
    generation: Generation,
    length: u64,
    now: Ticks,
    stored: &mut Change,
) -> Option<Outcome> {
    let resolved = Resolved::from_raw(meter.resolved().load());
    if !resolved.generation().covers(generation) {
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
    let later = Charge::new(limit, now.plus(clock::SLACK), limit.units(length));
    // Over it for long: then the time does not matter.
    if !later.is_over_until_now(word.tat()) {
        let charge = later.at(limit, maps.exact(now));
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

/// The rest of [`charge`], after a first try: brings the bucket up to the rules in force, and tries on.
#[inline(always)]
pub fn charge_again<M: Maps>(
    maps: &M,
    meter: &M::Meter,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
    stored: &mut Change,
) -> Outcome {
    let mut rule = RULE_NONE;
    let mut rounds = Rounds::new();
    while rounds.more(MAX_ROUNDS) {
        let resolved = Resolved::from_raw(meter.resolved().load());
        let word = Word::from_raw(meter.word().load());
        if word.scale() != resolved.scale() {
            // Before a newer rule is looked up: only its own generation tells what its slots meant.
            maps.rescale(meter, resolved, word, now);
            continue;
        }
        if !resolved.generation().covers(generation) {
            match maps.resolve(generation, source) {
                Some(slot) => maps.re_resolve(meter, resolved, generation, slot),
                None => return Outcome::without_rule(Reason::NoRule),
            }
            continue;
        }
        let Some(limit) = maps.limit(resolved.slot()) else {
            return Outcome::without_rule(Reason::NoRule);
        };
        rule = limit.rule;
        if limit.is_unlimited() {
            return Outcome::new(Reason::Unlimited, rule);
        }
        let charge = Charge::new(limit, now, limit.units(length));
        match maps.charge_contended(meter, resolved.scale(), &charge, stored) {
            None => {}
            Some(Reason::OverLimit) => return over(limit),
            Some(reason) => return Outcome::new(reason, rule),
        }
    }
    if entry::is_gone(Word::from_raw(meter.word().load())) {
        return Outcome::GONE;
    }
    Outcome::new(Reason::Contended, rule)
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

/// The rest of the compare-and-exchange loop, after a first try, at a word with the scale bit `scale`. `None` when the bucket was converted to another limit meanwhile.
#[inline(always)]
pub fn charge_contended(
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
    old: Resolved,
    generation: Generation,
    slot: Slot,
) {
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
pub fn rescale<M: Maps>(maps: &M, meter: &M::Meter, resolved: Resolved, word: Word, now: Ticks) {
    let at = changed_at(maps, resolved, now);
    store(meter, resolved, word, converted(maps, maps, resolved, word.tat(), at, now));
}

/// When the limit changed of a bucket that waits for its conversion.
#[inline(always)]
pub fn changed_at<M: Maps>(maps: &M, resolved: Resolved, now: Ticks) -> Ticks {
    let ended = maps.limit(resolved.previous()).map_or(0, |old| old.ended);
    let since = maps.limit(resolved.slot()).map_or(0, |new| new.since);
    maps.instant(ended, since, resolved.generation(), now)
}

/// The TAT of a bucket, which waits for its conversion, under the limit that it was pointed at.
#[inline(always)]
pub fn converted<M: Maps>(
    maps: &M,
    changes: &impl Changes,
    resolved: Resolved,
    tat: Ticks,
    at: Ticks,
    now: Ticks,
) -> Ticks {
    let old = match maps.limit(resolved.previous()) {
        Some(old) if resolved.knows_previous(old.since) => Some(old),
        _ => None,
    };
    // A slot that was filled anew is no limit of this bucket, and where there was no rule for its source
    // there is none: what it owes stays as it is until the next look-up, which forgets to the safe side.
    match maps.limit(resolved.slot()) {
        Some(new) if resolved.generation().knows(new.since) => {
            convert(changes, old, new, tat, at, now)
        }
        _ => tat,
    }
}

/// Stores what [`converted`] made of a word, unless the bucket is leaving, or was pointed at another limit or
/// charged meanwhile.
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

/// The TAT under `new` of a bucket that was charged under `old`, `None` when that is not known. The one was changed
/// into the other at `at`.
#[inline(always)]
fn convert(
    changes: &impl Changes,
    old: Option<&Limit>,
    new: &Limit,
    tat: Ticks,
    at: Ticks,
    now: Ticks,
) -> Ticks {
    match old {
        Some(old) if old.is_unlimited() => Ticks::ZERO,
        Some(old) => carried_tat(changes, (old, new), tat, at),
        None => gcra::forget(new, tat, now),
    }
}

/// The TAT that the next packet of a source would meet at `now`, when its rule is in `slot` since the rule
/// set `generation` at the latest: what [`judge`] would do to the bucket first, without doing it.
/// `limit_in` reads a slot.
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
        let change = changes.instant(ended, at.since, resolved.generation(), now);
        tat = convert(changes, old.as_ref(), &at, tat, change, now);
    }
    match limit_in(slot) {
        Some(new) if !known || resolved.slot() != slot => {
            let change = changes.instant(at.ended, new.since, generation, now);
            convert(changes, known.then_some(&at), &new, tat, change, now)
        }
        _ => tat,
    }
}
