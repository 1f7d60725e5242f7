//! From a decision to its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use limiter_rules::file::requests::{ReadyLimit, RequestLimit};
use smallvec::SmallVec;

use crate::buckets::arithmetic::Left;
use crate::decide::question::{Answer, Asked, Descriptor, Detail, Status};
use crate::decide::request::Request;
use crate::decide::target::{By, Context, State, Target, nearest};
use crate::reports::counters::Became;
use crate::reports::unmet;
use crate::rules::Domain;

impl Target<'_> {
    /// What is left of its limits.
    pub(crate) fn left(&self, at: &Context<'_>) -> Vec<(RequestLimit, Left)> {
        let (limits, key) = match &self.by {
            By::Rule => return Vec::new(),
            By::Queue { .. } => return self.left_of_queue(),
            By::Leases(_) => return self.left_of_leases(at),
            By::Bucket(limits, key) => (limits, *key),
        };
        let key = self.charges().map_or(key, |(key, _)| key);
        at.limiter.store.look(key, limits, &at.moment, |words, moment| {
            let all = limits.limits.all().iter().enumerate();
            let left = |(number, limit): (usize, &ReadyLimit)| {
                let left = limits.limits.left(number, words, moment, self.together())?;
                Some((limit.written, left))
            };
            all.filter_map(left).collect()
        })
    }

    fn became(&self) -> Became {
        match &self.state {
            _ if self.is_over() && self.rule.written.shadow => Became::Shadow,
            State::Over | State::OverShared => Became::Over,
            State::FullRefused => Became::FullRefused,
            State::FullPassed => Became::FullPassed,
            State::Unlimited => Became::Unlimited,
            State::Within => Became::NotCharged,
            State::Queued => Became::Queued,
            State::Charged(_, charges, _) if charges.over_soft => Became::OverSoft,
            State::Charged(..) => Became::Within,
        }
    }
}

impl Request<'_> {
    /// The answer; what became of its descriptors is counted.
    pub(crate) fn answer(self, asked: &Asked<'_>, detail: Detail) -> Answer {
        let (at, over) = (self.at, self.over);
        at.limiter.answers[usize::from(over)].fetch_add(1, Ordering::Relaxed);
        let is_wider =
            |target: &Option<Target<'_>>| target.as_ref().is_some_and(|of| of.aggregate > 0);
        let descriptors = self.targets.iter().position(is_wider).unwrap_or(self.targets.len());
        let (own, wider) = self.targets.split_at(descriptors);
        let mut statuses = SmallVec::with_capacity(descriptors);
        for target in own {
            let Some(target) = target else {
                statuses.push(Status::default());
                continue;
            };
            let before =
                |wider: &Option<Target<'_>>| wider.as_ref().is_some_and(|of| of.of < target.of);
            let wider = || {
                let own = wider.get(wider.partition_point(before)..).unwrap_or_default();
                own.iter().flatten().take_while(|wider| wider.of == target.of)
            };
            let all = || std::iter::once(target).chain(wider());
            // Of several limits the one that it is over counts.
            let worse = |one, other| {
                let severity = |target: &Target<'_>| target.became().severity();
                if severity(other) > severity(one) { other } else { one }
            };
            let decides = wider().fold(target, worse);
            let became = decides.became();
            let value = target.rule.detailed.then(|| target.rule.detail(target.entries));
            if let Some(why) = target.unanswered {
                target.rule.counters.count_unanswered(why);
            }
            if all().any(|target| matches!(target.state, State::Charged(_, _, true))) {
                target.rule.counters.count(Became::FullShared, None);
            }
            target.rule.counters.count(became, value);
            if matches!(became, Became::Over | Became::FullRefused) {
                at.limiter.refused.count(decides.who(), 1, at.moment.now);
            }
            // A look is no strike, and nobody is banned for what others had of a shared bucket or
            // of a wider prefix, or for a store that does not answer.
            let is_own = decides.aggregate == 0;
            let is_strike = is_own && target.hits > 0 && target.unanswered.is_none();
            if over && became == Became::Over && decides.state == State::Over && is_strike {
                at.limiter.bans.strike(target.rule, target.entries, at.moment.now);
            }
            let limits = match detail {
                Detail::Left => all().flat_map(|target| target.left(&at)).collect(),
                Detail::Decision => Vec::new(),
            };
            let is_over = all().any(Target::is_over);
            statuses.push(Status {
                over: is_over && !target.rule.written.shadow,
                over_soft: became == Became::OverSoft,
                unlimited: matches!(target.state, State::Unlimited | State::FullPassed),
                leased: matches!(target.by, By::Leases(_)),
                nearest: nearest(&limits, is_over),
                limits,
                rule: Some(Arc::clone(target.rule)),
            });
        }
        count_met(self.domain, asked, &statuses);
        Answer { over, statuses, kept: None }
    }
}

/// Counts a request for its domain, and its descriptors that no rule is for.
fn count_met(domain: Option<&Domain>, asked: &Asked<'_>, statuses: &[Status]) {
    let Some(domain) = domain else { return };
    let pairs = asked.descriptors.iter().zip(statuses);
    // One that another replaces has no rule in the answer, either.
    let is_unmet = |descriptor: &Descriptor<'_>, status: &Status| {
        status.rule.is_none()
            && descriptor.limit.is_none()
            && !descriptor.entries.is_empty()
            && !domain.meets(&descriptor.entries)
    };
    let mut unmet = pairs.filter(|(descriptor, status)| is_unmet(descriptor, status));
    let first = unmet.next().map(|(descriptor, _)| descriptor);
    let count = usize::from(first.is_some()) + unmet.count();
    domain.met.count(asked.descriptors.len(), count, || {
        let entries = first.map_or(&[][..], |descriptor| &descriptor.entries);
        format!("{} ({})", unmet::keys(entries), domain.why_unmet(entries))
    });
}
