//! Quotas: hits that clients let pass by themselves, between their reports.
//!
//! A client of Envoy's rate limit quota service decides by an assignment, and reports what it let
//! pass. All hits that an assignment allows in its life are charged to the buckets of the rule
//! before the client gets it, to the same buckets that requests are charged to. A token or leaky
//! bucket is charged ahead of time, by the life of the assignment; of other limits, and of those
//! that nodes share, a client gets a part of what is left now. What a client lets pass by an
//! assignment while the next one is on its way is charged afterwards.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use limiter_common::wire::Full as OnFull;
use limiter_rules::file::requests::RequestLimit;
use limiter_rules::model::Meter;

use crate::clock::Moment;
use crate::counters::{Became, Unanswered};
use crate::decision::{Left, Limits};
use crate::key::Key;
use crate::limiter::Limiter;
use crate::question::{Asked, Descriptor};
use crate::rules::{EntryOf, Rule, RuleLimits, Terms};
use crate::shared::Patience;
use crate::store::{Full, KeyLimits, LimitsId};

const SECOND: u64 = 1_000_000_000;

/// Least life of an assignment to a client as long as it is not known longer than that: its
/// interval is not known yet.
const FIRST_LIFE: u64 = 30 * SECOND;

/// Bounds of a life: two and a half of the client's intervals.
const LIVES: [u64; 2] = [5 * SECOND, 600 * SECOND];

/// Time after which a bucket without requests is given up, and intervals that it lasts at least.
const IDLE: u64 = 60 * SECOND;
const IDLE_INTERVALS: u64 = 3;

/// Least time between two assignments of a bucket to a client. Each change is answered by a report,
/// which must not be answered by a change at once.
const PAUSE: u64 = SECOND;

/// Buckets of all clients.
const MOST: u64 = 100_000;

/// Fill interval of a bucket that is not filled in its life: 100 days.
const NEVER: u64 = 100 * 86_400 * SECOND;

/// What a client does with requests of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    AllowAll,
    DenyAll,
    /// A token bucket that begins full, and gets `per_fill` every `interval` nanoseconds.
    Bucket {
        most: u32,
        per_fill: u32,
        interval: u64,
    },
}

/// An answer to a client about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The strategy, and its life in nanoseconds.
    Assign(Strategy, u64),
    Abandon,
}

/// What a client reports about a bucket, since its last report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Nanoseconds.
    pub(crate) elapsed: u64,
}

/// There are too many buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A client of a bucket.
#[derive(Clone, Copy, Debug)]
struct Party {
    session: u64,
    /// Thousandths of hits a second.
    demand: u64,
    /// Nanoseconds since boot at which its assignment ends.
    until: u64,
    /// Nanoseconds that it lasts.
    life: u64,
}

/// The part of a client.
struct Part {
    /// Thousandths of hits a second.
    rate: u64,
    /// Number of clients.
    of: u64,
    /// The longest life of all, by which all may be charged ahead: one that lives for longer would
    /// take all room of the others.
    ahead: u64,
}

/// What all sessions share.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    parties: Mutex<HashMap<Key, Vec<Party>>>,
    sessions: AtomicU64,
    buckets: AtomicU64,
    assignments: AtomicU64,
}

impl Quotas {
    /// Buckets of clients, and assignments until now.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.buckets, &self.assignments].map(|count| count.load(Ordering::Relaxed))
    }

    /// The part of a client of `capacity`, in thousandths of hits a second.
    fn share(&self, key: Key, own: Party, capacity: u64, now: u64) -> Part {
        let mut all = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        let parties = all.entry(key).or_default();
        parties.retain(|party| party.session != own.session && party.until > now);
        parties.push(own);
        let demands: Vec<u64> = parties.iter().map(|party| party.demand).collect();
        Part {
            rate: share(own.demand, &demands, capacity),
            of: u64::try_from(demands.len()).unwrap_or(u64::MAX),
            ahead: parties.iter().map(|party| party.life).max().unwrap_or(own.life),
        }
    }

    fn leave(&self, key: Key, session: u64) {
        let mut all = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parties) = all.get_mut(&key) {
            parties.retain(|party| party.session != session);
            if parties.is_empty() {
                all.remove(&key);
            }
        }
    }
}

/// The part of one of those who want something: as much as everybody may have, or what it wants and
/// an equal part of what nobody wants. Everybody may want an eighth of an equal part.
fn share(own: u64, demands: &[u64], capacity: u64) -> u64 {
    let count = u64::try_from(demands.len()).unwrap_or(u64::MAX).max(1);
    let least = capacity / count / 8;
    let mut sorted: Vec<u64> = demands.iter().map(|demand| (*demand).max(least)).collect();
    sorted.sort_unstable();
    let (mut rest, mut others) = (capacity, count);
    for demand in sorted {
        let equal = rest / others.max(1);
        if demand > equal {
            return own.max(least).min(equal);
        }
        rest -= demand;
        others -= 1;
    }
    own.max(least).saturating_add(rest / count)
}

/// What a client has of a bucket.
#[derive(Debug)]
struct Held {
    /// Where its hits were charged.
    charged: Option<(Key, LimitsId)>,
    /// The key by which it is a party.
    party: Option<Key>,
    /// Hits that were charged and not reported as used. Below zero: used and not charged.
    hits: i64,
    /// Nanoseconds since boot at which `hits` of a window end with it.
    until: u64,
    given: Option<(Strategy, u64)>,
    life: u64,
    /// The client's interval.
    interval: u64,
    began: u64,
    used_at: u64,
    /// Reported since the last assignment.
    since: Usage,
    /// Thousandths of hits a second.
    demand: u64,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    domain: String,
    buckets: HashMap<BTreeMap<String, String>, Held>,
}

impl Session {
    pub(crate) fn new(quotas: &Quotas, domain: &str) -> Self {
        let id = quotas.sessions.fetch_add(1, Ordering::Relaxed);
        Self { id, domain: domain.to_owned(), buckets: HashMap::new() }
    }

    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    /// Takes a report about a bucket.
    ///
    /// # Errors
    ///
    /// There are too many buckets.
    pub(crate) fn report(
        &mut self,
        (limiter, quotas): (&Limiter, &Quotas),
        bucket: &BTreeMap<String, String>,
        usage: Usage,
        moment: &Moment,
    ) -> Result<Option<Action>, TooMany> {
        let now = moment.now.as_nanos();
        let rules = limiter.rules();
        let rule = rules.domain(&self.domain).and_then(|domain| {
            let entries: Vec<EntryOf<'_>> =
                bucket.iter().map(|(key, value)| (&**key, &**value)).collect();
            domain.find_in_any_order(&entries)
        });
        if !self.buckets.contains_key(bucket) {
            if quotas.buckets.fetch_add(1, Ordering::Relaxed) >= MOST {
                quotas.buckets.fetch_sub(1, Ordering::Relaxed);
                return Err(TooMany);
            }
            self.buckets.insert(bucket.clone(), Held::new(now));
        }
        let Some(held) = self.buckets.get_mut(bucket) else { return Ok(None) };
        held.take(usage, now);
        if let Some((rule, _)) = rule {
            let allowed = match rule.terms {
                Terms::Unlimited => Became::Unlimited,
                Terms::Block(_) | Terms::Limits(_) => Became::Within,
            };
            rule.counters.count_many(allowed, usage.allowed);
            rule.counters.count_many(Became::Over, usage.denied);
        }
        let idle = IDLE.max(held.interval.saturating_mul(IDLE_INTERVALS));
        if now.saturating_sub(held.used_at) > idle {
            held.give_back(limiter, u64::try_from(held.hits).unwrap_or(0));
            self.forget(quotas, bucket);
            return Ok(Some(Action::Abandon));
        }
        if let Some((_, at)) = held.given
            && now.saturating_sub(at) < PAUSE
        {
            return Ok(None);
        }
        held.life = (held.interval.saturating_mul(5) / 2).clamp(LIVES[0], LIVES[1]);
        if now.saturating_sub(held.began) < FIRST_LIFE {
            held.life = held.life.max(FIRST_LIFE);
        }
        let strategy = match &rule {
            None => Strategy::AllowAll,
            Some((rule, _)) if rule.shadow => Strategy::AllowAll,
            // In whose turn requests may go, the queue says.
            Some((rule, _)) if rule.queue.is_some() => Strategy::DenyAll,
            Some((rule, entries)) => match &rule.terms {
                Terms::Unlimited => Strategy::AllowAll,
                Terms::Block(_) => Strategy::DenyAll,
                Terms::Limits(limits) => {
                    let asked = Bucket { rule, entries, limits, domain: &self.domain };
                    held.assign((limiter, quotas), self.id, &asked, moment)
                }
            },
        };
        let given = held.given;
        if given.is_some_and(|(last, at)| last == strategy && now < at + held.life / 2) {
            return Ok(None);
        }
        held.given = Some((strategy, now));
        held.since = Usage::default();
        quotas.assignments.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Action::Assign(strategy, held.life)))
    }

    fn forget(&mut self, quotas: &Quotas, bucket: &BTreeMap<String, String>) {
        if let Some(held) = self.buckets.remove(bucket) {
            quotas.buckets.fetch_sub(1, Ordering::Relaxed);
            if let Some(key) = held.party {
                quotas.leave(key, self.id);
            }
        }
    }

    /// The client has gone. What it has stays charged: it may still use it.
    pub(crate) fn end(&mut self, quotas: &Quotas) {
        for bucket in self.buckets.keys().cloned().collect::<Vec<_>>() {
            self.forget(quotas, &bucket);
        }
    }
}

/// A bucket with limits.
struct Bucket<'a> {
    rule: &'a Rule,
    entries: &'a [EntryOf<'a>],
    limits: &'a RuleLimits,
    domain: &'a str,
}

impl Held {
    fn new(now: u64) -> Self {
        Self {
            charged: None,
            party: None,
            hits: 0,
            until: u64::MAX,
            given: None,
            life: FIRST_LIFE,
            interval: 0,
            began: now,
            used_at: now,
            since: Usage::default(),
            demand: 0,
        }
    }

    fn take(&mut self, usage: Usage, now: u64) {
        let Usage { allowed, denied, elapsed } = usage;
        self.interval = self.interval.max(elapsed).min(LIVES[1]);
        if allowed > 0 || denied > 0 {
            self.used_at = now;
        }
        self.hits = self.hits.saturating_sub_unsigned(allowed);
        if now >= self.until {
            // What is left was of a window that has ended.
            (self.hits, self.until) = (self.hits.min(0), u64::MAX);
        }
        self.since.allowed = self.since.allowed.saturating_add(allowed);
        self.since.denied = self.since.denied.saturating_add(denied);
        self.since.elapsed = self.since.elapsed.saturating_add(elapsed);
        // Over less than a second nothing can be said of a rate.
        let hits = self.since.allowed.saturating_add(self.since.denied);
        let per = u128::from(self.since.elapsed.max(SECOND));
        // A quarter more, so that a demand that is met can grow.
        let demand = u128::from(hits) * 1250 * u128::from(SECOND) / per;
        self.demand = u64::try_from(demand).unwrap_or(u64::MAX);
    }

    fn give_back(&mut self, limiter: &Limiter, hits: u64) {
        if let Some((key, limits)) = self.charged
            && hits > 0
        {
            limiter.give_back_ahead(key, limits, hits);
        }
        self.hits = self.hits.saturating_sub_unsigned(hits);
    }

    /// Charges what the client may have, and returns how it may use it.
    fn assign(
        &mut self,
        (limiter, quotas): (&Limiter, &Quotas),
        session: u64,
        asked: &Bucket<'_>,
        moment: &Moment,
    ) -> Strategy {
        let Bucket { rule, entries, limits: RuleLimits(limits), .. } = *asked;
        let now = moment.now.as_nanos();
        let key = limiter.key_of(rule, entries);
        self.party = Some(key);
        let until = now.saturating_add(self.life);
        let own = Party { session, demand: self.demand, until, life: self.life };
        let (rate, burst) = capacity(&limits.limits);
        let part = quotas.share(key, own, rate, now);
        let ahead = limits.limits.are_rates() && rule.aggregates.is_empty();
        if !ahead || rule.shared.is_some() {
            return self.assign_of_what_is_left(limiter, asked, part.of, moment);
        }
        let burst = (burst / part.of).max(1);
        let target = burst.saturating_add(in_time(part.rate, self.life));
        let unused = self.hits.saturating_sub(i64::try_from(target).unwrap_or(i64::MAX));
        self.give_back(limiter, u64::try_from(unused).unwrap_or(0));
        let wanted = i128::from(target) - i128::from(self.hits);
        let wanted = u64::try_from(wanted).unwrap_or(0);
        let charged = limiter.charge_ahead((rule, entries, limits), wanted, part.ahead, moment);
        self.charged = Some((charged.key, limits.id));
        self.hits = self.hits.saturating_add_unsigned(charged.hits);
        let Ok(hits @ 1..) = u64::try_from(self.hits) else { return Strategy::DenyAll };
        let most = u32::try_from(hits.min(burst)).unwrap_or(u32::MAX);
        let later = hits - u64::from(most);
        // A bucket begins full whenever it changes: it does not for little.
        if let Some((Strategy::Bucket { most: last, per_fill, interval }, _)) = self.given
            && last == most
        {
            let fills = u128::from(self.life) * u128::from(per_fill);
            let goes_on = fills / u128::from(interval.max(1));
            if goes_on.abs_diff(later.into()) * 20 <= goes_on {
                // As long as its hits are charged.
                let covered =
                    u128::from(later) * u128::from(interval) / u128::from(per_fill.max(1));
                self.life = self.life.min(u64::try_from(covered).unwrap_or(u64::MAX));
                return Strategy::Bucket { most, per_fill, interval };
            }
        }
        let (per_fill, interval) = fills(later, most, self.life);
        Strategy::Bucket { most, per_fill, interval }
    }

    /// [`Held::assign`] of limits that cannot be charged ahead: a part of what is left.
    fn assign_of_what_is_left(
        &mut self,
        limiter: &Limiter,
        asked: &Bucket<'_>,
        parties: u64,
        moment: &Moment,
    ) -> Strategy {
        let wanted = |left: u64| {
            let soon = in_time(self.demand, self.life).saturating_mul(2);
            let most = soon.max(left / parties.saturating_mul(4)).max(1);
            let missing = i128::from(most) - i128::from(self.hits);
            u64::try_from(missing).unwrap_or(0)
        };
        let (hits, ends_in) =
            limiter.charge_now(asked.domain, asked.entries.to_vec(), wanted, moment);
        let used = self.since.allowed > 0;
        self.hits = self.hits.saturating_add_unsigned(hits);
        if let Some(ends_in) = ends_in {
            self.until = moment.now.as_nanos().saturating_add(ends_in);
            self.life = self.life.min(ends_in.max(1));
        }
        let Ok(all @ 1..) = u64::try_from(self.hits) else { return Strategy::DenyAll };
        let most = u32::try_from(all).unwrap_or(u32::MAX);
        // A client whose strategy is the same goes on with what it has left of it.
        let interval = match self.given {
            Some((Strategy::Bucket { interval, .. }, _)) if used && interval == NEVER => NEVER * 2,
            Some((Strategy::Bucket { interval, .. }, _)) if !used => interval,
            _ => NEVER,
        };
        Strategy::Bucket { most, per_fill: 1, interval }
    }
}

/// What limits let pass: thousandths of hits a second, and hits at once.
fn capacity(limits: &Limits) -> (u64, u64) {
    let rate = limits.hard().map(|limit| {
        let quota = limit.written.meter.quota();
        let hits = u128::from(quota.requests_per_unit) * 1000 * u128::from(SECOND);
        u64::try_from(hits / u128::from(quota.period.nanos().max(1))).unwrap_or(u64::MAX)
    });
    let burst = limits.hard().map(|limit| match limit.written.meter {
        Meter::LeakyBucket { .. } => 1,
        _ => limit.amount(),
    });
    (rate.min().unwrap_or(0), burst.min().unwrap_or(0))
}

/// Hits at a rate of thousandths a second in so many nanoseconds, rounded down.
fn in_time(rate: u64, nanos: u64) -> u64 {
    let hits = u128::from(rate) * u128::from(nanos) / (1000 * u128::from(SECOND));
    u64::try_from(hits).unwrap_or(u64::MAX)
}

/// Fills of a bucket of `most` that give no more than so many hits in a life: how many at once, and
/// the nanoseconds from one to the next.
fn fills(hits: u64, most: u32, life: u64) -> (u32, u64) {
    if hits == 0 {
        return (1, NEVER);
    }
    // At most 100 a second, if the bucket has room.
    let per_fill = hits.div_ceil((life / 10_000_000).max(1));
    let per_fill = u32::try_from(per_fill).unwrap_or(u32::MAX).min(most).max(1);
    let interval = (u128::from(life) * u128::from(per_fill)).div_ceil(u128::from(hits));
    (per_fill, u64::try_from(interval).unwrap_or(NEVER))
}

/// Hits that were charged ahead.
pub(crate) struct ChargedAhead {
    pub(crate) key: Key,
    pub(crate) hits: u64,
}

impl Limiter {
    /// Charges at most so many hits of the next `ahead` nanoseconds to the token and leaky buckets
    /// of a rule.
    pub(crate) fn charge_ahead(
        &self,
        (rule, entries, limits): (&Rule, &[EntryOf<'_>], &KeyLimits),
        most: u64,
        ahead: u64,
        moment: &Moment,
    ) -> ChargedAhead {
        let charge = |key: Key, always: bool| {
            self.store.charge(key, limits, moment, always, |words, moment| {
                limits.limits.charge_ahead(words, moment, most, ahead)
            })
        };
        let key = self.key_of(rule, entries);
        match charge(key, false) {
            Ok(hits) => ChargedAhead { key, hits },
            Err(Full) => match rule.full {
                OnFull::Pass => ChargedAhead { key, hits: most },
                OnFull::Drop => ChargedAhead { key, hits: 0 },
                OnFull::Share => {
                    let key = self.shared_key(rule);
                    ChargedAhead { key, hits: charge(key, true).unwrap_or(0) }
                }
            },
        }
    }

    /// Charges hits of one descriptor, as many as `wanted` says of those that are left, or fewer.
    /// Nothing counts them. Returns also the nanoseconds until the window ends in which they count.
    pub(crate) fn charge_now(
        &self,
        domain: &str,
        entries: Vec<EntryOf<'_>>,
        wanted: impl FnOnce(u64) -> u64,
        moment: &Moment,
    ) -> (u64, Option<u64>) {
        let (moment, rules) = (&moment.with_wall(), self.rules());
        let patience = Patience::None(Unanswered::Late);
        let mut asked = Asked {
            domain,
            descriptors: vec![Descriptor { entries, ..Descriptor::default() }],
            hits: 1,
        };
        let left = match self.targets(&rules, &asked) {
            Ok(targets) => targets.iter().flatten().flat_map(|of| self.left(of, moment)).collect(),
            Err(_) => Vec::new(),
        };
        let fixed = |(limit, left): &(RequestLimit, Left)| {
            matches!(limit.meter, Meter::FixedWindow(_)).then_some(left.reset)
        };
        let ends_in = left.iter().filter_map(fixed).filter(|reset| *reset > 0).min();
        let remaining = left.iter().map(|(_, left)| left.remaining).min().unwrap_or(0);
        let mut hits = wanted(remaining).min(remaining);
        while hits > 0 {
            asked.hits = hits;
            let Ok(mut targets) = self.targets(&rules, &asked) else { break };
            if self.settle(&mut targets, moment, patience) == Ok(false) {
                return (hits, ends_in);
            }
            // Somebody was faster.
            hits /= 2;
        }
        (0, ends_in)
    }

    fn give_back_ahead(&self, key: Key, id: LimitsId, hits: u64) {
        let limits = self.store.of(id);
        self.store.take_back(key, id, |words| {
            limits.is_some_and(|limits| {
                limits.give_back(words, hits);
                true
            })
        });
    }
}

#[cfg(test)]
mod tests;
