//! A descriptor on its way to a decision.

use std::sync::Arc;

use limiter_cluster::queue::QueueAnswer;
use limiter_common::wire::TableKey;
use limiter_rules::file::requests::RequestLimit;

use crate::buckets::arithmetic::{Charges, Left};
use crate::buckets::key::Key;
use crate::buckets::store::{KeyLimits, LimitsId};
use crate::clock::Moment;
use crate::reports::counters::Unanswered;
use crate::rules::{EntryOf, Rule};
use crate::shared::leases::LeaseCharge;

/// A descriptor on its way to a decision.
pub(crate) struct Target<'a> {
    pub(crate) rule: Arc<Rule>,
    /// The number of its descriptor.
    pub(crate) of: usize,
    /// The number of the aggregate of the rule, from 1; 0 for its own limits.
    pub(crate) aggregate: u64,
    /// Of a rule that nodes share: the whole limits, as one node would have them.
    pub(crate) limits: Option<(KeyLimits, Key)>,
    /// The key that nodes share, and that of this node's share.
    pub(crate) shared: Option<(TableKey, Key)>,
    pub(crate) hits: u64,
    /// True if the request says how many hits.
    pub(crate) counted: bool,
    /// The hits of all descriptors that meet its bucket before it, and its own; empty if none does.
    pub(crate) together: Vec<u64>,
    /// Nanoseconds until which the request may wait.
    pub(crate) ahead: u64,
    pub(crate) entries: &'a [EntryOf<'a>],
    /// True if the request brings the limit.
    pub(crate) brought: bool,
    pub(crate) state: State,
    /// What was charged of a rule that nodes share.
    pub(crate) charged: SharedCharge,
    /// The reason for which `on_partition` decided.
    pub(crate) unanswered: Option<Unanswered>,
    /// The bucket in the store of a rule that a queue decides, and its answer.
    pub(crate) queue: Option<(String, Option<QueueAnswer>)>,
}

/// Charges of a rule that nodes share.
#[derive(Debug, Default)]
pub(crate) struct SharedCharge {
    pub(crate) leases: Option<LeaseCharge>,
    pub(crate) local: Option<LocalCharge>,
}

/// A charge to limits of this node.
#[derive(Clone, Debug)]
pub(crate) struct LocalCharge {
    pub(crate) key: Key,
    pub(crate) limits: LimitsId,
    pub(crate) charges: Charges,
    /// True if the bucket is one for all keys without room.
    pub(crate) full: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Within the limits, as far as is known.
    Within,
    /// Over one of them.
    Over,
    /// Over one that it shares with others, for want of room.
    OverShared,
    /// Charged to this key.
    Charged(Key, Charges, bool),
    /// Without a bucket.
    FullPassed,
    FullRefused,
    Unlimited,
    /// Over a limit, and its payload waits.
    Queued,
}

impl Target<'_> {
    /// Notes which others of the request meet its bucket before it.
    pub(crate) fn meet(&mut self, before: &[Option<Self>]) {
        let bucket =
            |of: &Self| (of.shared.map(|(key, _)| key), of.limits.as_ref().map(|(_, key)| *key));
        let (own, is_charged) = (bucket(self), |of: &&Self| of.state == State::Within);
        let others = before.iter().flatten().filter(is_charged).filter(|of| bucket(of) == own);
        self.together = others.map(|of| of.hits).collect();
        if !self.together.is_empty() {
            self.together.push(self.hits);
        }
    }

    /// The hits that its bucket is to take one after the other, so that this one passes: a look
    /// passes if one hit would.
    pub(crate) fn together(&self) -> &[u64] {
        if self.hits == 0 {
            return &[1];
        }
        if self.together.is_empty() { std::slice::from_ref(&self.hits) } else { &self.together }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over | State::OverShared | State::FullRefused | State::Queued)
    }

    pub(crate) fn charges(&self) -> Option<(Key, &Charges)> {
        match &self.state {
            State::Charged(key, charges, _) => Some((*key, charges)),
            _ => None,
        }
    }
}

/// True if a request is over: over any limit that counts by itself, or over all of those that count
/// together.
pub(crate) fn is_over(targets: &[Option<Target<'_>>]) -> bool {
    let all = || targets.iter().flatten().filter(|target| !target.rule.shadow);
    let mut quotas = all().filter(|target| target.rule.quota).peekable();
    all().any(|target| !target.rule.quota && target.is_over())
        || quotas.peek().is_some() && quotas.all(Target::is_over)
}

/// The limit that matters most: the one that makes a request that is over wait longest, or the one
/// with the least left.
pub(crate) fn nearest(limits: &[(RequestLimit, Left)], over: bool) -> Option<(RequestLimit, Left)> {
    let hard = limits.iter().filter(|(limit, _)| !limit.is_soft);
    let longest = hard.max_by_key(|(_, left)| left.wait.unwrap_or(u64::MAX));
    let least = limits.iter().min_by_key(|(_, left)| left.remaining);
    if over { longest } else { least }.copied()
}

/// Takes out the rules that others of the request replace.
pub(crate) fn replace(targets: &mut [Option<Target<'_>>]) {
    let names = targets.iter().flatten().flat_map(|target| target.rule.replaces.iter());
    let names: Vec<Box<str>> = names.cloned().collect();
    for slot in targets {
        let name = slot.as_ref().and_then(|target| target.rule.name.as_ref());
        if name.is_some_and(|name| names.contains(name)) {
            *slot = None;
        }
    }
}

/// A request that all limits have decided but that of a queue.
pub(crate) struct Settled<'a> {
    pub(crate) targets: Vec<Option<Target<'a>>>,
    pub(crate) over: bool,
    pub(crate) moment: Moment,
}

/// What is left of the limits of a rule that a queue decides, as far as that was asked.
pub(crate) fn left_of_queue(target: &Target<'_>) -> Vec<(RequestLimit, Left)> {
    let (Some(rule), Some((limits, _))) = (&target.rule.queue, &target.limits) else {
        return Vec::new();
    };
    let Some((_, Some(answer))) = &target.queue else { return Vec::new() };
    let written: Vec<RequestLimit> =
        limits.limits.all().iter().map(|limit| limit.written).collect();
    rule.left(&written, answer)
}
