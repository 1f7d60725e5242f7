//! A descriptor on its way to a decision.

use std::borrow::Cow;
use std::sync::Arc;

use limiter_cluster::queue::QueueAnswer;
use limiter_common::wire::TableKey;
use limiter_rules::file::requests::RequestLimit;

use crate::buckets::arithmetic::{Charges, Left, Over, Places, take_back};
use crate::buckets::key::Key;
use crate::buckets::store::{KeyLimits, LimitsId};
use crate::clock::Moment;
use crate::decide::charge::{Charge, NoBucket};
use crate::limiter::Limiter;
use crate::reports::counters::Unanswered;
use crate::reports::refused::Who;
use crate::rules::{EntryOf, Rule};
use crate::shared::leases::LeaseCharge;
use crate::shared::rule::Patience;

/// Who decides, when, and how.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) moment: Moment,
    pub(crate) patience: Patience,
    /// Nanoseconds until which the request may wait.
    pub(crate) ahead: u64,
}

pub(crate) struct Target<'a> {
    pub(crate) rule: &'a Arc<Rule>,
    /// The number of its descriptor.
    pub(crate) of: usize,
    /// The number of the aggregate of the rule, from 1; 0 for its own limits.
    pub(crate) aggregate: u64,
    pub(crate) by: By<'a>,
    pub(crate) hits: u64,
    /// True if the request says how many hits.
    pub(crate) counted: bool,
    /// The hits of all descriptors that meet its bucket before it, and its own; empty if none does.
    pub(crate) together: Vec<u64>,
    pub(crate) entries: &'a [EntryOf<'a>],
    pub(crate) state: State,
    /// The reason for which `on_partition` decided.
    pub(crate) unanswered: Option<Unanswered>,
}

/// What decides about a descriptor.
pub(crate) enum By<'a> {
    /// Its rule, which has no limits.
    Rule,
    /// A bucket of this node. Its limits are those of the rule, or the request brings them.
    Bucket(Cow<'a, KeyLimits>, Key),
    /// Leases, or limits of this node in their place.
    Leases(Box<Leased<'a>>),
    Queue {
        limits: &'a KeyLimits,
        bucket: String,
        answer: Option<QueueAnswer>,
    },
}

/// What decides about a descriptor of a rule that nodes share.
pub(crate) struct Leased<'a> {
    /// The key that nodes share.
    pub(crate) key: TableKey,
    /// The key of this node's share.
    pub(crate) own: Key,
    /// The whole limits, as one node would have them, and their key.
    pub(crate) whole: (&'a KeyLimits, Key),
    pub(crate) charged: LeasedCharge,
}

/// Charges of a rule that nodes share.
#[derive(Debug, Default)]
pub(crate) struct LeasedCharge {
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
    pub(crate) is_shared: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Within the limits, as far as is known.
    Within,
    /// Over one of them.
    Over,
    /// Over one that it shares with others, for want of room.
    OverShared,
    /// Charged to this key; true if that is one for all keys without room.
    Charged(Key, Charges, bool),
    /// Without a bucket.
    FullPassed,
    FullRefused,
    Unlimited,
    /// Over a limit, and its payload waits.
    Queued,
}

impl From<NoBucket> for State {
    fn from(no: NoBucket) -> Self {
        match no {
            NoBucket::Passes => Self::FullPassed,
            NoBucket::Refused => Self::FullRefused,
        }
    }
}

/// A request waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits;

impl Target<'_> {
    /// The limits of this node that say what it may pass, if any do.
    pub(crate) fn limits(&self) -> Option<&KeyLimits> {
        match &self.by {
            By::Bucket(limits, _) => Some(limits),
            By::Leases(of) => Some(of.whole.0),
            By::Rule | By::Queue { .. } => None,
        }
    }

    fn bucket(&self) -> Option<Key> {
        match &self.by {
            By::Bucket(_, key) => Some(*key),
            By::Leases(of) => Some(of.own),
            By::Rule | By::Queue { .. } => None,
        }
    }

    /// Who it is, where it is refused.
    pub(crate) fn who(&self) -> Who<'_> {
        let Self { rule, aggregate, entries, .. } = self;
        // Others may share the bucket of a budget, and each limit that requests bring has its own.
        let of_prefix = self.bucket().filter(|_| *aggregate > 0);
        let key = of_prefix.unwrap_or_else(|| rule.listed_key(entries));
        Who { rule, key, aggregate: *aggregate, entries }
    }

    /// True if limits of this node, or leases, have not decided about it.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Within && !matches!(self.by, By::Queue { .. })
    }

    /// Notes which others of the request meet its bucket before it.
    pub(crate) fn meet(&mut self, before: &[Option<Self>]) {
        let own = self.bucket();
        let others = before.iter().flatten();
        let others = others.filter(|of| of.state == State::Within && of.bucket() == own);
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

    /// Looks whether its limits would let it pass, and notes it if not.
    pub(crate) fn look(&mut self, at: &Context<'_>) -> Result<(), Waits> {
        match &self.by {
            By::Bucket(limits, key) => {
                if self.peek(at, limits, *key).is_err() {
                    self.state = State::Over;
                }
                Ok(())
            }
            By::Leases(_) => self.look_at_leases(at),
            By::Rule | By::Queue { .. } => Ok(()),
        }
    }

    /// Charges it to its limits, if it passes them all.
    pub(crate) fn charge(&mut self, at: &Context<'_>) -> Result<(), Waits> {
        match &self.by {
            By::Bucket(limits, key) => {
                self.state = self.charged(at, limits, *key);
                Ok(())
            }
            By::Leases(_) => self.charge_leases(at),
            By::Rule | By::Queue { .. } => Ok(()),
        }
    }

    fn peek(&self, at: &Context<'_>, limits: &KeyLimits, key: Key) -> Result<(), Over> {
        at.limiter.store.look(key, limits, &at.moment, |words, moment| {
            limits.limits.peek(Places::ALL, words, &moment.plus(at.ahead), self.together())
        })
    }

    fn charged(&self, at: &Context<'_>, limits: &KeyLimits, key: Key) -> State {
        if self.hits == 0 {
            // A look: it passes if anything is left.
            return match self.peek(at, limits, key) {
                Ok(()) => State::Charged(key, Charges::default(), false),
                Err(Over(_)) => State::Over,
            };
        }
        let (of, hits) = ((&**self.rule, self.aggregate), (self.hits, at.ahead));
        let charge = at.limiter.charge(of, (limits, key), &at.moment, |words, moment| {
            limits.limits.charge(Places::ALL, words, moment, hits)
        });
        match charge {
            Ok(Charge { key, is_shared, result: Ok(charges) }) => {
                State::Charged(key, charges, is_shared)
            }
            Ok(Charge { is_shared: true, .. }) => State::OverShared,
            Ok(_) => State::Over,
            Err(no) => no.into(),
        }
    }

    /// Takes back what it was charged.
    pub(crate) fn take_back(&mut self, limiter: &Limiter) {
        self.give_leases_back(limiter);
        let Some((key, charges)) = self.charges() else { return };
        if let By::Bucket(limits, _) = &self.by {
            limiter.store.take_back(key, limits.id, |words| take_back(words, charges));
        }
        self.state = State::Within;
    }
}

/// True if a request is over: over any limit that counts by itself, or over all of those that count
/// together.
pub(crate) fn is_over(targets: &[Option<Target<'_>>]) -> bool {
    let all = || targets.iter().flatten().filter(|target| !target.rule.written.shadow);
    let mut quotas = all().filter(|target| target.rule.written.quota).peekable();
    all().any(|target| !target.rule.written.quota && target.is_over())
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
