//! Parts of token and leaky buckets: a rate for each client.
//!
//! Envoy fills a bucket by whole seconds, and takes a changed one for a new one that is as full as
//! the last one was, in proportion. So a client keeps its bucket while it is nearly right, and only
//! what fills it is charged, shortly before it does.

use limiter_rules::model::Meter;

use super::parties::share;
use super::{Bucket, Held, MICRO, NEVER, SECOND, Strategy};
use crate::buckets::arithmetic::Limits;
use crate::buckets::key::Key;
use crate::buckets::store::LimitsId;
use crate::clock::Moment;
use crate::decide::charge::{Charge, NoBucket};
use crate::limiter::Limiter;

/// How long before its time a fill is charged: until the next look, and as long again.
const PAID: u64 = 2 * SECOND;

/// How far ahead of the rate a bucket may be charged.
const AHEAD: u64 = 5 * SECOND;

/// Seconds in which what is too much or too little comes back.
const PAYBACK: i128 = 10;

/// Longest time of so many fills of one token that a client keeps a bucket that is not quite right.
const FILLS: u64 = 20;

impl Held {
    /// Charges the fills of the next seconds, and returns the bucket that the client has.
    pub(super) fn assign_rate(
        &mut self,
        key: Key,
        asked: &Bucket<'_>,
        reported: bool,
        pause: bool,
    ) -> Strategy {
        let Bucket { limiter, limits, moment, .. } = *asked;
        let now = moment.now.as_nanos();
        let last = match self.given {
            Some((Strategy::Bucket { most, per_fill, seconds }, at)) => {
                Some((most, per_fill, seconds, now.saturating_sub(at)))
            }
            _ => None,
        };
        let before = u64::try_from(self.hits).unwrap_or(0);
        if let (Some((most, per_fill, seconds, _)), true) = (last, reported) {
            // It has no more than a full bucket.
            let soon = in_time(of(per_fill, seconds), self.paid.saturating_sub(now)) + 1;
            self.hits = self.hits.min(i64::from(most).saturating_add_unsigned(soon));
            self.paid = self.paid.max(now);
        }
        let back = before.saturating_sub(u64::try_from(self.hits).unwrap_or(0));
        let parties = self.meet(key, asked);
        let held: u64 = parties.iter().map(|party| party.held).sum();
        let (rate, burst) = capacity(&limits.limits);
        // What clients hold stays charged, but for a part of those who ask here.
        let direct = (burst / 8).max(in_time(rate, SECOND)).max(1).min(burst);
        let at = self.charged.map_or(key, |(key, _)| key);
        let settled = limiter.store.charge(at, limits, moment, false, |words, moment| {
            limits.limits.settle(words, moment, [back, held, held.min(burst - direct)]);
            limits.limits.room(words, moment)
        });
        let room = settled.unwrap_or(0);
        let free = i128::from(room) + i128::from(held) * i128::from(MICRO);
        let most = i128::from(rate);
        let whole = (most + (free / PAYBACK).min(most / 8)).max(most / 8);
        let gone: u64 = parties.iter().filter(|party| party.has_gone).map(|party| party.rate).sum();
        let whole = u64::try_from(whole).unwrap_or(u64::MAX).saturating_sub(gone);
        let demands: Vec<u64> =
            parties.iter().filter(|party| !party.has_gone).map(|party| party.demand).collect();
        let rate = share(self.demand, &demands, whole);

        let (per_fill, seconds) = fills(rate);
        let (rate, second) = (of(per_fill, seconds), u64::from(per_fill.div_ceil(seconds)));
        let count = u64::try_from(parties.len()).unwrap_or(u64::MAX).max(1);
        let target = ((burst - burst / 8) / count).max(second);
        let free = u64::try_from(room / i64::try_from(MICRO).unwrap_or(i64::MAX)).unwrap_or(0);
        let owned = u64::try_from(self.hits).unwrap_or(0);
        let possible = target.min(owned.saturating_add(free)).max(second);
        let keeps = last.filter(|(most, per_fill, seconds, age)| {
            let (most, before) = (u64::from(*most), of(*per_fill, *seconds));
            let slow = FILLS.saturating_mul(MICRO) / before.max(1);
            let is_old = age / SECOND > slow.max(10);
            let part = if is_old { 20 } else { 4 };
            let fits = most <= target + target / 4 && possible <= most + most / 4;
            pause || fits && rate.abs_diff(before) <= before / part
        });
        if let Some((most, per_fill, seconds, _)) = keeps {
            let rate = of(per_fill, seconds);
            let due = in_time(rate, (now + PAID).saturating_sub(self.paid));
            let uncharged = u64::try_from(-self.hits).unwrap_or(0);
            let charged = self.charge(asked, due.saturating_add(uncharged));
            self.paid = self.paid.saturating_add(time(rate, charged.saturating_sub(uncharged)));
            self.meet(key, asked);
            if self.hits >= 0 {
                return Strategy::Bucket { most, per_fill, seconds };
            }
            return Strategy::DenyAll;
        }
        let soon = in_time(rate, PAID);
        let missing = i128::from(possible) + i128::from(soon) - i128::from(self.hits);
        self.charge(asked, u64::try_from(missing).unwrap_or(0));
        self.meet(key, asked);
        let Ok(hits @ 1..) = u64::try_from(self.hits) else { return Strategy::DenyAll };
        self.paid = now.saturating_add(time(rate, hits.saturating_sub(possible)).min(PAID));
        let most = u32::try_from(hits.min(possible)).unwrap_or(u32::MAX);
        Strategy::Bucket { most, per_fill, seconds }
    }

    fn charge(&mut self, asked: &Bucket<'_>, hits: u64) -> u64 {
        let Bucket { limiter, rule, entries, limits, moment, .. } = *asked;
        let key = rule.key(entries);
        let charge = limiter.charge((rule, 0), (limits, key), moment, |words, moment| {
            limits.limits.charge_ahead(words, moment, hits, AHEAD)
        });
        let (key, charged) = match charge {
            Ok(Charge { key, result, .. }) => (key, result),
            Err(NoBucket::Passes) => (key, hits),
            Err(NoBucket::Refused) => (key, 0),
        };
        self.charged = Some((key, limits.id));
        self.hits = self.hits.saturating_add_unsigned(charged);
        charged
    }
}

/// What limits let pass: millionths of hits a second, and hits at once.
pub(super) fn capacity(limits: &Limits) -> (u64, u64) {
    let rate = limits.hard().map(|limit| {
        let quota = limit.written.meter.quota();
        let hits = u128::from(quota.requests_per_unit) * u128::from(MICRO) * u128::from(SECOND);
        u64::try_from(hits / u128::from(quota.period.nanos().max(1))).unwrap_or(u64::MAX)
    });
    let burst = limits.hard().map(|limit| match limit.written.meter {
        Meter::LeakyBucket { .. } => 1,
        _ => limit.written.amount(),
    });
    (rate.min().unwrap_or(0), burst.min().unwrap_or(0))
}

/// Fills of at most such a rate, and at least 98 % of it: how many at once, and the seconds from
/// one to the next.
fn fills(rate: u64) -> (u32, u32) {
    for seconds in 1..=120 {
        let all = u128::from(rate) * u128::from(seconds);
        let hits = all / u128::from(MICRO);
        if hits > 0 && (all % u128::from(MICRO)) * 50 <= all {
            return (u32::try_from(hits).unwrap_or(u32::MAX), seconds);
        }
    }
    let seconds = MICRO.checked_div(rate).map_or(NEVER, |seconds| {
        u32::try_from(seconds.saturating_add(1)).unwrap_or(NEVER).min(NEVER)
    });
    (1, seconds)
}

pub(super) fn of(per_fill: u32, seconds: u32) -> u64 {
    u64::from(per_fill) * MICRO / u64::from(seconds.max(1))
}

/// Hits at a rate in so many nanoseconds, rounded down.
pub(super) fn in_time(rate: u64, nanos: u64) -> u64 {
    let hits = u128::from(rate) * u128::from(nanos) / u128::from(MICRO * SECOND);
    u64::try_from(hits).unwrap_or(u64::MAX)
}

/// Nanoseconds that so many hits take.
pub(super) fn time(rate: u64, hits: u64) -> u64 {
    let nanos = u128::from(hits) * u128::from(MICRO * SECOND) / u128::from(rate.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// Gives hits back that were charged ahead, where others hold some.
pub(super) fn give_back(
    limiter: &Limiter,
    (key, id): (Key, LimitsId),
    moment: &Moment,
    [back, held]: [u64; 2],
) {
    let limits = limiter.store.of(id);
    limiter.store.take_back(key, id, |words| {
        limits.is_some_and(|limits| {
            limits.settle(words, moment, [back, held, 0]);
            true
        })
    });
}
