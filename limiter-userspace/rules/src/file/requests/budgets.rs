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
use super::check::Checked;
use super::levels::Sources;
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

impl Checked {
    /// Limits that limit: neither unlimited, nor a block. They have no name of their own.
    fn limits(
        &mut self,
        one: Option<&Placed<RateLimit>>,
        several: Option<&Placed<Vec<Placed<RateLimit>>>>,
        place: At,
    ) -> Result<Box<[ReadyLimit]>, Failure> {
        let Some(raw) = either(one, several)? else {
            let (field, remedy) = ("rate_limit", "write one, as in `rate_limit: {rate: 100/s}`");
            return Err(at(place, Problem::Missing { field, remedy }));
        };
        let mut written = raw.iter().flat_map(|limit| limit.value.written());
        if let Some((what, place)) = written.find(|(field, _)| OF_RULE.contains(field)) {
            let reason = "it belongs to a rule: write it in the limit of the rule";
            return Err(at(place, Problem::NotSupported { what: what.to_owned(), reason }));
        }
        if let RequestTerms::Limits(limits) = self.terms(raw)? {
            return Ok(limits);
        }
        let what = "a budget or an aggregate without a limit".to_owned();
        let reason = "it lets everything pass, or nothing: write it as a rule";
        Err(at(place, Problem::NotSupported { what, reason }))
    }

    /// Adds a budget.
    pub(super) fn budget(&mut self, item: &Placed<Budget>) -> Result<(), Failure> {
        let (raw, place) = (&item.value, item.referenced);
        let remedy = "name it, as in `name: mails`: rules mean it by this name";
        let Some(name) = &raw.name else {
            return Err(at(place, Problem::Missing { field: "name", remedy }));
        };
        let name: Box<str> = text(name, "name", remedy)?.into();
        if let Some(before) = self.budgets.0.get(&name) {
            let first = before.place.map_or(1, |place| place.line);
            let subject = format!("budget {name:?}");
            return Err(at(place, Problem::Duplicate { subject, first }));
        }
        let limits = self.limits(raw.rate_limit.as_deref(), raw.rate_limits.as_deref(), place)?;
        self.budgets.0.insert(name, OneBudget { limits, place: place.place(), used: false });
        Ok(())
    }

    /// Reads the aggregates of a rule.
    pub(super) fn aggregates(
        &mut self,
        list: &Placed<Vec<Item<Aggregate>>>,
        sources: Sources,
    ) -> Result<Box<[RequestAggregate]>, Failure> {
        if sources != Sources::Apart {
            let (field, needs) = ("aggregates", "remote_address");
            let remedy = "add the key with a bucket for each source, or remove the field";
            return Err(at(list.referenced, Problem::Without { field, needs, remedy }));
        }
        if list.value.len() > MOST_AGGREGATES {
            let (what, reason) = ("aggregates".to_owned(), "a rule has up to four");
            return Err(at(list.referenced, Problem::NotSupported { what, reason }));
        }
        let one = |Item(Placed { value: raw, referenced: place }): &Item<Aggregate>| {
            let v6 = raw.v6_prefix_mask_len.as_ref();
            let masks = masks(raw.v4_prefix_mask_len.as_ref(), v6, place.place())?;
            if let Some(bits) = v6.filter(|_| masks.v6.is_some_and(|bits| bits > 64)) {
                let written = bits.value.as_deref().unwrap_or_default();
                let what = format!("v6_prefix_mask_len: {written}");
                let reason = "all addresses of a /64 share a bucket: write 64 or less";
                return Err(at(bits.referenced, Problem::NotSupported { what, reason }));
            }
            let (one, several) = (raw.rate_limit.as_deref(), raw.rate_limits.as_deref());
            let limits = self.limits(one, several, *place)?;
            Ok(RequestAggregate { v4: masks.v4, v6: masks.v6, limits })
        };
        list.value.iter().map(one).collect()
    }
}

impl Budgets {
    /// The budget that a rule means.
    pub(super) fn take(&mut self, raw: &Scalar) -> Result<(Box<str>, Box<[ReadyLimit]>), Failure> {
        let remedy = "name one of the file's `budgets`, or remove the field";
        let name = text(raw, "budget", remedy)?;
        let Some(budget) = self.0.get_mut(name) else {
            let what = format!("the budget {name:?}");
            let reason = "the file has none of this name: add it to `budgets`";
            return Err(at(raw.referenced, Problem::NotSupported { what, reason }));
        };
        budget.used = true;
        Ok((name.into(), budget.limits.clone()))
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

#[cfg(test)]
mod tests {
    use super::super::model::RequestFile;
    use super::super::tests::refused;
    use super::*;

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
    fn mistakes_of_budgets_and_aggregates_are_refused_with_a_remedy() {
        let file = |budgets: &str, rule: &str| {
            format!("domain: d\nbudgets: [{budgets}]\ndescriptors:\n  - {{{rule}}}\n")
        };
        let mails = "{name: mails, rate_limit: {rate: 1/s}}";
        let wider = "aggregates: [{v4_prefix_mask_len: 24, rate_limit: {rate: 1/s}}]";
        refused(
            |budgets: &&str| file(budgets, "key: k, budget: m"),
            &[
                ("{rate_limit: {rate: 1/s}}", "2:11: name is missing"),
                ("{name: m}", "2:11: rate_limit is missing"),
                ("{name: n, rate_limit: {rate: 1/s}}", "the file has none of this name"),
                (&format!("{mails}, {mails}"), "a second budget \"mails\", the first is in line 2"),
                (
                    "{name: m, rate_limit: {name: x, rate: 1/s}}",
                    "not supported: it belongs to a rule",
                ),
                ("{name: m, rate_limit: {unlimited: true}}", "without a limit\" is not supported"),
            ],
        );
        refused(
            |rule: &&str| file(mails, rule),
            &[
                ("key: k, budget: mails, scope: cluster", "nodes share the limits of rules"),
                ("key: remote_address, budget: mails, action: {ban: {}}", "ban beside budget"),
                (&format!("key: k, rate_limit: {{rate: 1/s}}, {wider}"), "without remote_address"),
                ("key: k, aggregates: [], value: x", "aggregates without rate_limit: add a limit"),
            ],
        );
        refused(
            |fields: &&str| {
                file("", &format!("key: remote_address, rate_limit: {{rate: 1/s}}, {fields}"))
            },
            &[
                ("aggregates: [{v4_prefix_mask_len: 24}]", "rate_limit is missing"),
                (
                    "aggregates: [{v6_prefix_mask_len: 96, rate_limit: {rate: 1/s}}]",
                    "all addresses of a /64 share a bucket",
                ),
                (
                    &format!("quota_mode: true, {wider}"),
                    "\"quota_mode beside aggregates\" is not supported",
                ),
            ],
        );
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
