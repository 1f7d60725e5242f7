//! A rule in force, and the keys of its buckets.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use limiter_common::wire::TableKey;
use limiter_rules::file::requests::{
    Level, LevelValue, Metric, RequestAggregate, RequestRule, SOURCE,
};
use limiter_rules::model::Period;

use crate::buckets::key::{Begun, Key, source};
use crate::buckets::store::KeyLimits;
use crate::queue::rule::RuleQueue;
use crate::reports::counters::Counters;
use crate::shared::rule::RuleShared;

/// A key and a value of a request.
pub(crate) type EntryOf<'a> = (&'a str, &'a str);

/// A rule in force.
#[derive(Debug)]
pub struct Rule {
    /// The domain that it is of.
    pub domain: Box<str>,
    /// Its keys and values, in one line.
    pub path: Box<str>,
    /// What the file says.
    pub written: RequestRule,
    /// What it does.
    pub terms: Terms,
    /// The key of its budget, in the place of one for each value.
    pub(super) budget: Option<Key>,
    /// Limits of its aggregates.
    pub(super) aggregates: Box<[KeyLimits]>,
    /// The level of the source.
    pub(crate) source: Option<usize>,
    /// What nodes share of it.
    pub(crate) shared: Option<RuleShared>,
    /// The queue that decides it.
    pub(crate) queue: Option<RuleQueue>,
    /// True if metrics have the values of requests.
    pub detailed: bool,
    pub(super) levels: Box<[Level]>,
    /// Identity across changes of the file: the hash of domain and path.
    pub(super) identity: Key,
    /// The beginning of its keys, which is its identity.
    pub(super) begun: Begun,
    pub(crate) counters: Arc<Counters>,
    /// The same, as a limit that a request brings has it.
    pub(super) brought: OnceLock<Arc<Self>>,
}

/// What a rule does.
#[derive(Debug)]
pub enum Terms {
    /// Every request passes.
    Unlimited,
    /// None passes.
    Block(Period),
    /// Limits.
    Limits(KeyLimits),
}

impl Rule {
    /// All limits that its keys have.
    pub(super) fn limits(&self) -> impl Iterator<Item = &KeyLimits> {
        let own = match &self.terms {
            Terms::Limits(limits) => Some(limits),
            Terms::Unlimited | Terms::Block(_) => None,
        };
        let shared = self.shared.as_ref().map(|shared| &shared.own);
        own.into_iter().chain(shared).chain(&self.aggregates)
    }

    /// The name that metrics and headers show.
    pub fn shown(&self) -> &str {
        self.written.name.as_deref().unwrap_or(&self.path)
    }

    /// A rule without limits.
    pub(crate) fn bare(
        domain: &str,
        path: &str,
        (identity, begun): (Key, Begun),
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            domain: domain.into(),
            path: path.into(),
            written: RequestRule::default(),
            terms: Terms::Unlimited,
            budget: None,
            aggregates: Box::default(),
            source: None,
            shared: None,
            queue: None,
            detailed: false,
            levels: Box::default(),
            identity,
            begun,
            counters,
            brought: OnceLock::new(),
        }
    }

    /// This rule without its name, its limits and its modes.
    pub(super) fn without_terms(&self) -> Self {
        let RequestRule { full, afterwards, ban, metric, .. } = self.written;
        let identity = (self.identity, self.begun.clone());
        Self {
            written: RequestRule { full, afterwards, ban, metric, ..RequestRule::default() },
            source: self.source,
            detailed: self.detailed,
            levels: self.levels.clone(),
            ..Self::bare(&self.domain, &self.path, identity, Arc::clone(&self.counters))
        }
    }

    /// What does not change with its limits.
    pub(crate) const fn identity(&self) -> Key {
        self.identity
    }

    /// The key of the bucket of a descriptor.
    pub(crate) fn key(&self, entries: &[EntryOf<'_>]) -> Key {
        self.budget.unwrap_or_else(|| self.own_key(entries))
    }

    /// The key of the bucket of a descriptor, apart from its budget.
    pub(crate) fn own_key(&self, entries: &[EntryOf<'_>]) -> Key {
        let mut key = self.begun.clone();
        self.values(entries).for_each(|value| key.text(&value));
        key.end()
    }

    /// The key under which a descriptor is listed that is refused: that of all its keys and values
    /// where the rule has none.
    pub(crate) fn listed_key(&self, entries: &[EntryOf<'_>]) -> Key {
        if !self.levels.is_empty() {
            return self.own_key(entries);
        }
        let mut key = self.begun.clone();
        for (name, value) in entries {
            key.text(name);
            let source = source(value).filter(|_| *name == SOURCE);
            key.text(&source.map_or(Cow::Borrowed(*value), |net| Cow::Owned(net.to_string())));
        }
        key.end()
    }

    /// The key of the same bucket on all nodes, if they share it.
    pub(crate) fn shared_with(&self, entries: &[EntryOf<'_>]) -> Option<TableKey> {
        Some(self.shared.as_ref()?.key(self.values(entries)))
    }

    /// The bucket of a descriptor in the store, if a queue decides it.
    pub(crate) fn bucket(&self, entries: &[EntryOf<'_>]) -> Option<String> {
        Some(self.queue.as_ref()?.bucket(self.values(entries)))
    }

    /// The values of a descriptor that have buckets of their own.
    fn values<'a>(&'a self, entries: &'a [EntryOf<'a>]) -> impl Iterator<Item = Cow<'a, str>> {
        self.levels.iter().zip(entries).filter_map(|(level, (_, value))| match &level.value {
            LevelValue::Exact(_) => None,
            LevelValue::Pattern(_) if level.shared => None,
            LevelValue::Any if &*level.key != SOURCE => Some(Cow::Borrowed(*value)),
            LevelValue::Pattern(_) => Some(Cow::Borrowed(*value)),
            LevelValue::Any | LevelValue::Source(_) => {
                let net = source(value).map(|net| net.to_string());
                Some(net.map_or(Cow::Borrowed(*value), Cow::Owned))
            }
        })
    }

    /// The value of `remote_address` that has a bucket of its own and is no address, if one is.
    pub(crate) fn no_address<'a>(&self, entries: &[EntryOf<'a>]) -> Option<&'a str> {
        if self.budget.is_some() || !matches!(self.terms, Terms::Limits(_)) {
            return None;
        }
        let is_each =
            |level: &Level| matches!(level.value, LevelValue::Any) && &*level.key == SOURCE;
        let mut levels = self.levels.iter().zip(entries).filter(|(level, _)| is_each(level));
        let (_, (_, value)) = levels.next()?;
        source(value).is_none().then_some(*value)
    }

    /// The aggregates of a descriptor: the number of each, from 1, its limits and its key.
    pub(crate) fn wider<'a>(
        &'a self,
        entries: &'a [EntryOf<'a>],
    ) -> impl Iterator<Item = (u64, &'a KeyLimits, Key)> {
        let all = self.written.aggregates.iter().zip(&self.aggregates);
        (1..).zip(all).filter_map(|(number, (wider, limits))| {
            let mut key = self.begun.clone();
            key.number(number);
            key.text(&self.prefix(wider, entries)?.to_string());
            Some((number, limits, key.end()))
        })
    }

    /// The prefix of an aggregate that a descriptor falls under; none if its source is no address,
    /// or of a family that the aggregate is not for.
    fn prefix(&self, wider: &RequestAggregate, entries: &[EntryOf<'_>]) -> Option<IpNet> {
        let (_, value) = entries.get(self.source?)?;
        let source = source(value)?;
        let bits = match source {
            IpNet::V4(_) => wider.v4,
            IpNet::V6(_) => wider.v6,
        };
        IpNet::new(source.addr(), bits?).ok().map(|net| net.trunc())
    }

    /// The prefix that a descriptor falls under of the aggregate of a number, from 1.
    pub(crate) fn prefix_of(&self, entries: &[EntryOf<'_>], number: u64) -> Option<IpNet> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.prefix(self.written.aggregates.get(index)?, entries)
    }

    /// The key of the bucket that descriptors without one share: of the limits of the rule, or of
    /// the aggregate of a number.
    pub(crate) fn shared_key(&self, number: u64) -> Key {
        let mut key = self.begun.clone();
        key.number(u64::MAX - number);
        key.end()
    }

    /// The values of a descriptor, or of its aggregate of a number from 1, as metrics show them.
    pub(crate) fn shown_of(&self, entries: &[EntryOf<'_>], aggregate: u64) -> String {
        let prefix = self.prefix_of(entries, aggregate).map(|net| net.to_string());
        let mut entries = entries.to_vec();
        if let (Some(prefix), Some(at)) = (&prefix, self.source)
            && let Some((_, value)) = entries.get_mut(at)
        {
            *value = prefix;
        }
        self.detail(&entries)
    }

    /// The values of a descriptor that metrics show.
    pub(crate) fn detail(&self, entries: &[EntryOf<'_>]) -> String {
        let shown = self.levels.iter().zip(entries).map(|(level, (key, value))| {
            let runtime = level.in_metric || self.written.metric == Metric::All;
            match level.value {
                LevelValue::Exact(_) => level.to_string(),
                _ if runtime && !level.shared => format!("{key}={value}"),
                _ => level.to_string(),
            }
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}
