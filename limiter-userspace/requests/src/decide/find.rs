//! From what is asked to what decides it: descriptors with their rules and buckets.

use std::borrow::Cow;
use std::sync::Arc;

use limiter_rules::file::requests::RequestLimit;

use crate::buckets::arithmetic::Limits;
use crate::buckets::snapshot;
use crate::decide::question::{Asked, Descriptor, MAX_DESCRIPTORS, Refused};
use crate::decide::target::{By, Leased, LeasedCharge, State, Target};
use crate::decide::unit::{self, Unit};
use crate::limiter::Limiter;
use crate::reports::odd::Odd;
use crate::reports::unsaid::quoted;
use crate::rules::{Domain, EntryOf, Rule, Terms};

/// What decides about the descriptors of a request, and about their aggregates, which are behind
/// them. None for a descriptor that no rule is for.
pub(crate) fn targets<'a>(
    limiter: &Limiter,
    domain: Option<&'a Domain>,
    asked: &'a Asked<'_>,
) -> Result<Vec<Option<Target<'a>>>, Refused> {
    if asked.domain.is_empty() {
        return Err(Refused::NoDomain);
    }
    match asked.descriptors.len() {
        0 => return Err(Refused::NoDescriptors),
        many if many > MAX_DESCRIPTORS => return Err(Refused::TooMany(many)),
        _ => {}
    }
    let Some(domain) = domain else {
        limiter.unknown.count(1, 1, || quoted(asked.domain));
        return Ok(asked.descriptors.iter().map(|_| None).collect());
    };
    let all = asked.descriptors.iter().enumerate();
    let all = all.map(|(number, of)| target(limiter, domain, (number, of), asked.hits));
    let mut targets: Vec<_> = all.collect();
    replace(&mut targets);
    add_aggregates(&mut targets);
    // A payload waits in one.
    let queues = targets.iter_mut().flatten().filter(|of| matches!(of.by, By::Queue { .. }));
    for other in queues.skip(1) {
        let Rule { domain, path, .. } = &**other.rule;
        limiter.odd.count(Odd::TwoQueues, format!("{domain}: {path}"));
        (other.by, other.state) = (By::Rule, State::Over);
    }
    Ok(targets)
}

/// A rule, and what decides by it.
type RuleBy<'a> = (&'a Arc<Rule>, By<'a>, State);

fn target<'a>(
    limiter: &Limiter,
    domain: &'a Domain,
    (number, descriptor): (usize, &'a Descriptor<'_>),
    hits: u64,
) -> Option<Target<'a>> {
    let entries: &[EntryOf<'_>] = &descriptor.entries;
    let found = domain.find(entries);
    if let Some(rule) = found
        && let Some(value) = rule.no_address(entries)
    {
        limiter.count_no_address(rule, value);
    }
    let brought = descriptor.limit;
    let brought = brought.and_then(|limit| brought_by(limiter, domain, (found, entries), limit));
    let (rule, by, state) = brought.or_else(|| Some(by_rule(limiter, found?, entries)))?;
    Some(Target {
        rule,
        of: number,
        aggregate: 0,
        by,
        hits: descriptor.hits.unwrap_or(hits.max(1)),
        counted: descriptor.hits.is_some() || hits > 0,
        together: Vec::new(),
        entries,
        state,
        unanswered: None,
    })
}

fn by_rule<'a>(limiter: &Limiter, rule: &'a Arc<Rule>, entries: &[EntryOf<'_>]) -> RuleBy<'a> {
    let limits = match &rule.terms {
        Terms::Limits(limits) => limits,
        Terms::Block(_) => return (rule, By::Rule, State::Over),
        Terms::Unlimited => return (rule, By::Rule, State::Unlimited),
    };
    let key = || rule.key(entries);
    let by = if let Some(shared) = rule.shared_with(entries) {
        let (own, charged) = (key(), LeasedCharge::default());
        let whole = (limits, limiter.secret.other(own));
        By::Leases(Box::new(Leased { key: shared, own, whole, charged }))
    } else if let Some(bucket) = rule.bucket(entries) {
        By::Queue { limits, bucket, answer: None }
    } else {
        By::Bucket(Cow::Borrowed(limits), key())
    };
    (rule, by, State::Within)
}

/// Takes out the rules that others of the request replace.
fn replace(targets: &mut [Option<Target<'_>>]) {
    let names = targets.iter().flatten().flat_map(|target| target.rule.written.replaces.iter());
    let names: Vec<Box<str>> = names.cloned().collect();
    if names.is_empty() {
        return;
    }
    for slot in targets {
        let name = slot.as_ref().and_then(|target| target.rule.written.name.as_ref());
        if name.is_some_and(|name| names.contains(name)) {
            *slot = None;
        }
    }
}

/// Adds the aggregates of descriptors. A limit that a request brings takes the place of those, too.
fn add_aggregates(targets: &mut Vec<Option<Target<'_>>>) {
    let mut added = Vec::new();
    for target in targets.iter().flatten() {
        for (aggregate, limits, key) in target.rule.wider(target.entries) {
            added.push(Some(Target {
                aggregate,
                by: By::Bucket(Cow::Borrowed(limits), key),
                together: Vec::new(),
                state: State::Within,
                unanswered: None,
                ..*target
            }));
        }
    }
    targets.append(&mut added);
}

/// What a limit that a request brings makes of a descriptor. None where the limits of its rule hold
/// for want of room.
fn brought_by<'a>(
    limiter: &Limiter,
    domain: &'a Domain,
    (found, entries): (Option<&'a Arc<Rule>>, &[EntryOf<'_>]),
    limit: RequestLimit,
) -> Option<RuleBy<'a>> {
    let Limiter { store, secret, .. } = limiter;
    let (rule, key) = domain.brought(found, entries);
    let requests = limit.meter.quota().requests_per_unit;
    if requests == 0 {
        return Some((rule, By::Rule, State::Over));
    }
    let count = |odd| {
        let unit = Unit::of(&limit).map_or("", Unit::name);
        limiter.odd.count(odd, format!("{requests} a {unit}, by {}: {}", rule.domain, rule.path));
    };
    let (mut taken, mut known) = (limit, store.known_brought(limit));
    if known.is_none() {
        let Ok(limits) = Limits::compile(&[limit]) else {
            count(Odd::TooFast);
            return Some((rule, By::Rule, State::Unlimited));
        };
        known = store.brought(limits, false);
    }
    if known.is_none() {
        count(Odd::NoRoom);
        if found.is_some_and(|rule| matches!(rule.terms, Terms::Limits(_))) {
            return None;
        }
        let rounded = 1 << requests.ilog2();
        taken = Unit::of(&limit).map_or(limit, |unit| unit::limit(rounded, unit));
        let limits = Limits::compile(&[taken]).ok();
        known = limits.and_then(|limits| store.brought(limits, true));
    }
    let mut key_of_limit = secret.begin_with(key);
    for part in snapshot::parts(&taken) {
        key_of_limit.number(part);
    }
    let by = known.map_or(By::Rule, |known| By::Bucket(Cow::Owned(known), key_of_limit.end()));
    Some((rule, by, State::Within))
}
