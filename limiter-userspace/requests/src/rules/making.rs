//! From rule files to rules in force.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use limiter_common::wire::MAX_RECORDS;
use limiter_rules::RuleFileError;
use limiter_rules::file::Problem;
use limiter_rules::file::requests::{
    Level, LevelValue, Metric, Node, ReadyLimit, RequestFile, RequestRule, RequestTerms, SOURCE,
};

use crate::buckets::arithmetic::Limits;
use crate::buckets::key::{Key, Secret};
use crate::buckets::store::{KeyLimits, Store};
use crate::queue::rule::{self as queue, InForce, RuleQueue};
use crate::reports::counters::Counters;
use crate::rules::Rules;
use crate::rules::domain::{Domain, Found, Keys};
use crate::rules::rule::{Rule, Terms};
use crate::shared::rule::{self as shared, RuleShared};

/// The path that metrics show of limits that requests bring for keys without a rule.
const BROUGHT: &str = "(limits that requests bring)";

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
        let mut domains = BTreeMap::new();
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

    fn rule(
        &mut self,
        written: &RequestRule,
        levels: &[Level],
    ) -> Result<Arc<Rule>, RuleFileError> {
        let path: Vec<String> = levels.iter().map(Level::to_string).collect();
        let mut identity = self.secret.begin();
        identity.text(&self.file.domain);
        for level in &path {
            identity.text(level);
        }
        let (path, identity) = (path.join(" "), identity.end());
        let begun = self.secret.begin_with(identity);
        let terms = match &written.terms {
            RequestTerms::Unlimited => Terms::Unlimited,
            RequestTerms::Block(period) => Terms::Block(*period),
            RequestTerms::Limits(limits) => Terms::Limits(self.limits(identity, limits)),
        };
        let shared = self.shared(written, &path, identity)?;
        let queue = self.queue(written, &path);
        let new = || Arc::new(Counters::after(self.asked));
        let counters =
            self.before.get(&identity).map_or_else(new, |rule| Arc::clone(&rule.counters));
        let budget = written.budget.as_ref().map(|name| {
            let mut key = self.secret.begin();
            key.text("budget");
            key.text(&self.file.domain);
            key.text(name);
            key.end()
        });
        let aggregates = written.aggregates.iter();
        let aggregates = aggregates.map(|wider| self.limits(identity, &wider.limits)).collect();
        let made = Arc::new(Rule {
            written: written.clone(),
            terms,
            budget,
            aggregates,
            source: levels.iter().position(|level| &*level.key == SOURCE),
            shared,
            queue,
            detailed: written.metric == Metric::All || levels.iter().any(|level| level.in_metric),
            levels: levels.into(),
            ..Rule::bare(&self.file.domain, &path, (identity, begun), counters)
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
        let begun = self.secret.begin_with(identity);
        let counters = self.before.get(&identity);
        let counters = counters.map_or_else(Arc::default, |rule| Arc::clone(&rule.counters));
        Arc::new(Rule::bare(&self.file.domain, BROUGHT, (identity, begun), counters))
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
            problem: Problem::Limit(error.to_string()),
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

    fn limits(&self, identity: Key, limits: &[ReadyLimit]) -> KeyLimits {
        self.known(identity, Limits::of(limits))
    }

    /// Makes limits of a rule known, which had them before, or has them from now on.
    fn known(&self, identity: Key, limits: Limits) -> KeyLimits {
        let made = self.store.limits(limits);
        let before = self.before.get(&identity);
        let same = before.and_then(|rule| rule.limits().find(|of| of.id == made.id));
        KeyLimits { since: same.map_or(self.now, |of| of.since), ..made }
    }
}
