//! The time at which the limit of a bucket changed.
//!
//! The next packet of a bucket converts it to a changed limit, possibly long after the change. The
//! old limit counts until the change, and the new one from then on. So the conversion needs the
//! instant of the change, not the present.

use limiter_common::bucket::Generation;
use limiter_common::time::Ticks;
use limiter_common::wire::Moment;

use crate::maps::Maps;

/// The instant at which a limit stopped being in force for a bucket, not after `now`.
///
/// `ended` comes from the old limit ([`limiter_common::wire::Limit::ended`]), `since` is the
/// generation of the new limit, and `seen` the generation in which the bucket was pointed to it.
/// The first known answer applies:
///
/// 1. when the old limit left force;
/// 2. when the new limit came into force: the old one still applies to others, so the new one is
///    more specific;
/// 3. when the newest rule set came into force, or `now`: too late, which is the safe side for a
///    loosened limit. This happens between a commit and the note of its time, after more than
///    [`limiter_common::wire::CHANGES`] changes, and if the daemon was killed in between.
///
/// Limits that came and went without a packet are unknown: the new limit counts from the end of the
/// old one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn instant<W: Maps>(maps: &W, ended: u32, since: u32, seen: Generation, now: Ticks) -> Ticks {
    instant_of(|generation| maps.moment(generation), ended, since, seen, now)
}

/// [`instant`] with moments from elsewhere.
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
