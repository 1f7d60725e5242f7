//! From a decision to its answer.

use std::sync::atomic::Ordering;

use limiter_rules::file::requests::RequestLimit;

use crate::buckets::arithmetic::{Left, ReadyLimit};
use crate::clock::Moment;
use crate::decide::question::{Answer, Detail, Status};
use crate::decide::target::{State, Target, left_of_queue, nearest};
use crate::limiter::Limiter;
use crate::reports::counters::Became;

impl Limiter {
    /// What is left of the limits of a descriptor.
    pub(crate) fn left(&self, target: &Target<'_>, moment: &Moment) -> Vec<(RequestLimit, Left)> {
        let Some((limits, key)) = &target.limits else { return Vec::new() };
        if target.queue.is_some() {
            return left_of_queue(target);
        }
        if target.shared.is_some() {
            return self.left_of_shared(target, moment);
        }
        let key = target.charges().map_or(*key, |(key, _)| key);
        let hits = if target.hits == 0 { &[1][..] } else { target.together() };
        self.store.look(key, limits, moment, |words, moment| {
            let all = limits.limits.all().iter().enumerate();
            let left = |(number, limit): (usize, &ReadyLimit)| {
                let left = limits.limits.left(number, words, moment, hits)?;
                Some((limit.written, left))
            };
            all.filter_map(left).collect()
        })
    }

    /// The answer to a request; what became of its descriptors is counted.
    pub(crate) fn answer(
        &self,
        targets: Vec<Option<Target<'_>>>,
        over: bool,
        moment: &Moment,
        detail: Detail,
    ) -> Answer {
        self.answers[usize::from(over)].fetch_add(1, Ordering::Relaxed);
        let of_descriptors = targets
            .iter()
            .position(|target| target.as_ref().is_some_and(|target| target.aggregate > 0))
            .unwrap_or(targets.len());
        let mut targets = targets;
        let wider = targets.split_off(of_descriptors);
        let mut statuses = Vec::with_capacity(targets.len());
        for target in targets {
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
            let all = || std::iter::once(&target).chain(wider());
            // Of several limits the one that it is over counts.
            let worse = |one, other| {
                let severity = |target: &Target<'_>| became(target).severity();
                if severity(other) > severity(one) { other } else { one }
            };
            let decides = wider().fold(&target, worse);
            let became = became(decides);
            let value = target.rule.detailed.then(|| target.rule.detail(target.entries));
            if let Some(why) = target.unanswered {
                target.rule.counters.count_unanswered(why);
            }
            if all().any(|target| matches!(target.state, State::Charged(_, _, true))) {
                target.rule.counters.count(Became::FullShared, None);
            }
            target.rule.counters.count(became, value);
            // A look is no strike, and nobody is banned for what others had of a shared bucket or
            // of a wider prefix, or for a store that does not answer.
            let is_own = decides.aggregate == 0;
            let is_strike = is_own && target.hits > 0 && target.unanswered.is_none();
            if over && became == Became::Over && decides.state == State::Over && is_strike {
                self.bans.strike(&target.rule, target.entries, moment.now);
            }
            let limits = match detail {
                Detail::Left => all().flat_map(|target| self.left(target, moment)).collect(),
                Detail::Decision => Vec::new(),
            };
            let is_over = all().any(Target::is_over);
            statuses.push(Status {
                over: is_over && !target.rule.shadow,
                over_soft: became == Became::OverSoft,
                unlimited: matches!(target.state, State::Unlimited | State::FullPassed),
                leased: target.shared.is_some(),
                nearest: nearest(&limits, is_over),
                limits,
                rule: Some(target.rule),
            });
        }
        Answer { over, statuses, kept: None }
    }
}

/// What became of a descriptor at a limit.
fn became(target: &Target<'_>) -> Became {
    match &target.state {
        _ if target.is_over() && target.rule.shadow => Became::Shadow,
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
