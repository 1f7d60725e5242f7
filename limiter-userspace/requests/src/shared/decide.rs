//! Decisions by limits that nodes share.

use limiter_rules::file::requests::RequestLimit;
use limiter_rules::model::Meter;

use crate::buckets::arithmetic::{Charges, Left, Places, take_back};
use crate::buckets::key::Key;
use crate::buckets::store::KeyLimits;
use crate::clock::Moment;
use crate::decide::charge::{Charge, NoBucket};
use crate::decide::target::{By, Context, LeasedCharge, LocalCharge, State, Target, Waits};
use crate::limiter::Limiter;
use crate::shared::rule::{Decided, Judged, Local};

impl Target<'_> {
    /// Looks whether it would pass a rule that nodes share.
    pub(crate) fn look_at_leases(&mut self, at: &Context<'_>) -> Result<(), Waits> {
        self.judge(at, true)
    }

    /// Charges it to a rule that nodes share.
    pub(crate) fn charge_leases(&mut self, at: &Context<'_>) -> Result<(), Waits> {
        // A look passes if anything is left.
        let is_look = self.hits == 0;
        self.judge(at, is_look)?;
        if let (true, State::Within, By::Leases(of)) = (is_look, &self.state, &self.by) {
            self.state = State::Charged(of.own, Charges::default(), false);
        }
        Ok(())
    }

    fn judge(&mut self, at: &Context<'_>, look: bool) -> Result<(), Waits> {
        let (rule, limiter) = (self.rule, at.limiter);
        let (Some(cluster), Some(shared)) = (&limiter.cluster, &rule.shared) else { return Ok(()) };
        // A look is at all that the request asks of this bucket.
        let hits = if look { self.together().iter().sum() } else { self.hits };
        let By::Leases(of) = &mut self.by else { return Ok(()) };
        let mut state = None;
        let local = |by: Local, places: Places| {
            let (limits, key) = match by {
                Local::Share => (&shared.own, of.own),
                Local::Whole => of.whole,
            };
            if look {
                let look = |words: &[_], moment: &Moment| {
                    limits.limits.peek(places, words, moment, &[hits])
                };
                return match limiter.store.look(key, limits, &at.moment, look) {
                    Ok(()) => Decided::Within(None, false),
                    Err(_) => Decided::Over,
                };
            }
            let charge = |words: &[_], moment: &Moment| {
                let charged = limits.limits.charge(places, words, moment, (hits, 0));
                charged.map(|charges| (charges, limits.limits.is_half_used(words, moment)))
            };
            match limiter.charge((&**rule, 0), (limits, key), &at.moment, charge) {
                Ok(Charge { key, is_shared, result: Ok((charges, half)) }) => {
                    let limits = limits.id;
                    Decided::Within(Some(LocalCharge { key, limits, charges, is_shared }), half)
                }
                Ok(Charge { is_shared, .. }) => {
                    state = is_shared.then_some(State::OverShared);
                    Decided::Over
                }
                Err(no) => {
                    state = Some(no.into());
                    match no {
                        NoBucket::Passes => Decided::Within(None, true),
                        NoBucket::Refused => Decided::Over,
                    }
                }
            }
        };
        let (judged, unanswered) =
            shared.judge(&cluster.leases, &of.key, hits, (at.patience, look), local);
        self.unanswered = unanswered;
        match judged {
            Judged::Within(..) if look => {}
            Judged::Within(leases, local) => {
                let local = local.flatten();
                let is_shared = local.as_ref().is_some_and(|local| local.is_shared);
                let key = local.as_ref().map_or(of.own, |local| local.key);
                of.charged = LeasedCharge { leases, local };
                self.state = state.unwrap_or(State::Charged(key, Charges::default(), is_shared));
            }
            Judged::Over(local) => {
                take_local_back(limiter, local.flatten());
                self.state = state.unwrap_or(State::Over);
            }
            Judged::Waits(local) => {
                take_local_back(limiter, local.flatten());
                return Err(Waits);
            }
        }
        Ok(())
    }

    /// Gives back what was charged of a rule that nodes share.
    pub(crate) fn give_leases_back(&mut self, limiter: &Limiter) {
        let By::Leases(of) = &mut self.by else { return };
        let LeasedCharge { leases, local } = std::mem::take(&mut of.charged);
        if let (Some(cluster), Some(charge)) = (&limiter.cluster, &leases) {
            cluster.leases.give_back(charge);
        }
        take_local_back(limiter, local);
    }

    /// What is left of limits that nodes share: what this node may pass now. Other nodes may use
    /// the rest, so the time until nothing of a limit is used is the longest that it takes.
    pub(crate) fn left_of_leases(&self, at: &Context<'_>) -> Vec<(RequestLimit, Left)> {
        let Context { limiter, moment, .. } = at;
        let (Some(cluster), Some(shared)) = (&limiter.cluster, &self.rule.shared) else {
            return Vec::new();
        };
        let By::Leases(of) = &self.by else { return Vec::new() };
        let local = of.charged.local.as_ref().map_or(of.own, |local| local.key);
        let all = of.whole.0.limits.all().iter().enumerate();
        let left = all.map(|(number, limit)| {
            let limit = limit.written;
            let remaining = shared
                .leased(&cluster.leases, &of.key, number)
                .unwrap_or_else(|| left_of_share(at, &shared.own, local, number));
            let reset = longest(&limit, moment);
            let hits = self.together().iter().sum::<u64>().max(1);
            let wait = match limit.meter {
                _ if !self.is_over() => Some(0),
                _ if hits > limit.amount() => None,
                Meter::TokenBucket(_) | Meter::LeakyBucket { .. } => Some(time(&limit, hits)),
                _ => Some(reset),
            };
            (limit, Left { remaining: remaining.min(limit.amount()), reset, wait })
        });
        left.collect()
    }
}

fn take_local_back(limiter: &Limiter, local: Option<LocalCharge>) {
    if let Some(LocalCharge { key, limits, charges, .. }) = local {
        limiter.store.take_back(key, limits, |words| take_back(words, &charges));
    }
}

fn left_of_share(at: &Context<'_>, own: &KeyLimits, key: Key, number: usize) -> u64 {
    at.limiter.store.look(key, own, &at.moment, |words, moment| {
        own.limits.left(number, words, moment, &[1]).map_or(0, |left| left.remaining)
    })
}

/// Nanoseconds in which so many hits come back.
fn time(limit: &RequestLimit, hits: u64) -> u64 {
    let quota = limit.meter.quota();
    let nanos = u128::from(quota.period.nanos()) * u128::from(hits);
    u64::try_from(nanos.div_ceil(u128::from(quota.requests_per_unit.max(1)))).unwrap_or(u64::MAX)
}

/// Nanoseconds after which nothing of a limit is used that is used now.
fn longest(limit: &RequestLimit, moment: &Moment) -> u64 {
    let length = limit.meter.quota().period.nanos();
    match limit.meter {
        Meter::TokenBucket(_) => time(limit, limit.amount()),
        Meter::LeakyBucket { backlog, .. } => {
            let backlog = u64::try_from(backlog.as_nanos()).unwrap_or(u64::MAX);
            time(limit, 1).saturating_add(backlog)
        }
        // Windows of the store begin at multiples of their length since 1970.
        Meter::FixedWindow(_) => length - moment.wall() % length.max(1),
        _ => length,
    }
}
