//! Quotas: hits that clients let pass by themselves, between their reports.
//!
//! A client of Envoy's rate limit quota service decides by an assignment, and reports what it let
//! pass. What it may let pass is charged to the buckets of the rule before it may, to the same
//! buckets that requests are charged to. Of token and leaky buckets a client gets a rate, whose
//! fills are charged second by second; of other limits, and of those that nodes share, a part of
//! what is left. What a client lets pass by an assignment while the next one is on its way is
//! charged afterwards.

mod parties;
mod rate;
mod window;

use std::collections::{BTreeMap, HashMap};

use crate::buckets::key::Key;
use crate::buckets::store::{KeyLimits, LimitsId};
use crate::clock::Moment;
use crate::limiter::Limiter;
use crate::reports::counters::Became;
use crate::reports::refused::Who;
use crate::rules::{EntryOf, Rule, Rules, Terms};

use parties::Party;
pub(crate) use parties::Quotas;

const SECOND: u64 = 1_000_000_000;

/// Rates are in millionths of hits a second.
const MICRO: u64 = 1_000_000;

/// Least life of an assignment to a client as long as it is not known longer than that: its
/// interval is not known yet.
const FIRST_LIFE: u64 = 30 * SECOND;

/// Bounds of a life: two and a half of the client's intervals.
const LIVES: [u64; 2] = [5 * SECOND, 600 * SECOND];

/// Time after which a bucket without requests is given up, and intervals that it lasts at least.
const IDLE: u64 = 60 * SECOND;
const IDLE_INTERVALS: u64 = 3;

/// Hits of a limit in whose time its clients ask once at least, and the longest such time.
const SLOW_HITS: u64 = 4;
const SLOWEST: u64 = 3600 * SECOND;

/// Least time between two assignments of a bucket to a client. By the protocol each change is
/// answered by a report, which must not be answered by a change at once.
const PAUSE: u64 = SECOND / 2;

const MOST: u64 = 100_000;

/// Buckets of a client that are looked at in a second without a report.
const MOST_LOOKS: usize = 1000;

/// Seconds between the fills of a bucket that is not filled in its life: 100 days.
const NEVER: u32 = 100 * 86_400;

/// What a client does with requests of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    AllowAll,
    DenyAll,
    /// A token bucket that gets `per_fill` every so many seconds: Envoy takes no fractions.
    Bucket {
        most: u32,
        per_fill: u32,
        seconds: u32,
    },
}

/// An answer to a client about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Assign {
        strategy: Strategy,
        /// Seconds, at least one: Envoy takes no fractions.
        life: u64,
        /// True if its bucket begins full, whatever the client has left of the last one. Otherwise
        /// Envoy fills it in proportion to that.
        full: bool,
    },
    Abandon,
}

/// What a client reports about a bucket, since its last report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Nanoseconds. Envoy cuts them to whole seconds.
    pub(crate) elapsed: u64,
}

/// There are too many buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// What a client has of a bucket.
#[derive(Debug)]
struct Held {
    /// Where its hits were charged.
    charged: Option<(Key, LimitsId)>,
    /// The key by which it is a party.
    party: Option<Key>,
    /// Hits that were charged and not reported as used. Below zero: used and not charged.
    hits: i64,
    /// Nanoseconds since boot at which `hits` of what is no rate end.
    until: u64,
    /// Hits that have ended, and may be reported as used.
    ended: u64,
    /// Nanoseconds since boot until which the fills of its bucket are charged.
    paid: u64,
    given: Option<(Strategy, u64)>,
    life: u64,
    interval: u64,
    /// Time in which the client wants something of the limit, if it does at all.
    slow: u64,
    began: u64,
    used_at: u64,
    reported: Option<u64>,
    /// True if the client was there before its stream.
    is_back: bool,
    /// Millionths of hits a second.
    demand: u64,
}

#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    domain: String,
    buckets: HashMap<BTreeMap<String, String>, Held>,
    /// Buckets that were looked at without a report.
    looked: usize,
}

/// A bucket with limits, at a moment.
struct Bucket<'a> {
    limiter: &'a Limiter,
    quotas: &'a Quotas,
    session: u64,
    rule: &'a Rule,
    entries: &'a [EntryOf<'a>],
    limits: &'a KeyLimits,
    domain: &'a str,
    moment: &'a Moment,
}

impl Session {
    pub(crate) fn new(quotas: &Quotas, domain: &str) -> Self {
        let (id, domain) = (quotas.next_session(), domain.to_owned());
        Self { id, domain, buckets: HashMap::new(), looked: 0 }
    }

    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    /// Takes a report about a bucket.
    pub(crate) fn report(
        &mut self,
        (limiter, quotas): (&Limiter, &Quotas),
        bucket: &BTreeMap<String, String>,
        usage: Usage,
        moment: &Moment,
    ) -> Result<Option<Action>, TooMany> {
        let now = moment.now.as_nanos();
        if !self.buckets.contains_key(bucket) {
            if !quotas.add_bucket(MOST) {
                return Err(TooMany);
            }
            self.buckets.insert(bucket.clone(), Held::new(now));
        }
        let Some(held) = self.buckets.get_mut(bucket) else { return Ok(None) };
        held.take(usage, now);
        let idle = IDLE.max(held.interval.saturating_mul(IDLE_INTERVALS)).max(held.slow);
        if now.saturating_sub(held.used_at) > idle {
            held.give_up(limiter, quotas, moment);
            self.forget(quotas, bucket, None);
            return Ok(Some(Action::Abandon));
        }
        let (server, rules) = ((limiter, quotas), limiter.rules());
        let of = (self.id, &*self.domain, &*rules);
        Ok(held.look(server, of, bucket, Some(usage), moment))
    }

    /// Looks at buckets without a report, once a second: charges what is filled next, and returns
    /// what changes.
    pub(crate) fn tick(
        &mut self,
        server: (&Limiter, &Quotas),
        moment: &Moment,
    ) -> Vec<(BTreeMap<String, String>, Action)> {
        let (rules, count) = (server.0.rules(), self.buckets.len());
        let of = (self.id, &*self.domain, &*rules);
        let from = self.looked % count.max(1);
        self.looked = from + MOST_LOOKS.min(count);
        let some = self.buckets.iter_mut().skip(from).take(MOST_LOOKS);
        let changed = some.filter_map(|(bucket, held)| {
            let action = held.look(server, of, bucket, None, moment)?;
            Some((bucket.clone(), action))
        });
        changed.collect()
    }

    fn forget(&mut self, quotas: &Quotas, bucket: &BTreeMap<String, String>, gone: Option<u64>) {
        if let Some(held) = self.buckets.remove(bucket) {
            quotas.remove_bucket();
            if let Some(key) = held.party {
                quotas.leave(key, self.id, gone);
            }
        }
    }

    /// The client has gone. What it has stays its own: it may still use it.
    pub(crate) fn end(&mut self, quotas: &Quotas, moment: &Moment) {
        for bucket in self.buckets.keys().cloned().collect::<Vec<_>>() {
            self.forget(quotas, &bucket, Some(moment.now.as_nanos()));
        }
    }
}

impl Held {
    fn new(now: u64) -> Self {
        Self {
            charged: None,
            party: None,
            hits: 0,
            until: u64::MAX,
            ended: 0,
            paid: now,
            given: None,
            life: FIRST_LIFE,
            interval: 0,
            slow: 0,
            began: now,
            used_at: now,
            reported: None,
            is_back: false,
            demand: 0,
        }
    }

    fn take(&mut self, usage: Usage, now: u64) {
        let Usage { allowed, denied, elapsed } = usage;
        // Its own clock may count whole seconds.
        let passed = elapsed.max(now - self.reported.unwrap_or(now).min(now));
        self.is_back |= self.reported.is_none() && elapsed > 0;
        self.reported = Some(now);
        self.interval = self.interval.max(passed).min(LIVES[1]);
        if allowed > 0 || denied > 0 {
            self.used_at = now;
        }
        let now_held = u64::try_from(self.hits).unwrap_or(0).min(allowed);
        let before = std::mem::take(&mut self.ended).min(allowed - now_held);
        self.hits = self.hits.saturating_sub_unsigned(allowed - before);
        // A quarter more, so that a demand that is met can grow.
        let hits = u128::from(allowed.saturating_add(denied)) * 1_250_000;
        if passed >= SECOND {
            let demand = hits * u128::from(SECOND) / u128::from(passed);
            // The mean of a time in which something comes.
            let of = u128::from(if self.demand > 1 { self.slow.max(passed) } else { passed });
            let rest = u128::from(self.demand) * (of - u128::from(passed));
            let mean = demand.saturating_mul(passed.into()).saturating_add(rest) / of;
            self.demand = u64::try_from(mean).unwrap_or(u64::MAX);
        } else if hits > 0 {
            // Over less than a second nothing can be said of a rate.
            self.demand = self.demand.max(1);
        }
    }

    /// Looks at a bucket, and returns what changes.
    fn look(
        &mut self,
        (limiter, quotas): (&Limiter, &Quotas),
        (session, domain, rules): (u64, &str, &Rules),
        bucket: &BTreeMap<String, String>,
        usage: Option<Usage>,
        moment: &Moment,
    ) -> Option<Action> {
        let now = moment.now.as_nanos();
        if now >= self.until {
            // What is left was of a window that has ended.
            self.ended = self.ended.saturating_add(u64::try_from(self.hits).unwrap_or(0));
            (self.hits, self.until) = (self.hits.min(0), u64::MAX);
        } else if usage.is_none() && self.until != u64::MAX {
            return None;
        }
        let rule = rules.domain(domain).and_then(|domain| {
            let entries: Vec<EntryOf<'_>> =
                bucket.iter().map(|(key, value)| (&**key, &**value)).collect();
            domain.find_in_any_order(&entries)
        });
        if let (Some((rule, entries)), Some(usage)) = (&rule, usage) {
            let allowed = match rule.terms {
                Terms::Unlimited => Became::Unlimited,
                Terms::Block(_) | Terms::Limits(_) => Became::Within,
            };
            rule.counters.count_many(allowed, usage.allowed);
            rule.counters.count_many(Became::Over, usage.denied);
            let key = rule.listed_key(entries);
            let who = Who { rule, key, aggregate: 0, entries };
            limiter.refused.count(who, usage.denied, moment.now);
        }
        let given = self.given;
        let ends = given.map_or(u64::MAX, |(_, at)| at.saturating_add(self.life));
        if usage.is_none() && (given.is_none() || now >= ends) {
            return None;
        }
        let (strategy, full) = match &rule {
            None => (Strategy::AllowAll, false),
            Some((rule, _)) if rule.written.shadow => (Strategy::AllowAll, false),
            // In whose turn requests may go, the queue says.
            Some((rule, _)) if rule.queue.is_some() => (Strategy::DenyAll, false),
            Some((rule, entries)) => match &rule.terms {
                Terms::Unlimited => (Strategy::AllowAll, false),
                Terms::Block(_) => (Strategy::DenyAll, false),
                Terms::Limits(limits) => {
                    let asked =
                        Bucket { limiter, quotas, session, rule, entries, limits, domain, moment };
                    self.assign(&asked, usage.is_some())
                }
            },
        };
        let same = !full && given.is_some_and(|(last, _)| last == strategy);
        if same && (usage.is_none() || given.is_some_and(|(_, at)| now < at + self.life / 3)) {
            return None;
        }
        self.life = (self.interval.saturating_mul(5) / 2).clamp(LIVES[0], LIVES[1]);
        if now.saturating_sub(self.began) < FIRST_LIFE {
            self.life = self.life.max(FIRST_LIFE);
        }
        self.given = Some((strategy, now));
        quotas.count_assignment();
        Some(Action::Assign { strategy, life: self.life / SECOND, full })
    }

    /// Charges what the client may have, and returns how it may use it, and whether that begins
    /// full.
    fn assign(&mut self, asked: &Bucket<'_>, reported: bool) -> (Strategy, bool) {
        let Bucket { rule, entries, limits, .. } = *asked;
        let key = rule.key(entries);
        if self.party.is_none() && self.is_back {
            // It goes on by what it had, until it has the answer.
            self.hits = self.hits.saturating_add_unsigned(asked.quotas.take_over(key));
        }
        self.party = Some(key);
        let (whole, _) = rate::capacity(&limits.limits);
        self.slow = rate::time(whole, SLOW_HITS).min(SLOWEST);
        let now = asked.moment.now.as_nanos();
        let pause = self.given.is_some_and(|(_, at)| now.saturating_sub(at) < PAUSE);
        let is_rate = limits.limits.are_rates() && rule.written.aggregates.is_empty();
        if is_rate && rule.shared.is_none() {
            (self.assign_rate(key, asked, reported, pause), false)
        } else {
            match self.given {
                Some((last, _)) if pause => (last, false),
                _ => self.assign_of_what_is_left(key, asked),
            }
        }
    }

    /// Notes what the client has, for others, and returns all who have some.
    fn meet(&self, key: Key, asked: &Bucket<'_>) -> Vec<Party> {
        let now = asked.moment.now.as_nanos();
        let rate = match self.given {
            Some((Strategy::Bucket { per_fill, seconds, .. }, _)) => rate::of(per_fill, seconds),
            _ => 0,
        };
        let party = Party {
            session: asked.session,
            has_gone: false,
            demand: self.demand,
            rate,
            held: u64::try_from(self.hits).unwrap_or(0),
            until: now.saturating_add(self.life),
        };
        asked.quotas.meet(key, party, now)
    }

    /// Gives back what the client does not use any more.
    fn give_up(&mut self, limiter: &Limiter, quotas: &Quotas, moment: &Moment) {
        if let (Some(charged), Some(party)) = (self.charged, self.party) {
            let back = u64::try_from(self.hits).unwrap_or(0);
            let held = quotas.held(party).saturating_sub(back);
            rate::give_back(limiter, charged, moment, [back, held]);
        }
    }
}

#[cfg(test)]
mod tests;
