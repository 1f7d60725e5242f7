//! Reading a bucket: what the program will make of it when the source's next packet comes.

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::gcra;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Limit};

use crate::rules::plan::InstalledRule;

/// The theoretical arrival time of `bucket` under `rule` at `now`, after the conversions that the
/// next packet would bring. `limit_in` reads a slot.
pub(super) fn arrival(
    bucket: &Bucket,
    rule: &InstalledRule,
    limit_in: impl Fn(u32) -> Option<Limit>,
    now: Ticks,
) -> Ticks {
    let word = Word::from_raw(bucket.word);
    let resolved = Resolved::from_raw(bucket.resolved);
    let charged_under =
        if word.scale() == resolved.scale() { resolved.slot() } else { resolved.previous() };
    let known = resolved.generation().knows(rule.limit.since);
    if charged_under == Slot::new(rule.slot) && known {
        return word.tat();
    }
    let old = limit_in(charged_under.index())
        .filter(|limit| resolved.generation().knows(limit.since));
    convert(old.as_ref(), &rule.limit, word.tat(), now)
}

fn convert(old: Option<&Limit>, new: &Limit, tat: Ticks, now: Ticks) -> Ticks {
    match old {
        Some(old) if old.is_unlimited() => Ticks::ZERO,
        Some(old) => gcra::carry(old, new, tat, now),
        None => gcra::forget(new, tat, now),
    }
}
