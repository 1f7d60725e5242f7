//! Reading a bucket: what the program will make of it when the source's next packet comes.

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::gcra;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, Limit};

use crate::rules::plan::{Installed, InstalledRule};

/// The theoretical arrival time of `bucket` under `rule` at `now`, after the conversions that the
/// next packet would bring.
///
/// When the limit it was charged under is no longer known, this is what the program assumes then:
/// the time owed, at most a whole burst.
pub(super) fn arrival(
    bucket: &Bucket,
    rule: &InstalledRule,
    installed: &Installed,
    now: Ticks,
) -> Ticks {
    let word = Word::from_raw(bucket.word);
    let resolved = Resolved::from_raw(bucket.resolved);
    let charged_under =
        if word.scale() == resolved.scale() { resolved.slot() } else { resolved.previous() };
    let current = Slot::new(rule.slot);
    let known = resolved.generation().knows(rule.limit.since);
    if charged_under == current && known {
        return word.tat();
    }
    let old = installed
        .rules
        .values()
        .find(|rule| Slot::new(rule.slot) == charged_under)
        .map(|rule| &rule.limit)
        .filter(|limit| resolved.generation().knows(limit.since));
    convert(old, &rule.limit, word.tat(), now)
}

fn convert(old: Option<&Limit>, new: &Limit, tat: Ticks, now: Ticks) -> Ticks {
    match old {
        Some(old) if old.is_unlimited() => Ticks::ZERO,
        Some(old) => gcra::carry(old, new, tat, now),
        None => gcra::clamp(new, tat, now),
    }
}
