//! The rules of a packet as they stand in their files, with origin and place.

use limiter_api::explain::ExplainStep;
use limiter_api::limits::Origin;
use limiter_common::wire::Record;
use limiter_model::Looked;
use limiter_rules::place::Rulebook;
use limiter_rules::{Budget, Selector, Subject};

use super::in_force::InForce;
use crate::rule_sets::effective::Effective;

impl<'a> InForce<'a> {
    /// The rules that a packet of a source may fall under.
    pub(super) fn book(&self, source: &Selector, looked: &Looked) -> Rulebook<&'a Effective> {
        let around = std::iter::once(*source).chain(source.wider());
        let by_source = around.filter_map(|at| self.effective.by_source(&at));
        // There may be many, and interfaces are looked up by name for each.
        let others = self.effective.on_other_keys().filter(|_| !looked.tables.is_empty());
        let index = |name: &str| self.datapath.interface_index(name);
        Rulebook::new(self.datapath.installed(), by_source.chain(others), &index)
    }

    /// A step with the name and the place of its rule.
    pub(super) fn named(&self, effective: &Effective) -> ExplainStep {
        let rule = &effective.rule;
        let (origin, place) = match effective.origin {
            Origin::File => self.of_file(&Subject::Rule(rule.path.clone())),
            Origin::Run | Origin::Cli | Origin::Management | Origin::Unknown => {
                (effective.origin.name(), None)
            }
        };
        ExplainStep {
            rule: Some(rule.path.to_string()),
            name: rule.called(),
            origin: Some(origin.to_owned()),
            place,
            shadow: rule.terms.is_shadow(),
            ..ExplainStep::default()
        }
    }

    /// Origin and place of a rule of the rule files.
    fn of_file(&self, subject: &Subject) -> (&'static str, Option<String>) {
        let origin = if self.layers.applied { "applied" } else { Origin::File.name() };
        (origin, self.layers.file.places.get(subject).map(ToString::to_string))
    }

    /// The budget of a record. The budgets of replies and new bans decide about no packet.
    pub(super) fn budget(&self, record: &Record) -> Option<&Budget> {
        let is = |budget: &&Budget| self.effective.tag(&budget.name) == record.budget_tag;
        self.effective.budgets.iter().find(is)
    }
}
