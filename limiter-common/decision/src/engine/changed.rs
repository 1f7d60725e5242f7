//! Points a source's bucket to a changed limit, and converts it.

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::bucket_key::BucketKey;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Limit, Moment};

use crate::call::call;
use crate::cell::{Cell, SourceBucket};
use crate::change::{instant, instant_of};
use crate::gcra;
use crate::line::{line_slot, repoint};
use crate::maps::Maps;
use crate::meter::carried_tat;

/// Points the bucket to the limit of a newer generation. The caller looks again, whichever CPU won.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn re_resolve<W: Maps>(
    maps: &W,
    bucket: &impl SourceBucket,
    bucket_key: &BucketKey,
    generation: Generation,
    slot: Slot,
) {
    let old = Resolved::from_raw(bucket.resolved().load());
    if old.generation().covers(generation) {
        return;
    }
    let word = Word::from_raw(bucket.word().load());
    // An earlier change must be converted first.
    if word.is_gone() || word.scale() != old.scale() {
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
    if bucket.is_in_line() {
        call!(repoint(maps; bucket_key, call!(line_slot(maps; bucket_key)), old.raw(), new.raw()));
    } else {
        bucket.resolved().compare_exchange(old.raw(), new.raw());
    }
}

/// Converts the bucket to the limit to which it was pointed.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn rescale<W: Maps>(
    maps: &W,
    bucket: &impl SourceBucket,
    resolved: Resolved,
    word: Word,
    now: Ticks,
) {
    let at = call!(changed_at(maps; resolved, now));
    let tat = call!(converted(maps; resolved, word.tat(), at, now));
    call!(store(; bucket, resolved, word, tat));
}

/// When the limit of a bucket changed that still must be converted.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn changed_at<W: Maps>(maps: &W, resolved: Resolved, now: Ticks) -> Ticks {
    let ended = maps.limit(resolved.previous()).map_or(0, |old| old.ended);
    let since = maps.limit(resolved.slot()).map_or(0, |new| new.since);
    call!(instant(maps; u32::from(ended), since, resolved.generation(), now))
}

/// The converted TAT of a bucket, under the limit to which it was pointed.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn converted<W: Maps>(
    maps: &W,
    resolved: Resolved,
    tat: Ticks,
    at: Ticks,
    now: Ticks,
) -> Ticks {
    let old = match maps.limit(resolved.previous()) {
        Some(old) if resolved.knows_previous(old.since) => Some(old),
        _ => None,
    };
    // A reused slot is not a limit of this bucket, and without an old rule for its source there is
    // none: its debt stays until the next look-up, which forgets on the safe side.
    match maps.limit(resolved.slot()) {
        Some(new) if resolved.generation().knows(new.since) => convert(old, new, tat, at, now),
        _ => tat,
    }
}

/// Stores the result of [`converted`], unless the bucket is being removed, or was pointed to
/// another limit or charged meanwhile.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn store(bucket: &impl SourceBucket, resolved: Resolved, word: Word, tat: Ticks) {
    if word.is_gone() {
        return;
    }
    let converted = Word::new(tat, resolved.scale());
    // As long as `resolved` is unchanged, both slots mean what was read from them. A packet delayed
    // beyond that must not store what it computed from them.
    bucket.resolved().acquire_fence();
    if bucket.resolved().load() != resolved.raw() {
        return;
    }
    bucket.word().compare_exchange(word.raw(), converted.raw());
}

/// The TAT under `new` of a bucket that was charged under `old`, which is `None` if unknown. The
/// limit changed at `at`.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn convert(old: Option<&Limit>, new: &Limit, tat: Ticks, at: Ticks, now: Ticks) -> Ticks {
    match old {
        Some(old) if old.is_unlimited() => Ticks::ZERO,
        Some(old) => carried_tat((old, new), tat, at),
        None => gcra::forget(new, tat, now),
    }
}

/// The TAT that the next packet of a source would find at `now`, with its rule in `slot` since the
/// rule set `generation` at the latest: the conversion that a packet would do first, without doing
/// it. `limit_in` reads a slot, `moment` the word of `CHANGES` for a generation.
pub fn arrival(
    bucket: &Bucket,
    (slot, generation): (Slot, Generation),
    limit_in: impl Fn(Slot) -> Option<Limit>,
    moment: impl Fn(u32) -> Moment,
    now: Ticks,
) -> Ticks {
    let word = Word::from_raw(bucket.word);
    let resolved = Resolved::from_raw(bucket.resolved);
    let mut tat = word.tat();
    let Some(at) = limit_in(resolved.slot()) else {
        // It had no rule.
        return match limit_in(slot) {
            Some(new) if resolved.slot() != slot => gcra::forget(&new, tat, now),
            _ => tat,
        };
    };
    let known = resolved.generation().knows(at.since);
    if known && word.scale() != resolved.scale() {
        let old = limit_in(resolved.previous()).filter(|old| resolved.knows_previous(old.since));
        let ended = old.map_or(0, |old| old.ended);
        let change = instant_of(&moment, u32::from(ended), at.since, resolved.generation(), now);
        tat = convert(old.as_ref(), &at, tat, change, now);
    }
    match limit_in(slot) {
        Some(new) if !known || resolved.slot() != slot => {
            let change = instant_of(&moment, u32::from(at.ended), new.since, generation, now);
            convert(known.then_some(&at), &new, tat, change, now)
        }
        _ => tat,
    }
}
