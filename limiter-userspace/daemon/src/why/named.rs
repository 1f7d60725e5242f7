//! Maps the findings of the data path to the rules as people wrote them.

use limiter_api::explain::ExplainStep;
use limiter_api::limits::Origin;
use limiter_common::bucket::Slot;
use limiter_common::wire::Record;
use limiter_model::LookedTable;
use limiter_rules::compile::RuleId;
use limiter_rules::{Budget, Selector, Subject, Terms};

use super::in_force::InForce;
use crate::rule_sets::effective::Effective;

/// A rule with its description from the file.
pub(super) struct Named {
    pub(super) terms: Terms,
    /// A step with the rule's name and place.
    pub(super) step: ExplainStep,
}

impl InForce<'_> {
    /// The rule of a source in a slot of the source table.
    pub(super) fn source_rule(&self, source: &Selector, slot: Slot) -> Option<Named> {
        let rules = &self.datapath.installed().rules;
        let in_slot =
            |selector: &Selector| rules.get(selector).is_some_and(|rule| rule.slot == slot.index());
        let resolved =
            self.effective.resolve(source).and_then(|effective| effective.rule.path.selector());
        let selector = resolved.filter(in_slot).or_else(|| {
            let found = rules.iter().find(|(_, rule)| rule.slot == slot.index());
            found.map(|(selector, _)| *selector)
        })?;
        self.of_selector(selector)
    }

    fn of_selector(&self, selector: Selector) -> Option<Named> {
        Some(self.named(self.effective.by_source(&selector)?))
    }

    /// Describes a rule as it stands in its file.
    fn named(&self, effective: &Effective) -> Named {
        let rule = &effective.rule;
        let (origin, place) = match effective.origin {
            Origin::File => self.of_file(&Subject::Rule(rule.path.clone())),
            Origin::Run | Origin::Cli | Origin::Management | Origin::Unknown => {
                (effective.origin.name(), None)
            }
        };
        let step = ExplainStep {
            rule: Some(rule.path.to_string()),
            name: rule.called(),
            origin: Some(origin.to_owned()),
            place,
            shadow: rule.terms.is_shadow(),
            ..ExplainStep::default()
        };
        Named { terms: rule.terms.clone(), step }
    }

    /// Origin and place of a rule of the rule files.
    fn of_file(&self, subject: &Subject) -> (&'static str, Option<String>) {
        let origin = if self.layers.applied { "applied" } else { Origin::File.name() };
        (origin, self.layers.file.places.get(subject).map(ToString::to_string))
    }

    /// The rule that applies to a packet in a table.
    pub(super) fn table_rule(&self, source: &Selector, looked: &LookedTable) -> Option<Named> {
        let tables = &self.datapath.installed().tables;
        let form =
            tables.ids.iter().find(|(_, id)| **id == looked.table.id).map(|(form, _)| *form)?;
        if form.is_of_sources() {
            let of = |selector: &Selector| tables.rules.get(&RuleId::of_source(selector)).copied();
            let around = std::iter::once(*source).chain(source.wider());
            let mut mine = around.filter(|selector| of(selector) == Some(looked.slot.index()));
            return self.of_selector(mine.next()?);
        }
        let index = |name: &str| self.datapath.interface_index(name);
        let covering = self.effective.on_other_keys().filter_map(|effective| {
            let path = &effective.rule.path;
            let id = RuleId::new(path, &index).ok().filter(|id| id.form == form)?;
            let mine = tables.rules.get(&id) == Some(&looked.slot.index());
            (mine && id.covers(&looked.key)).then(|| (id.rank_of(path), effective))
        });
        let (_, effective) = covering.max_by_key(|(rank, _)| *rank)?;
        Some(self.named(effective))
    }

    /// The budget of a record. The budgets of replies and new bans decide about no packet.
    pub(super) fn budget(&self, record: &Record) -> Option<&Budget> {
        let is = |budget: &&Budget| self.effective.tag(&budget.name) == record.budget_tag;
        self.effective.budgets.iter().find(is)
    }
}
