//! The rules in force: which one a descriptor falls under, and the key of its bucket.

pub(crate) mod files;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use limiter_common::wire::{Full, MAX_RECORDS, TableKey};
use limiter_rules::RuleFileError;
use limiter_rules::file::Problem;
use limiter_rules::file::requests::{
    Entry, Level, LevelValue, MAX_DEPTH, Metric, Node, Pattern, RequestFile, RequestLimit,
    RequestRule, RequestTerms, SOURCE,
};
use limiter_rules::model::{Ban, Period};

use crate::buckets::arithmetic::Limits;
use crate::buckets::key::{Key, Secret, source};
use crate::buckets::store::{KeyLimits, LimitsId, Store};
use crate::queue::rule::{self as queue, InForce, RuleQueue};
use crate::reports::counters::Counters;
use crate::reports::unmet::{self, Tally};
use crate::shared::rule::{self as shared, RuleShared};

/// The path that metrics show of limits that requests bring for keys without a rule.
const BROUGHT: &str = "(limits that requests bring)";

/// Rules of all files.
#[derive(Debug, Default)]
pub struct Rules {
    domains: HashMap<Box<str>, Domain>,
    /// The domain that a check without one is about, if that is clear.
    checked: Option<Box<str>>,
    /// Queues, with those that no rule fills.
    queues: Vec<Arc<InForce>>,
}

/// Rules of a file.
#[derive(Debug)]
pub struct Domain {
    /// Descriptors of requests that come as checks of a proxy.
    pub check: Vec<Vec<Entry>>,
    top: Keys,
    rules: Vec<Arc<Rule>>,
    /// Of limits that requests bring for keys without a rule.
    brought: Arc<Rule>,
    /// Requests, and those that no rule is for.
    pub(crate) met: Arc<Tally>,
}

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
    budget: Option<Key>,
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
    levels: Box<[Level]>,
    metric: Metric,
    /// Identity across changes of the file: the hash of domain and path.
    identity: Key,
    pub(crate) counters: Arc<Counters>,
    /// The same, as a limit that a request brings has it.
    brought: OnceLock<Arc<Self>>,
}

/// Limits for wider prefixes of the source.
#[derive(Debug)]
pub(crate) struct Aggregate {
    v4: Option<u8>,
    v6: Option<u8>,
    /// The level of the source.
    level: usize,
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

/// The keys of one level.
#[derive(Debug, Default)]
struct Keys(HashMap<Box<str>, Values>);

/// The values of a key, and what is behind each.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<Box<str>, Found>,
    /// The longest prefix first.
    sources: Vec<(IpNet, Found)>,
    /// The one with the most characters first.
    patterns: Vec<(Pattern, Found)>,
    any: Option<Found>,
}

#[derive(Debug, Default)]
struct Found {
    rule: Option<Arc<Rule>>,
    nested: Keys,
}

impl Values {
    /// The most specific of them. As in envoyproxy/ratelimit no other one is tried, whatever is
    /// behind it.
    fn find(&self, value: &str) -> Option<&Found> {
        if let Some(found) = self.exact.get(value) {
            return Some(found);
        }
        if !self.sources.is_empty()
            && let Some(source) = source(value)
            && let Some((_, found)) = self.sources.iter().find(|(net, _)| net.contains(&source))
        {
            return Some(found);
        }
        let pattern = self.patterns.iter().find(|(pattern, _)| pattern.matches(value));
        pattern.map(|(_, found)| found).or(self.any.as_ref())
    }
}

/// A key and a value of a request.
pub(crate) type EntryOf<'a> = (&'a str, &'a str);

impl Rules {
    /// Rules of files, each with its name. Limits go into `store`, counters are those that a rule
    /// of the same path had in `before`, whose limits become those of these from `now` on, in
    /// nanoseconds since boot. Limits of a cluster are those of one of `nodes`; without a number,
    /// of this node alone.
    pub(crate) fn new(
        files: &[(String, RequestFile)],
        before: &Self,
        store: &Store,
        secret: &Secret,
        nodes: Option<u64>,
        now: u64,
    ) -> Result<Self, RuleFileError> {
        let queues = queue::in_force(files, &before.queues)?;
        let of_before = before;
        let old = before.domains.values();
        let old = old.flat_map(|domain| domain.rules.iter().chain([&domain.brought]));
        let before = old.map(|rule| (rule.identity, rule)).collect();
        let mut domains = HashMap::new();
        let mut first: HashMap<&str, String> = HashMap::new();
        let mut slots = 0..MAX_RECORDS;
        for (name, file) in files {
            let at = file.domain_at.map_or_else(String::new, |place| format!(":{place}"));
            if let Some(first) = first.insert(&file.domain, format!("{name}{at}")) {
                let subject = format!("file for the domain {:?}", file.domain);
                let problem = Problem::Elsewhere { subject, first };
                return Err(RuleFileError { file: name.clone(), place: file.domain_at, problem });
            }
            let met =
                of_before.domain(&file.domain).map_or_else(Arc::default, |of| Arc::clone(&of.met));
            let mut making = Making {
                name,
                file,
                before: &before,
                now,
                store,
                secret,
                nodes,
                slots: &mut slots,
                queues: &queues,
                asked: met.all().asked,
                rules: Vec::new(),
            };
            let top = making.keys(&file.nodes, &[])?;
            let brought = making.brought();
            let rules = making.rules;
            let domain = Domain { check: file.check.clone(), top, rules, brought, met };
            domains.insert(file.domain.as_str().into(), domain);
        }
        let mut rules = Self { domains, checked: None, queues };
        rules.checked = match &rules.with_check()[..] {
            [one] => Some((*one).into()),
            // Another file that has `check`, too, takes nothing from those who ask already.
            several => of_before.checked.clone().filter(|checked| several.contains(&&**checked)),
        };
        Ok(rules)
    }

    /// Domains with `check`, by their names.
    pub(crate) fn with_check(&self) -> Vec<&str> {
        let domains = self.domains().into_iter();
        domains.filter(|(_, of)| !of.check.is_empty()).map(|(name, _)| name).collect()
    }

    /// The domain that a check without one is about, if that is clear.
    pub(crate) fn checked(&self) -> Option<&str> {
        self.checked.as_deref()
    }

    /// Queues of all files.
    pub(crate) fn queues(&self) -> &[Arc<InForce>] {
        &self.queues
    }

    /// What decides whether two nodes have the same rules, for each rule that nodes share.
    pub(crate) fn written(&self) -> Vec<String> {
        let shared = self.shared().map(|shared| shared.written().to_owned());
        let queue = |queue: &Arc<InForce>| {
            let InForce { settings, rules, .. } = &**queue;
            format!(
                "{:?} {rules:?}",
                limiter_rules::file::requests::Queue { place: None, ..settings.clone() }
            )
        };
        let mut written: Vec<String> = shared.chain(self.queues.iter().map(queue)).collect();
        written.sort_unstable();
        written
    }

    /// The rules of a domain.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// All domains, by their names.
    pub fn domains(&self) -> Vec<(&str, &Domain)> {
        let mut domains: Vec<_> = self.domains.iter().map(|(name, of)| (&**name, of)).collect();
        domains.sort_unstable_by_key(|(name, _)| *name);
        domains
    }

    /// Limits that keys may have.
    pub(crate) fn limits(&self) -> Vec<LimitsId> {
        let rules = self.domains.values().flat_map(|domain| &domain.rules);
        rules.flat_map(|rule| rule.limits()).map(|limits| limits.id).collect()
    }

    /// Rules whose limits nodes share.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &RuleShared> + Clone {
        let rules = self.domains.values().flat_map(|domain| &domain.rules);
        rules.filter_map(|rule| rule.shared.as_ref())
    }
}

impl Domain {
    /// All rules, in the order of the file.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Rules that metrics name: all, and that of the limits that requests bring for other keys, if
    /// one did.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let met = |rule: &&Arc<Rule>| rule.counters.all().iter().any(|count| *count > 0);
        self.rules.iter().chain(Some(&self.brought).filter(met))
    }

    /// What a limit that a request brings stands for, and the key of its descriptor: the rule of
    /// these keys without its name, its limits and its modes, or none.
    pub(crate) fn brought(
        &self,
        secret: &Secret,
        found: Option<&Arc<Rule>>,
        entries: &[EntryOf<'_>],
    ) -> (Arc<Rule>, Key) {
        if let Some(rule) = found {
            let brought = rule.brought.get_or_init(|| Arc::new(rule.without_terms()));
            // Not that of a budget, which is one for all.
            return (Arc::clone(brought), rule.own_key(secret, entries));
        }
        let mut key = secret.begin();
        key.key(self.brought.identity);
        for (name, value) in entries {
            key.text(name);
            let source = source(value).filter(|_| *name == SOURCE);
            key.text(&source.map_or(Cow::Borrowed(*value), |net| Cow::Owned(net.to_string())));
        }
        (Arc::clone(&self.brought), key.end())
    }

    /// The rule of a descriptor, which has as many entries as the rule has levels.
    pub(crate) fn find(&self, entries: &[EntryOf<'_>]) -> Option<&Arc<Rule>> {
        self.found(entries)?.rule.as_ref()
    }

    fn found(&self, entries: &[EntryOf<'_>]) -> Option<&Found> {
        if entries.len() > MAX_DEPTH {
            return None;
        }
        let mut keys = &self.top;
        let mut found = None;
        for (key, value) in entries {
            let next = keys.0.get(*key)?.find(value)?;
            (found, keys) = (Some(next), &next.nested);
        }
        found
    }

    /// True if the file says what becomes of a descriptor: by a rule; or by a value with nothing
    /// behind it, or an exemption, which lets all pass that begins with it.
    pub(crate) fn meets(&self, entries: &[EntryOf<'_>]) -> bool {
        // A file without rules means that all pass.
        let (mut keys, mut ends) = (&self.top, self.top.0.is_empty());
        for (key, value) in entries {
            let Some(found) = keys.0.get(*key).and_then(|values| values.find(value)) else {
                return self.top.0.is_empty();
            };
            let limits = |rule: &Arc<Rule>| !matches!(rule.terms, Terms::Unlimited);
            if found.nested.0.is_empty() && !found.rule.as_ref().is_some_and(limits) {
                return true;
            }
            (keys, ends) = (&found.nested, found.rule.is_some());
        }
        ends
    }

    /// Why no rule is for a descriptor.
    pub(crate) fn why_unmet(&self, entries: &[EntryOf<'_>]) -> String {
        let sorted = |keys: &mut dyn Iterator<Item = &str>| {
            let mut keys: Vec<String> = keys.map(str::to_ascii_lowercase).collect();
            keys.sort_unstable();
            keys
        };
        let asked = sorted(&mut entries.iter().map(|(key, _)| *key));
        let alike = self.rules.iter().find(|rule| {
            sorted(&mut rule.levels.iter().map(|level| &*level.key)) == asked
                && rule.levels.iter().zip(entries).any(|(level, (key, _))| &*level.key != *key)
        });
        if let Some(rule) = alike {
            return format!(
                "a rule has these keys in another order or other letters: {}",
                rule.path
            );
        }
        let mut keys = &self.top;
        for (number, (key, value)) in entries.iter().enumerate() {
            let one = &entries[number..=number];
            let Some(values) = keys.0.get(*key) else {
                let place = if number == 0 { "begins" } else { "goes on" };
                return format!("no rule {place} with the key {}", unmet::keys(one));
            };
            let Some(found) = values.find(value) else {
                return format!("no rule is for this value of {}", unmet::keys(one));
            };
            keys = &found.nested;
        }
        let mut next: Vec<&str> = keys.0.keys().map(|key| &**key).collect();
        next.sort_unstable();
        format!("the rules there need one more key: {}", next.join(", "))
    }

    /// The rule of a bucket whose entries have no order, and the entries in that of the rule. Of
    /// several rules it is the one whose keys come first in the alphabet.
    pub(crate) fn find_in_any_order<'a>(
        &self,
        entries: &[EntryOf<'a>],
    ) -> Option<(&Arc<Rule>, Vec<EntryOf<'a>>)> {
        if entries.len() > MAX_DEPTH {
            return None;
        }
        let mut rest = entries.to_vec();
        rest.sort_unstable();
        let mut ordered = Vec::with_capacity(rest.len());
        let rule = find_in_any_order(&self.top, &mut rest, &mut ordered)?;
        Some((rule, ordered))
    }
}

/// [`Domain::find`], with the entries in any order.
fn find_in_any_order<'a, 'b>(
    keys: &'a Keys,
    rest: &mut Vec<EntryOf<'b>>,
    ordered: &mut Vec<EntryOf<'b>>,
) -> Option<&'a Arc<Rule>> {
    for index in 0..rest.len() {
        let (key, value) = rest[index];
        let Some(found) = keys.0.get(key).and_then(|values| values.find(value)) else { continue };
        rest.remove(index);
        ordered.push((key, value));
        let rule = if rest.is_empty() {
            found.rule.as_ref()
        } else {
            find_in_any_order(&found.nested, rest, ordered)
        };
        if rule.is_some() {
            return rule;
        }
        ordered.pop();
        rest.insert(index, (key, value));
    }
    None
}

impl Rule {
    /// All limits that its keys have.
    fn limits(&self) -> impl Iterator<Item = &KeyLimits> {
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

    /// This rule without its name, its limits and its modes.
    fn without_terms(&self) -> Self {
        Self {
            domain: self.domain.clone(),
            path: self.path.clone(),
            name: None,
            replaces: Box::default(),
            terms: Terms::Unlimited,
            budget: None,
            aggregates: Box::default(),
            shared: None,
            queue: None,
            shadow: false,
            quota: false,
            full: self.full,
            afterwards: self.afterwards,
            ban: self.ban,
            detailed: self.detailed,
            levels: self.levels.clone(),
            metric: self.metric,
            identity: self.identity,
            counters: Arc::clone(&self.counters),
            brought: OnceLock::new(),
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
    fn own_key(&self, secret: &Secret, entries: &[EntryOf<'_>]) -> Key {
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

struct Making<'a> {
    name: &'a str,
    file: &'a RequestFile,
    before: &'a HashMap<Key, &'a Arc<Rule>>,
    now: u64,
    store: &'a Store,
    secret: &'a Secret,
    nodes: Option<u64>,
    /// Numbers by which keys of rules ask for leases.
    slots: &'a mut Range<u32>,
    queues: &'a [Arc<InForce>],
    /// Requests for the domain until now.
    asked: u64,
    rules: Vec<Arc<Rule>>,
}

impl Making<'_> {
    fn keys(&mut self, nodes: &[Node], outer: &[Level]) -> Result<Keys, RuleFileError> {
        let mut keys = Keys::default();
        for node in nodes {
            let mut path = outer.to_vec();
            path.push(node.level.clone());
            let rule = node.rule.as_ref().map(|rule| self.rule(rule, &path)).transpose()?;
            let found = Found { rule, nested: self.keys(&node.nested, &path)? };
            let values = keys.0.entry(node.level.key.clone()).or_default();
            match &node.level.value {
                LevelValue::Any => values.any = Some(found),
                LevelValue::Exact(value) => {
                    values.exact.insert(value.clone(), found);
                }
                LevelValue::Source(net) => values.sources.push((*net, found)),
                LevelValue::Pattern(pattern) => values.patterns.push((pattern.clone(), found)),
            }
        }
        for values in keys.0.values_mut() {
            // Stable: of equals the first one in the file comes first.
            values.sources.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
            values.patterns.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.literal()));
        }
        Ok(keys)
    }

    fn rule(&mut self, rule: &RequestRule, levels: &[Level]) -> Result<Arc<Rule>, RuleFileError> {
        let path: Vec<String> = levels.iter().map(Level::to_string).collect();
        let mut identity = self.secret.begin();
        identity.text(&self.file.domain);
        for level in &path {
            identity.text(level);
        }
        let (path, identity) = (path.join(" "), identity.end());
        let terms = match &rule.terms {
            RequestTerms::Unlimited => Terms::Unlimited,
            RequestTerms::Block(period) => Terms::Block(*period),
            RequestTerms::Limits(limits) => Terms::Limits(self.limits(rule, identity, limits)?),
        };
        let shared = self.shared(rule, &path, identity)?;
        let queue = self.queue(rule, &path);
        let new = || Arc::new(Counters::after(self.asked));
        let counters =
            self.before.get(&identity).map_or_else(new, |rule| Arc::clone(&rule.counters));
        let level = levels.iter().position(|level| &*level.key == SOURCE);
        let ban = rule.ban.zip(level).map(|(terms, level)| RuleBan { terms, level });
        let budget = rule.budget.as_ref().map(|name| {
            let mut key = self.secret.begin();
            key.text("budget");
            key.text(&self.file.domain);
            key.text(name);
            key.end()
        });
        let aggregates = rule.aggregates.iter().map(|wider| {
            let limits = self.limits(rule, identity, &wider.limits)?;
            Ok(Aggregate { v4: wider.v4, v6: wider.v6, level: level.unwrap_or(0), limits })
        });
        let aggregates = aggregates.collect::<Result<_, RuleFileError>>()?;
        let made = Arc::new(Rule {
            domain: self.file.domain.as_str().into(),
            path: path.into(),
            name: rule.name.clone(),
            replaces: rule.replaces.clone(),
            terms,
            budget,
            aggregates,
            shared,
            queue,
            shadow: rule.shadow,
            quota: rule.quota,
            full: rule.full,
            afterwards: rule.afterwards,
            ban,
            detailed: rule.metric == Metric::All || levels.iter().any(|level| level.in_metric),
            levels: levels.into(),
            metric: rule.metric,
            identity,
            counters,
            brought: OnceLock::new(),
        });
        self.rules.push(Arc::clone(&made));
        Ok(made)
    }

    /// What limits that requests bring stand for where there is no rule.
    fn brought(&self) -> Arc<Rule> {
        let mut identity = self.secret.begin();
        identity.text(&self.file.domain);
        identity.text("brought");
        identity.text("");
        let identity = identity.end();
        Arc::new(Rule {
            domain: self.file.domain.as_str().into(),
            path: BROUGHT.into(),
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
            counters: (self.before.get(&identity))
                .map_or_else(Arc::default, |rule| Arc::clone(&rule.counters)),
            brought: OnceLock::new(),
        })
    }

    fn shared(
        &mut self,
        rule: &RequestRule,
        path: &str,
        identity: Key,
    ) -> Result<Option<RuleShared>, RuleFileError> {
        let (Some(nodes), Some(sharing)) = (self.nodes, &rule.sharing) else {
            return Ok(None);
        };
        let RequestTerms::Limits(limits) = &rule.terms else {
            return Ok(None);
        };
        let slot = self.slots.next().unwrap_or(MAX_RECORDS);
        let of = shared::Making { domain: &self.file.domain, path, slot, nodes };
        let made = RuleShared::new(&of, limits, sharing, |own| self.known(identity, own));
        made.map(Some).map_err(|error| RuleFileError {
            file: self.name.to_owned(),
            place: rule.place,
            problem: Problem::Limit(error.of_requests()),
        })
    }

    /// The queue of a rule; none where there is no store.
    fn queue(&self, rule: &RequestRule, path: &str) -> Option<RuleQueue> {
        self.nodes?;
        let (name, _) = rule.queue.as_ref()?;
        let queue = self.queues.iter().find(|queue| queue.settings.name == *name)?;
        let tag = queue::tag(&self.file.domain, path);
        let (_, limits) = queue.rules.iter().find(|(of, _)| *of == tag)?;
        Some(RuleQueue { queue: Arc::clone(queue), tag, limits: limits.as_slice().into() })
    }

    fn limits(
        &self,
        rule: &RequestRule,
        identity: Key,
        limits: &[RequestLimit],
    ) -> Result<KeyLimits, RuleFileError> {
        let compiled = Limits::compile(limits).map_err(|(_, error)| RuleFileError {
            file: self.name.to_owned(),
            place: rule.place,
            problem: Problem::Limit(error.of_requests()),
        })?;
        Ok(self.known(identity, compiled))
    }

    /// Makes limits of a rule known, which had them before, or has them from now on.
    fn known(&self, identity: Key, limits: Limits) -> KeyLimits {
        let made = self.store.limits(limits);
        let before = self.before.get(&identity);
        let same = before.and_then(|rule| rule.limits().find(|of| of.id == made.id));
        KeyLimits { since: same.map_or(self.now, |of| of.since), ..made }
    }
}
