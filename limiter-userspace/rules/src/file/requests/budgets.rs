//! Limits beside those of a rule: budgets, which several rules share, and those of wider prefixes
//! of the source.

use std::collections::BTreeMap;

use super::super::check::Failure;
use super::super::check::keys::masks;
use super::super::check::limits::{OF_RULE, either};
use super::super::check::scalar::{at, text};
use super::super::error::Problem;
use super::super::place::Place;
use super::super::placed::{At, Item, Placed, Scalar};
use super::super::shape::{Aggregate, Budget, RateLimit};
use super::super::table::Written as _;
use super::bans::Sources;
use super::model::{Note, ReadyLimit, RequestAggregate, RequestTerms};

/// Aggregates of one rule.
const MOST_AGGREGATES: usize = 4;

/// Budgets of a file by their names.
#[derive(Default)]
pub(super) struct Budgets(BTreeMap<Box<str>, OneBudget>);

struct OneBudget {
    limits: Box<[ReadyLimit]>,
    place: Option<Place>,
    used: bool,
}

/// Limits that limit: neither unlimited, nor a block. They have no name of their own.
fn limits(
    raw: Option<&[Placed<RateLimit>]>,
    place: At,
    terms: impl FnOnce(&[Placed<RateLimit>]) -> Result<RequestTerms, Failure>,
) -> Result<Box<[ReadyLimit]>, Failure> {
    let Some(raw) = raw else {
        let (field, remedy) = ("rate_limit", "write one, as in `rate_limit: {rate: 100/s}`");
        return Err(at(place, Problem::Missing { field, remedy }));
    };
    for limit in raw {
        let mut written = limit.value.written();
        if let Some((what, place)) = written.find(|(field, _)| OF_RULE.contains(field)) {
            let reason = "it belongs to a rule: write it in the limit of the rule";
            return Err(at(place, Problem::NotSupported { what: what.to_owned(), reason }));
        }
    }
    match terms(raw)? {
        RequestTerms::Limits(limits) => Ok(limits),
        RequestTerms::Unlimited | RequestTerms::Block(_) => {
            let what = "a budget or an aggregate without a limit".to_owned();
            let reason = "it lets everything pass, or nothing: write it as a rule";
            Err(at(place, Problem::NotSupported { what, reason }))
        }
    }
}

impl Budgets {
    /// Adds a budget.
    pub(super) fn add(
        &mut self,
        item: &Placed<Budget>,
        terms: impl FnOnce(&[Placed<RateLimit>]) -> Result<RequestTerms, Failure>,
    ) -> Result<(), Failure> {
        let (raw, place) = (&item.value, item.referenced);
        let remedy = "name it, as in `name: mails`: rules mean it by this name";
        let Some(name) = &raw.name else {
            return Err(at(place, Problem::Missing { field: "name", remedy }));
        };
        let name: Box<str> = text(name, "name", remedy)?.into();
        if let Some(before) = self.0.get(&name) {
            let first = before.place.map_or(1, |place| place.line);
            let subject = format!("budget {name:?}");
            return Err(at(place, Problem::Duplicate { subject, first }));
        }
        let found = either(raw.rate_limit.as_deref(), raw.rate_limits.as_deref())?;
        let limits = limits(found, place, terms)?;
        self.0.insert(name, OneBudget { limits, place: place.place(), used: false });
        Ok(())
    }

    /// The budget that a rule means.
    pub(super) fn take(&mut self, raw: &Scalar) -> Result<(Box<str>, RequestTerms), Failure> {
        let remedy = "name one of the file's `budgets`, or remove the field";
        let name = text(raw, "budget", remedy)?;
        let Some((name, budget)) = self.0.get_key_value(name) else {
            let what = format!("the budget {name:?}");
            let reason = "the file has none of this name: add it to `budgets`";
            return Err(at(raw.referenced, Problem::NotSupported { what, reason }));
        };
        let (name, terms) = (name.clone(), RequestTerms::Limits(budget.limits.clone()));
        if let Some(budget) = self.0.get_mut(&name) {
            budget.used = true;
        }
        Ok((name, terms))
    }

    /// Names budgets that no rule means.
    pub(super) fn unused(&self) -> impl Iterator<Item = Note> {
        let unused = self.0.iter().filter(|(_, budget)| !budget.used);
        unused.map(|(name, budget)| {
            let text = format!("no rule means the budget {name:?}");
            Note { place: budget.place, text }
        })
    }
}

/// Reads the aggregates of a rule.
pub(super) fn aggregates(
    raw: Option<&Placed<Vec<Item<Aggregate>>>>,
    sources: Sources,
    mut terms: impl FnMut(&[Placed<RateLimit>]) -> Result<RequestTerms, Failure>,
) -> Result<Box<[RequestAggregate]>, Failure> {
    let Some(list) = raw else { return Ok(Box::default()) };
    if sources != Sources::Apart {
        let (field, needs) = ("aggregates", "remote_address");
        let remedy = "add the key with a bucket for each source, or remove the field";
        return Err(at(list.referenced, Problem::Without { field, needs, remedy }));
    }
    if list.value.len() > MOST_AGGREGATES {
        let (what, reason) = ("aggregates".to_owned(), "a rule has up to four");
        return Err(at(list.referenced, Problem::NotSupported { what, reason }));
    }
    let one = |Item(item): &Item<Aggregate>| {
        let (raw, place) = (&item.value, item.referenced);
        let bits = (raw.v4_prefix_mask_len.as_ref(), raw.v6_prefix_mask_len.as_ref());
        let masks = masks(bits.0, bits.1, place.place())?;
        if let Some(bits) = bits.1.filter(|_| masks.v6.is_some_and(|bits| bits > 64)) {
            let what = format!("v6_prefix_mask_len: {}", bits.value.as_deref().unwrap_or_default());
            let reason = "all addresses of a /64 share a bucket: write 64 or less";
            return Err(at(bits.referenced, Problem::NotSupported { what, reason }));
        }
        let found = either(raw.rate_limit.as_deref(), raw.rate_limits.as_deref())?;
        let limits = limits(found, place, &mut terms)?;
        Ok(RequestAggregate { v4: masks.v4, v6: masks.v6, limits })
    };
    list.value.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::RequestFile;
    use super::*;

    fn error(text: &str) -> String {
        let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
        errors.first().map_or_else(String::new, ToString::to_string)
    }

    #[test]
    fn rules_have_the_limits_of_their_budget() {
        let text = "domain: d\nbudgets:\n  - {name: mails, rate_limits: [{rate: 5/min}, {rate: \
                    9/hour}]}\n  - {name: idle, rate_limit: {rate: 1/s}}\ndescriptors:\n  - {key: a, \
                    budget: mails}\n  - {key: b, budget: mails, shadow_mode: true}\n";
        let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
        assert!(errors.is_empty(), "{errors:?}");
        let rules = file.rules();
        assert_eq!(rules.len(), 2);
        for (_, rule) in rules {
            assert_eq!(rule.budget.as_deref(), Some("mails"));
            let RequestTerms::Limits(limits) = &rule.terms else { panic!("{rule:?}") };
            assert_eq!(limits.len(), 2);
        }
        let notes: Vec<_> = file.notes.iter().map(|note| &*note.text).collect();
        assert!(notes.contains(&"no rule means the budget \"idle\""), "{notes:?}");
    }

    #[test]
    fn mistakes_of_budgets_aggregates_and_ceilings_are_refused_with_a_remedy() {
        let file = |budgets: &str, rule: &str| {
            format!("domain: d\nbudgets: [{budgets}]\ndescriptors:\n  - {{{rule}}}\n")
        };
        let mails = "{name: mails, rate_limit: {rate: 1/s}}";
        let source = |fields: &str| {
            let rule = format!("key: remote_address, rate_limit: {{rate: 1/s}}, {fields}");
            file("", &rule)
        };
        for (text, want) in [
            (file("{rate_limit: {rate: 1/s}}", "key: k, budget: x"), "2:11: name is missing"),
            (file("{name: mails}", "key: k, budget: mails"), "2:11: rate_limit is missing"),
            (
                file(&format!("{mails}, {mails}"), "key: k, budget: mails"),
                "a second budget \"mails\", the first is in line 2",
            ),
            (
                file("{name: m, rate_limit: {name: x, rate: 1/s}}", "key: k, budget: m"),
                "\"name\" is not supported: it belongs to a rule",
            ),
            (
                file("{name: m, rate_limit: {unlimited: true}}", "key: k, budget: m"),
                "without a limit\" is not supported",
            ),
            (file(mails, "key: k, budget: mail"), "the file has none of this name"),
            (
                file(mails, "key: k, budget: mails, rate_limit: {rate: 1/s}"),
                "budget beside rate_limit: remove one of the two",
            ),
            (
                file(mails, "key: k, budget: mails, scope: cluster"),
                "nodes share the limits of rules",
            ),
            (
                file(
                    "",
                    "key: k, rate_limit: {rate: 1/s}, aggregates: [{v4_prefix_mask_len: 24, \
                          rate_limit: {rate: 1/s}}]",
                ),
                "aggregates without remote_address",
            ),
            (source("aggregates: [{rate_limit: {rate: 1/s}}]"), "v4_prefix_mask_len is missing"),
            (source("aggregates: [{v4_prefix_mask_len: 24}]"), "rate_limit is missing"),
            (
                source("aggregates: [{v6_prefix_mask_len: 96, rate_limit: {rate: 1/s}}]"),
                "all addresses of a /64 share a bucket",
            ),
            (
                source(
                    "quota_mode: true, aggregates: [{v4_prefix_mask_len: 24, rate_limit: \
                        {rate: 1/s}}]",
                ),
                "\"quota_mode beside aggregates\" is not supported",
            ),
            (
                file("", "key: k, aggregates: [], value: x"),
                "aggregates without rate_limit: add a limit",
            ),
            (
                file(
                    "",
                    "key: k, scope: cluster, rate_limit: {rate: 1000/s, ceiling: {rate: 2000/s}}",
                ),
                "\"ceiling\" is not supported: nodes share hard limits",
            ),
            (
                file("", "key: k, rate_limit: {rate: 3/s, ceiling: {rate: 2/s}}"),
                "the upper rate 2/s is below the lower one, 3/s",
            ),
            (
                file(mails, "key: remote_address, budget: mails, action: {ban: {first: 1min}}"),
                "ban beside budget",
            ),
            (
                file(
                    "",
                    "key: k, rate_limit: {unit: day, requests_per_unit: 0, ceiling: {rate: 2/s}}",
                ),
                "ceiling beside requests_per_unit: 0",
            ),
            (
                file("", "key: k, rate_limit: {rate: 1/s, peak: {rate: 2/s}}"),
                "\"peak\" is not supported: a soft limit of requests has a `ceiling`",
            ),
            (
                file(
                    "",
                    "key: k, rate_limit: {unit: month, algorithm: fixed_window, \
                          requests_per_unit: 1, ceiling: {rate: 2/s}}",
                ),
                "\"ceiling\" is not supported: a month and a year",
            ),
        ] {
            let got = error(&text);
            assert!(got.contains(want), "{text}\n  got  {got}\n  want {want}");
        }
    }

    /// A ceiling that lets fewer come at once than its limit is taken, and named.
    #[test]
    fn a_ceiling_of_requests_below_the_burst_of_its_limit_is_noted() {
        let notes = |limit: &str| -> Vec<String> {
            let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n");
            let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
            assert!(errors.is_empty(), "{errors:?}");
            let notes = file.notes.into_iter().map(|note| note.text);
            notes.filter(|note| note.contains("ceiling")).collect()
        };
        let low = notes("rate: 5/s, burst: 100, ceiling: {rate: 20/s}");
        let wanted = "100 may come at once by its limit, and 20 by its ceiling, which holds";
        assert!(low.len() == 1 && low[0].contains(wanted), "{low:?}");
        assert_eq!(notes("rate: 5/s, burst: 100, ceiling: {rate: 20/s, burst: 100}"), [""; 0]);
    }
}
