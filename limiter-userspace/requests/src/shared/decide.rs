//! Decisions by limits that nodes share.

use limiter_common::wire::Full as OnFull;
use limiter_rules::file::requests::RequestLimit;
use limiter_rules::model::Meter;

use crate::buckets::arithmetic::{Charges, Left, Places, amount, take_back};
use crate::buckets::key::Key;
use crate::buckets::store::{Full, KeyLimits};
use crate::clock::Moment;
use crate::decide::target::{LocalCharge, SharedCharge, State, Target};
use crate::limiter::{Limiter, Waits};
use crate::shared::rule::{Decided, Judged, Local, Patience, RuleShared};

impl Limiter {
    /// Looks whether a request would pass a rule that nodes share.
    pub(crate) fn look_at_shared(
        &self,
        target: &mut Target<'_>,
        moment: &Moment,
        patience: Patience,
    ) -> Result<(), Waits> {
        self.judge(target, moment, patience, true)
    }

    /// Charges a request to a rule that nodes share.
    pub(crate) fn charge_shared(
        &self,
        target: &mut Target<'_>,
        moment: &Moment,
        patience: Patience,
    ) -> Result<(), Waits> {
        if target.hits == 0 {
            // A look: it passes if anything is left.
            self.judge(target, moment, patience, true)?;
            if target.state == State::Within {
                target.state = State::Charged(key_of(target), Charges::default(), false);
            }
            return Ok(());
        }
        self.judge(target, moment, patience, false)
    }

    fn judge(
        &self,
        target: &mut Target<'_>,
        moment: &Moment,
        patience: Patience,
        look: bool,
    ) -> Result<(), Waits> {
        let rule = std::sync::Arc::clone(&target.rule);
        let (Some(cluster), Some(shared)) = (&self.cluster, &rule.shared) else { return Ok(()) };
        let (Some((table_key, own)), Some((whole, whole_key))) = (target.shared, &target.limits)
        else {
            return Ok(());
        };
        // A look is at all that the request asks of this bucket.
        let hits = if look { target.together().iter().sum() } else { target.hits };
        let mut full = None;
        let local = |by: Local, places: Places| {
            let (limits, key) = match by {
                Local::Share => (&shared.own, own),
                Local::Whole => (whole, *whole_key),
            };
            if look {
                let look = |words: &[_], moment: &Moment| {
                    limits.limits.peek_some(places, words, moment, &[hits])
                };
                return match self.store.look(key, limits, moment, look) {
                    Ok(()) => Decided::Within(None, false),
                    Err(_) => Decided::Over,
                };
            }
            let charge = |key: Key, always: bool| {
                self.store.charge(key, limits, moment, always, |words, moment| {
                    let charges = limits.limits.charge_some(places, words, moment, (hits, 0))?;
                    Ok(Some((charges, limits.limits.is_half_used(words, moment))))
                })
            };
            let within = |key, charged: Option<(Charges, bool)>, full| {
                let half = charged.as_ref().is_none_or(|(_, half)| *half);
                let charges = charged.map(|(charges, _)| charges).unwrap_or_default();
                let charge = LocalCharge { key, limits: limits.id, charges, full };
                Decided::Within(Some(charge), half)
            };
            let charged: Result<Result<_, crate::buckets::arithmetic::Over>, Full> =
                charge(key, false);
            match (charged, rule.full) {
                (Ok(Ok(charged)), _) => within(key, charged, false),
                (Ok(Err(_)), _) => Decided::Over,
                (Err(Full), OnFull::Pass) => {
                    full = Some(State::FullPassed);
                    Decided::Within(None, true)
                }
                (Err(Full), OnFull::Drop) => {
                    full = Some(State::FullRefused);
                    Decided::Over
                }
                (Err(Full), OnFull::Share) => {
                    let key = self.shared_key(&rule);
                    if let Ok(Ok(charged)) = charge(key, true) {
                        within(key, charged, true)
                    } else {
                        full = Some(State::OverShared);
                        Decided::Over
                    }
                }
            }
        };
        let (judged, unanswered) =
            shared.judge(&cluster.leases, &table_key, hits, (patience, look), local);
        target.unanswered = unanswered;
        match judged {
            Judged::Within(..) if look => Ok(()),
            Judged::Within(leases, local) => {
                let local = local.flatten();
                let is_full = local.as_ref().is_some_and(|local| local.full);
                let key = local.as_ref().map_or(own, |local| local.key);
                target.charged = SharedCharge { leases, local };
                target.state = full.unwrap_or(State::Charged(key, Charges::default(), is_full));
                Ok(())
            }
            Judged::Over(local) => {
                self.take_back_local(local.flatten());
                target.state = full.unwrap_or(State::Over);
                Ok(())
            }
            Judged::Waits(local) => {
                self.take_back_local(local.flatten());
                Err(Waits)
            }
        }
    }

    /// Takes the charges back of a rule that nodes share.
    pub(crate) fn take_back_shared(&self, target: &mut Target<'_>) {
        let SharedCharge { leases, local } = std::mem::take(&mut target.charged);
        if let (Some(cluster), Some(charge)) = (&self.cluster, &leases) {
            cluster.leases.give_back(charge);
        }
        self.take_back_local(local);
    }

    fn take_back_local(&self, local: Option<LocalCharge>) {
        if let Some(LocalCharge { key, limits, charges, .. }) = local {
            self.store.take_back(key, limits, |words| take_back(words, &charges));
        }
    }

    /// What is left of limits that nodes share: what this node may pass now. Other nodes may use
    /// the rest, so the time until nothing of a limit is used is the longest that it takes.
    pub(crate) fn left_of_shared(
        &self,
        target: &Target<'_>,
        moment: &Moment,
    ) -> Vec<(RequestLimit, Left)> {
        let (Some(cluster), Some(shared)) = (&self.cluster, &target.rule.shared) else {
            return Vec::new();
        };
        let (Some((table_key, own)), Some((whole, _))) = (&target.shared, &target.limits) else {
            return Vec::new();
        };
        let local = target.charged.local.as_ref().map_or(*own, |local| local.key);
        let all = whole.limits.all().iter().enumerate();
        let left = all.map(|(number, limit)| {
            let limit = limit.written;
            let remaining = shared
                .leased(&cluster.leases, table_key, number)
                .unwrap_or_else(|| self.left_of_share(shared, local, number, moment));
            let reset = longest(&limit, moment);
            let hits = target.together().iter().sum::<u64>().max(1);
            let wait = match limit.meter {
                _ if !target.is_over() => Some(0),
                _ if hits > amount(&limit) => None,
                Meter::TokenBucket(_) | Meter::LeakyBucket { .. } => Some(time(&limit, hits)),
                _ => Some(reset),
            };
            (limit, Left { remaining: remaining.min(amount(&limit)), reset, wait })
        });
        left.collect()
    }

    fn left_of_share(
        &self,
        RuleShared { own, .. }: &RuleShared,
        key: Key,
        number: usize,
        moment: &Moment,
    ) -> u64 {
        let KeyLimits { limits, .. } = own;
        self.store.look(key, own, moment, |words, moment| {
            limits.left(number, words, moment, &[1]).map_or(0, |left| left.remaining)
        })
    }
}

fn key_of(target: &Target<'_>) -> Key {
    target.shared.map_or_else(|| Key::from_raw([0; 2]), |(_, own)| own)
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
        Meter::TokenBucket(_) => time(limit, amount(limit)),
        Meter::LeakyBucket { backlog, .. } => {
            let backlog = u64::try_from(backlog.as_nanos()).unwrap_or(u64::MAX);
            time(limit, 1).saturating_add(backlog)
        }
        // Windows of the store begin at multiples of their length since 1970.
        Meter::FixedWindow(_) => length - moment.wall() % length.max(1),
        _ => length,
    }
}
