//! From the fields to rules for requests.

use std::collections::BTreeMap;

use super::super::check::limits::{either, of_rule_once, request_limit};
use super::super::check::rules::{MISSING, WITHOUT};
use super::super::check::scalar::{at, one_of, text};
use super::super::check::words::CHARGES;
use super::super::check::{Failure, actions, descriptors, sharing};
use super::super::error::Problem;
use super::super::place::Place;
use super::super::placed::{Item, Placed};
use super::super::shape::{self, Descriptor, File, RateLimit};
use super::budgets::Budgets;
use super::levels::{Sources, entry, values};
use super::model::{
    Calendar, Level, LevelValue, MAX_DEPTH, Metric, Node, Note, ReadyLimit, RequestFile,
    RequestLimit, RequestRule, RequestTerms,
};
use super::queues;
use super::unmet;
use crate::compile::share_of_requests;
use crate::model::{Meter, Sharing, Upper};
use crate::warnings::low_ceiling;

/// More rules than a file of 16 MiB has, so that lists inside lists end.
const MAX_RULES: usize = 1 << 18;

/// Descriptors of one check, and entries of one descriptor.
const MAX_CHECKS: usize = 16;

/// Checks everything that needs no other file.
pub(super) fn check(file: &File) -> (RequestFile, Vec<Failure>) {
    let mut checked = Checked::default();
    let domain = checked.domain(file);
    checked.note(domain);
    let mapping = file.check.as_ref().map_or(Ok(()), |check| checked.mapping(check));
    checked.note(mapping);
    for item in file.budgets.iter().flat_map(|list| &list.value) {
        let added = checked.budget(item);
        checked.note(added);
    }
    match file.queues.as_ref().map(queues::queues).transpose() {
        Ok(queues) => checked.file.queues = queues.unwrap_or_default(),
        // What is wrong with a queue is no fault of the rules that name it.
        Err(failure) => {
            checked.failures.push(failure);
            checked.queues_are_unknown = true;
        }
    }
    match descriptors(file) {
        Ok(Some(items)) => checked.file.nodes = checked.nodes(items, 1, Sources::default()),
        Ok(None) => checked.failures.push((Some(Place::BEGIN), Problem::NoRules)),
        Err(failure) => checked.failures.push(failure),
    }
    if !checked.queues_are_unknown {
        let named = queues::named(&mut checked.file);
        checked.failures.extend(named);
    }
    checked.remarks();
    (checked.file, checked.failures)
}

#[derive(Default)]
pub(super) struct Checked {
    file: RequestFile,
    failures: Vec<Failure>,
    rules: usize,
    /// Token buckets of which the file says neither algorithm nor burst, and the first of them.
    plain: usize,
    first_plain: Option<Place>,
    pub(super) budgets: Budgets,
    queues_are_unknown: bool,
    /// The first `metadata`.
    metadata: Option<Place>,
}

impl Checked {
    fn note(&mut self, done: Result<(), Failure>) {
        self.failures.extend(done.err());
    }

    fn domain(&mut self, file: &File) -> Result<(), Failure> {
        let remedy = "name it, as in `domain: auth`: requests ask by this name";
        let Some(domain) = &file.domain else {
            let field = "domain";
            return Err((Some(Place::BEGIN), Problem::Missing { field, remedy }));
        };
        text(domain, "domain", remedy)?.clone_into(&mut self.file.domain);
        self.file.domain_at = domain.referenced.place();
        Ok(())
    }

    fn mapping(&mut self, check: &Placed<Option<Vec<shape::Made>>>) -> Result<(), Failure> {
        let remedy = "write descriptors, as in \
                      `- [{key: remote_address, header: X-Real-IP}]`, or remove the field";
        let empty = |place| at(place, Problem::Empty { field: "check", remedy });
        let descriptors = check.value.as_deref().unwrap_or_default();
        if descriptors.is_empty() {
            return Err(empty(check.referenced));
        }
        let long = |list: &[_]| list.len() > MAX_CHECKS;
        if descriptors.len() > MAX_CHECKS || descriptors.iter().any(|one| long(&one.value)) {
            let (what, reason) = ("check".to_owned(), "it has up to 16 descriptors of 16 entries");
            return Err(at(check.referenced, Problem::NotSupported { what, reason }));
        }
        for descriptor in descriptors {
            if descriptor.value.is_empty() {
                return Err(empty(descriptor.referenced));
            }
            let entries = descriptor.value.iter().map(entry).collect::<Result<_, _>>()?;
            self.file.check.push(entries);
        }
        Ok(())
    }

    /// The nodes of a list of descriptors; what is wrong is noted.
    fn nodes(&mut self, items: &[Item<Descriptor>], depth: usize, outer: Sources) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut lines = BTreeMap::new();
        for Item(item) in items {
            match self.node(item, depth, outer) {
                Ok(found) => {
                    for node in found {
                        let line = item.referenced.place().map_or(1, |place| place.line);
                        let name = node.level.to_string();
                        if let Some(first) = lines.insert(name.clone(), line) {
                            let subject = format!("descriptor {name}");
                            let problem = Problem::Duplicate { subject, first };
                            self.failures.push(at(item.referenced, problem));
                            break;
                        }
                        nodes.push(node);
                    }
                }
                Err(failure) => self.failures.push(failure),
            }
        }
        nodes
    }

    /// A descriptor: a node for each of its values.
    fn node(
        &mut self,
        item: &Placed<Descriptor>,
        depth: usize,
        outer: Sources,
    ) -> Result<Vec<Node>, Failure> {
        let (raw, place) = (&item.value, item.referenced);
        if depth > MAX_DEPTH {
            let (what, reason) = ("descriptors".to_owned(), "they are nested 16 deep at most");
            return Err(at(place, Problem::NotSupported { what, reason }));
        }
        let remedy = "name a part of the request, as in `key: message_type`";
        let Some(key) = &raw.key else {
            return Err(at(place, Problem::Missing { field: "key", remedy }));
        };
        let key: Box<str> = text(key, "key", remedy)?.into();
        let values = values(&key, raw.value.as_ref())?;
        let shared = raw.share_threshold.is_some();
        let has_pattern = values.iter().any(|value| matches!(value, LevelValue::Pattern(_)));
        if let Some(field) = raw.share_threshold.as_ref().filter(|_| !has_pattern) {
            let (field, at_field) = ("share_threshold", field.referenced);
            let (needs, remedy) = ("a value with `*`", "write one, or remove the field");
            return Err(at(at_field, Problem::Without { field, needs, remedy }));
        }
        if let Some(metadata) = &raw.metadata {
            self.metadata = self.metadata.or(metadata.referenced.place());
        }
        let sources = outer.with(&key, &values, shared);
        let rule = self.rule(item, sources)?;
        let nested = match &raw.descriptors {
            None => Vec::new(),
            Some(list) => self.nodes(&list.value, depth + 1, sources),
        };
        if rule.is_none() && nested.is_empty() && raw.value.is_none() {
            if raw.descriptors.as_ref().is_some_and(|list| !list.value.is_empty()) {
                // What is wrong with those is noted.
                return Ok(Vec::new());
            }
            return Err(at(place, MISSING));
        }
        let in_metric = raw.value_to_metric.is_some();
        let mut nodes = Vec::with_capacity(values.len());
        for value in values {
            self.rules += 1 + nested.iter().map(size).sum::<usize>();
            if self.rules > MAX_RULES {
                return Err(at(place, Problem::TooManyRules(MAX_RULES)));
            }
            let shared = shared && matches!(value, LevelValue::Pattern(_));
            let level = Level { key: key.clone(), value, shared, in_metric };
            nodes.push(Node { level, rule: rule.clone(), nested: nested.clone() });
        }
        Ok(nodes)
    }

    /// The rule of a descriptor. One with a value, and nothing else, lets its requests pass.
    fn rule(
        &mut self,
        item: &Placed<Descriptor>,
        sources: Sources,
    ) -> Result<Option<RequestRule>, Failure> {
        let raw = &item.value;
        let found = either(raw.rate_limit.as_deref(), raw.rate_limits.as_deref())?;
        let limits = match (found, &raw.budget) {
            (Some(_), Some(budget)) => {
                return Err(at(budget.referenced, Problem::Beside("budget", "rate_limit")));
            }
            (Some(limits), None) => limits,
            (None, Some(_)) => &[],
            (None, None) => {
                let metric = raw.detailed_metric.as_ref();
                let metric = metric.map(|metric| ("detailed_metric", metric.referenced));
                if let Some((field, place)) = raw.of_limits().or(metric) {
                    let (needs, remedy) = ("rate_limit", WITHOUT);
                    return Err(at(place, Problem::Without { field, needs, remedy }));
                }
                return Ok(None);
            }
        };
        of_rule_once(limits)?;
        let first = limits.first().map(|limit| &limit.value);
        let name = first.and_then(|limit| limit.name.as_ref());
        let name =
            name.map(|name| text(name, "name", "name it, or remove the line")).transpose()?;
        let replaces = replaces(first.and_then(|limit| limit.replaces.as_ref()), name)?;
        let (budget, terms) = match &raw.budget {
            Some(budget) => {
                let (name, limits) = self.budgets.take(budget)?;
                (Some(name), RequestTerms::Limits(limits))
            }
            None => (None, self.terms(limits)?),
        };
        if terms == RequestTerms::Unlimited
            && let Some((field, place)) = raw.of_limits()
        {
            return Err(at(place, Problem::UnlimitedWith(field)));
        }
        if let (Some(_), Some(scope)) = (&budget, &raw.scope) {
            let what = "scope: cluster of a budget".to_owned();
            let reason = "nodes share the limits of rules: write them in the rule, or remove it";
            return Err(at(scope.referenced, Problem::NotSupported { what, reason }));
        }
        let aggregates = raw.aggregates.as_ref().map(|list| self.aggregates(list, sources));
        let aggregates = aggregates.transpose()?.unwrap_or_default();
        if let (Some(field), Some(quota)) = (&raw.aggregates, &raw.quota_mode) {
            let (what, reason) = ("quota_mode beside aggregates", "remove one of the two");
            let place = if aggregates.is_empty() { field.referenced } else { quota.referenced };
            return Err(at(place, Problem::NotSupported { what: what.to_owned(), reason }));
        }
        let sharing = sharing_of(raw, limits, &terms)?;
        let afterwards = afterwards(raw, &terms, sharing.is_some())?;
        let action = raw.action.as_deref().map(actions::of_requests).transpose()?;
        let queue = action.and_then(|action| action.queue.as_ref()).map(|name| {
            let queue = queues::beside(name, raw, &terms)?;
            Ok((queue, name.referenced.place()))
        });
        let ban = action.and_then(|action| action.ban.as_deref());
        if let (Some(ban), Some(_)) = (ban, &budget) {
            // It would fall on a source for what others had of the budget.
            return Err(at(ban.referenced, Problem::Beside("ban", "budget")));
        }
        Ok(Some(RequestRule {
            name: name.map(Box::from),
            replaces,
            terms,
            budget,
            aggregates,
            shadow: raw.shadow_mode.is_some(),
            quota: raw.quota_mode.is_some(),
            metric: match raw.detailed_metric {
                Some(_) => Metric::All,
                None => Metric::Levels,
            },
            full: raw.on_full.as_ref().map(actions::full).transpose()?.unwrap_or_default(),
            afterwards,
            sharing,
            ban: ban.map(|raw| actions::ban_of_source(raw, sources)).transpose()?,
            queue: queue.transpose()?,
            place: item.referenced.place(),
        }))
    }

    pub(super) fn terms(&mut self, raw: &[Placed<RateLimit>]) -> Result<RequestTerms, Failure> {
        let (mut limits, mut list) = (Vec::with_capacity(raw.len()), Vec::new());
        for one in raw {
            let is_alone = raw.len() == 1;
            let Some((limit, months)) = request_limit(one)? else {
                if is_alone {
                    return Ok(RequestTerms::Unlimited);
                }
                return Err(at(one.referenced, Problem::UnlimitedWith("rate_limits")));
            };
            let quota = limit.meter.quota();
            if quota.requests_per_unit == 0 {
                if is_alone {
                    return Ok(RequestTerms::Block(quota.period));
                }
                let reason = "it lets nothing pass: it is the only limit of its rule";
                let what = "requests_per_unit: 0".to_owned();
                return Err(at(one.referenced, Problem::NotSupported { what, reason }));
            }
            list.push(limit);
            let calendar = months.map(|months| Calendar { months });
            let hard = RequestLimit { calendar, ..RequestLimit::hard(limit.meter) };
            if let Some(Upper::Ceiling(ceiling)) = limit.upper {
                if let Some(low) = low_ceiling(&limit.meter, &ceiling) {
                    let text = format!("this limit never lets its burst pass at once: {low}");
                    self.file.notes.push(Note { place: one.referenced.place(), text });
                }
                let soft = RequestLimit { is_soft: true, ..hard };
                limits.extend([soft, RequestLimit::hard(Meter::TokenBucket(ceiling))]);
            } else {
                limits.push(hard);
            }
            if one.value.algorithm.is_none() && one.value.burst.is_none() {
                self.plain += 1;
                self.first_plain = self.first_plain.or(one.referenced.place());
            }
        }
        let ready = ReadyLimit::compiled(&limits, &list.into()).map_err(|(index, error)| {
            let place = raw.get(index).or(raw.first()).map(|one| one.referenced);
            at(place.unwrap_or_default(), Problem::Limit(error.to_string()))
        })?;
        Ok(RequestTerms::Limits(ready))
    }

    /// Says where a file means something else than in envoyproxy/ratelimit.
    fn remarks(&mut self) {
        if self.plain > 0 {
            let (count, them) = match self.plain {
                1 => ("one limit is a token bucket".to_owned(), "it"),
                n => (format!("{n} limits are token buckets"), "them"),
            };
            let text = format!(
                "{count}: all of a limit may come at once, and comes back steadily. \
                 envoyproxy/ratelimit counts {them} in windows of the clock, which `algorithm: \
                 fixed_window` means here"
            );
            self.file.notes.push(Note { place: self.first_plain, text });
        }
        self.file.notes.extend(self.budgets.unused());
        let holes = unmet::notes(&self.file);
        self.file.notes.extend(holes);
        if let Some(place) = self.metadata {
            let text = "metadata is not part of answers".to_owned();
            self.file.notes.push(Note { place: Some(place), text });
        }
    }
}

/// How nodes share the limits of a rule, if they do.
fn sharing_of(
    raw: &Descriptor,
    limits: &[Placed<RateLimit>],
    terms: &RequestTerms,
) -> Result<Option<Box<Sharing>>, Failure> {
    let sharing = sharing::sharing(raw.scope.as_ref(), raw.cluster.as_deref())?;
    if let (Some(sharing), RequestTerms::Limits(all)) = (&sharing, terms) {
        if let Some(ceiling) = limits.iter().find_map(|raw| raw.value.ceiling.as_ref()) {
            let what = "ceiling".to_owned();
            let reason = "nodes share hard limits: remove it, or `scope: cluster`";
            return Err(at(ceiling.referenced, Problem::NotSupported { what, reason }));
        }
        for (raw, limit) in limits.iter().zip(all) {
            if let (Some(_), Some(unit)) = (limit.written.calendar, &raw.value.unit) {
                let what = unit.value.clone().unwrap_or_default();
                let reason = "nodes share windows of one length: write a number of days, or \
                              remove `scope: cluster`";
                return Err(at(unit.referenced, Problem::NotSupported { what, reason }));
            }
            if let Err(error) = share_of_requests(&limit.written.meter, sharing, 1) {
                return Err(at(raw.referenced, Problem::Limit(error.to_string())));
            }
        }
    }
    Ok(sharing)
}

/// True if hits are reports of what was done already.
fn afterwards(raw: &Descriptor, terms: &RequestTerms, shared: bool) -> Result<bool, Failure> {
    let Some(charge) = &raw.charge else { return Ok(false) };
    one_of(charge, "charge", &CHARGES)?;
    if matches!(terms, RequestTerms::Block(_)) {
        let problem = Problem::Beside("charge", "requests_per_unit: 0");
        return Err(at(charge.referenced, problem));
    }
    if shared {
        let what = "charge: afterwards with scope: cluster".to_owned();
        let reason = "nodes lease what may pass, and none can lend more: remove `scope: cluster`, \
                      and let all proxies ask one `limiter serve`";
        return Err(at(charge.referenced, Problem::NotSupported { what, reason }));
    }
    Ok(true)
}

fn size(node: &Node) -> usize {
    1 + node.nested.iter().map(size).sum::<usize>()
}

fn replaces(
    raw: Option<&Placed<Vec<Placed<shape::Replaced>>>>,
    own: Option<&str>,
) -> Result<Box<[Box<str>]>, Failure> {
    let mut names = Vec::new();
    for replaced in raw.iter().flat_map(|list| &list.value) {
        let remedy = "write the name of the rule that is replaced, as in `- name: NAME`";
        let Some(name) = &replaced.value.name else {
            let field = "name";
            return Err(at(replaced.referenced, Problem::Missing { field, remedy }));
        };
        let text = text(name, "name", remedy)?;
        if own == Some(text) {
            let (what, reason) = ("replaces", "a rule does not replace itself; name another");
            let what = what.to_owned();
            return Err(at(name.referenced, Problem::NotSupported { what, reason }));
        }
        names.push(text.into());
    }
    Ok(names.into())
}
