//! A rule in force, and the keys of its buckets.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use limiter_common::wire::{Full, TableKey};
use limiter_rules::file::requests::{Level, LevelValue, Metric, SOURCE};
use limiter_rules::model::{Ban, Period};

use crate::buckets::key::{Key, Secret, source};
use crate::buckets::store::KeyLimits;
use crate::queue::rule::RuleQueue;
use crate::reports::counters::Counters;
use crate::shared::rule::RuleShared;

/// A key and a value of a request.
pub(crate) type EntryOf<'a> = (&'a str, &'a str);

/// A rule in force.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the file")]
pub struct Rule {
    /// The domain that it is of.
    pub domain: Box<str>,
    /// Its keys and values, in one line.
    pub path: Box<str>,
    /// The name that its author gave it.
    pub name: Option<Box<str>>,
    /// Names of rules that it replaces.
    pub replaces: Box<[Box<str>]>,
    /// What it does.
    pub terms: Terms,
    /// The key of its budget, in the place of one for each value.
    pub(super) budget: Option<Key>,
    /// Limits for wider prefixes of the source.
    pub(crate) aggregates: Box<[Aggregate]>,
    /// What nodes share of it.
    pub(crate) shared: Option<RuleShared>,
    /// The queue that decides it.
    pub(crate) queue: Option<RuleQueue>,
    /// Requests over it pass, and are counted.
    pub shadow: bool,
    /// A request is over only if it is over all rules of this kind.
    pub quota: bool,
    /// Treatment of requests that get no bucket.
    pub full: Full,
    /// Hits are reports of what was done already: they are always charged.
    pub(crate) afterwards: bool,
    /// Ban of the source of a request over it.
    pub ban: Option<RuleBan>,
    /// True if metrics have the values of requests.
    pub detailed: bool,
    pub(super) levels: Box<[Level]>,
    pub(super) metric: Metric,
    /// Identity across changes of the file: the hash of domain and path.
    pub(super) identity: Key,
    pub(crate) counters: Arc<Counters>,
    /// The same, as a limit that a request brings has it.
    pub(super) brought: OnceLock<Arc<Self>>,
}

/// Limits for wider prefixes of the source.
#[derive(Debug)]
pub(crate) struct Aggregate {
    pub(super) v4: Option<u8>,
    pub(super) v6: Option<u8>,
    /// The level of the source.
    pub(super) level: usize,
    pub(crate) limits: KeyLimits,
}

impl Aggregate {
    /// The prefix that a descriptor falls under; none if its source is no address, or of a family
    /// that this is not for.
    fn prefix(&self, entries: &[EntryOf<'_>]) -> Option<IpNet> {
        let (_, value) = entries.get(self.level)?;
        let source = source(value)?;
        let bits = match source {
            IpNet::V4(_) => self.v4,
            IpNet::V6(_) => self.v6,
        };
        IpNet::new(source.addr(), bits?).ok().map(|net| net.trunc())
    }
}

/// A ban by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleBan {
    /// How long it is, and what it takes.
    pub terms: Ban,
    /// The level of the source.
    pub(crate) level: usize,
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
        own.into_iter().chain(shared).chain(self.aggregates.iter().map(|wider| &wider.limits))
    }

    /// The name that metrics and headers show.
    pub fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.path)
    }

    /// A rule without limits.
    pub(super) fn bare(domain: &str, path: &str, identity: Key, counters: Arc<Counters>) -> Self {
        Self {
            domain: domain.into(),
            path: path.into(),
            name: None,
            replaces: Box::default(),
            terms: Terms::Unlimited,
            budget: None,
            aggregates: Box::default(),
            shared: None,
            queue: None,
            shadow: false,
            quota: false,
            full: Full::default(),
            afterwards: false,
            ban: None,
            detailed: false,
            levels: Box::default(),
            metric: Metric::Levels,
            identity,
            counters,
            brought: OnceLock::new(),
        }
    }

    /// This rule without its name, its limits and its modes.
    pub(super) fn without_terms(&self) -> Self {
        Self {
            full: self.full,
            afterwards: self.afterwards,
            ban: self.ban,
            detailed: self.detailed,
            levels: self.levels.clone(),
            metric: self.metric,
            ..Self::bare(&self.domain, &self.path, self.identity, Arc::clone(&self.counters))
        }
    }

    /// What does not change with its limits.
    pub(crate) const fn identity(&self) -> Key {
        self.identity
    }

    /// The key of the bucket of a descriptor.
    pub(crate) fn key(&self, secret: &Secret, entries: &[EntryOf<'_>]) -> Key {
        self.budget.unwrap_or_else(|| self.own_key(secret, entries))
    }

    /// The key of the bucket of a descriptor, apart from its budget.
    pub(super) fn own_key(&self, secret: &Secret, entries: &[EntryOf<'_>]) -> Key {
        let mut key = secret.begin();
        key.key(self.identity);
        self.values(entries).for_each(|value| key.text(&value));
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
        secret: &'a Secret,
        entries: &'a [EntryOf<'a>],
    ) -> impl Iterator<Item = (u64, KeyLimits, Key)> {
        (1..).zip(&self.aggregates).filter_map(|(number, wider)| {
            let mut key = secret.begin();
            key.key(self.identity);
            key.number(number);
            key.text(&wider.prefix(entries)?.to_string());
            Some((number, wider.limits.clone(), key.end()))
        })
    }

    /// The key of the bucket that descriptors without one share: of the limits of the rule, or of
    /// the aggregate of a number.
    pub(crate) fn shared_key(&self, secret: &Secret, number: u64) -> Key {
        let mut key = secret.begin();
        key.key(self.identity);
        key.number(u64::MAX - number);
        key.end()
    }

    /// The values of a descriptor that metrics show.
    pub(crate) fn detail(&self, entries: &[EntryOf<'_>]) -> String {
        let shown = self.levels.iter().zip(entries).map(|(level, (key, value))| {
            let runtime = level.in_metric || self.metric == Metric::All;
            match level.value {
                LevelValue::Exact(_) => level.to_string(),
                _ if runtime && !level.shared => format!("{key}={value}"),
                _ => level.to_string(),
            }
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}
