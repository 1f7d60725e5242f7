//! Hits that are charged before their time, and given back.

use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::window::WallOffset;
use limiter_common::wire::{Algorithm, Limit, LimitSpec};
use limiter_decision::meter::{self, Arrival, Charged, Peek, Undo};

use super::{Charges, Limits, ReadyLimit, Shared, TRIES, least, take_back};
use crate::clock::Moment;

/// What may be owed of a rate.
fn backlog(spec: &LimitSpec, rate: &Limit) -> u64 {
    match spec.algorithm() {
        // One hit is let in on top of the backlog.
        Algorithm::LeakyBucket => rate.tolerance.saturating_add(rate.increment >> rate.shift),
        _ => rate.tolerance,
    }
}

/// A limit as hits meet it that may be as far ahead of the rate as `ahead` nanoseconds: that much
/// more may be owed. None of what is no rate.
fn met_ahead(
    limit: &ReadyLimit,
    moment: &Moment,
    hits: u64,
    ahead: u64,
) -> Option<(LimitSpec, Arrival)> {
    let spec = &limit.spec;
    let rate = spec.is_rate().then(|| spec.rate())?;
    let ahead = Ticks::from_nanos(ahead).get();
    let tolerance = backlog(spec, &rate).saturating_add(ahead).min(MAX_TICKS >> 1);
    let increment = rate.increment.checked_mul(hits).filter(|all| *all <= MAX_TICKS >> 1)?;
    let all = Limit { increment, tolerance, ..rate };
    let all = LimitSpec::of_rate(Algorithm::TokenBucket, &all, spec.role());
    let arrival =
        Arrival { now: moment.now, offset: WallOffset::BOOT, units: 1, is_super_frame: false };
    Some((all.at(spec.first), arrival))
}

impl Limits {
    /// Charges as many hits as conform to the hard limits, at most `most`, where they may be
    /// `ahead` nanoseconds ahead of the rate; returns how many. None where a limit is no rate.
    pub(crate) fn charge_ahead(
        &self,
        words: &[AtomicU64],
        moment: &Moment,
        most: u64,
        ahead: u64,
    ) -> u64 {
        let conform = |hits: u64| {
            self.hard().all(|limit| {
                met_ahead(limit, moment, hits, ahead).is_some_and(|(spec, arrival)| {
                    meter::peek(&spec, &Shared(words), false, &arrival) == Peek::Conforming
                })
            })
        };
        let mut tries = 0..TRIES;
        while tries.next().is_some() {
            let hits = least(0, most, |hits| hits == most || !conform(hits + 1)).unwrap_or(0);
            if hits == 0 {
                return 0;
            }
            let mut charges = Charges::default();
            let all = self.hard().all(|limit| {
                let Some((spec, arrival)) = met_ahead(limit, moment, hits, ahead) else {
                    return false;
                };
                let mut undo = Undo::default();
                let outcome = meter::charge(&spec, &Shared(words), false, &arrival, &mut undo);
                charges.made.push(undo);
                outcome == Charged::Conforming
            });
            if all {
                return hits;
            }
            // Somebody was faster.
            take_back(words, &charges);
        }
        0
    }

    /// Gives hits back that were charged to token and leaky buckets, where clients hold `held`
    /// others that are not used yet; and sees to it that at least `kept` hits are charged now.
    pub(crate) fn settle(
        &self,
        words: &[AtomicU64],
        moment: &Moment,
        [back, held, kept]: [u64; 3],
    ) {
        for limit in self.hard().filter(|limit| limit.spec.is_rate()) {
            let Limit { increment, shift, .. } = limit.spec.rate();
            // Rounded down: no more than was charged.
            let cost = |hits: u64| {
                let cost = (u128::from(increment) * u128::from(hits)) >> shift;
                u64::try_from(cost).unwrap_or(u64::MAX).min(MAX_TICKS >> 1)
            };
            let now = moment.now.get();
            let Some(word) = words.get(usize::from(limit.spec.first)) else { continue };
            let settled = |raw: u64| {
                let tat = raw >> 1;
                // What has drained cannot be given back.
                let less = tat.saturating_sub(cost(back)).max(tat.min(now + cost(held)));
                let kept = if kept == 0 { 0 } else { now + cost(kept) };
                Some(less.max(kept) << 1 | raw & 1)
            };
            // It always has a value.
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, settled);
        }
    }

    /// Millionths of hits that token and leaky buckets have room for; below zero if they are owed.
    pub(crate) fn room(&self, words: &[AtomicU64], moment: &Moment) -> i64 {
        let rooms = self.hard().filter(|limit| limit.spec.is_rate()).map(|limit| {
            let rate = limit.spec.rate();
            let word = words.get(usize::from(limit.spec.first));
            let tat = word.map_or(0, |word| word.load(Ordering::Acquire) >> 1);
            let owed = tat.saturating_sub(moment.now.get());
            let room = i128::from(backlog(&limit.spec, &rate)) - i128::from(owed);
            ((room * 1_000_000) << rate.shift) / i128::from(rate.increment.max(1))
        });
        i64::try_from(rooms.min().unwrap_or(0)).unwrap_or(i64::MAX)
    }
}
