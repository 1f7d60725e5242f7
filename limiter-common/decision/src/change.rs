//! The time at which the limit of a bucket changed.
//!
//! A bucket is converted to a changed limit by the next packet that meets it, which may come long
//! after the change. Until the change the limit before counts, and from then on the new one: so the
//! instant of the change is asked, not the present.

use limiter_common::bucket::Generation;
use limiter_common::time::Ticks;
use limiter_common::wire::Moment;

use crate::maps::Maps;

/// The instant at which a limit stopped being in force for a bucket, not after `now`.
///
/// `ended` is what the limit before says of itself ([`limiter_common::wire::Limit::ended`]),
/// `since` the generation of the limit after, and `seen` the one in which the bucket was pointed at
/// it. Three answers, the first that is known:
///
/// 1. when the limit before left force;
/// 2. when the limit after came into force: the one before is still that of others, so the one
///    after is more specific;
/// 3. when the newest rule set came into force, or `now`: too late, which is the safe side for a
///    limit that was loosened. So it is in the instant between a commit and the note of its time,
///    after more than [`limiter_common::wire::CHANGES`] changes, and where the daemon was killed in
///    between.
///
/// Limits that came and went while no packet came are not known: the limit after counts from the
/// end of the one before.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn instant<W: Maps>(maps: &W, ended: u32, since: u32, seen: Generation, now: Ticks) -> Ticks {
    instant_of(|generation| maps.moment(generation), ended, since, seen, now)
}

/// [`instant`], of moments that are read elsewhere.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn instant_of(
    moment: impl Fn(u32) -> Moment,
    ended: u32,
    since: u32,
    seen: Generation,
    now: Ticks,
) -> Ticks {
    let first = if ended == 0 { since } else { ended };
    let at = match moment(first).of(first) {
        Some(at) => at,
        None => match moment(seen.get()).of(seen.get()) {
            Some(at) => at,
            None => now,
        },
    };
    if at > now { now } else { at }
}
