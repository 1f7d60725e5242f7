//! Which budgets a rule set needs.

use std::collections::{BTreeMap, BTreeSet};

use super::PlanError;
use crate::rules::model::{Budget, Over, SubjectRef};

/// The budgets that rules in force name.
pub(super) struct Named<'a> {
    by_name: BTreeMap<&'a str, &'a Budget>,
    pub(super) wanted: BTreeSet<&'a str>,
    /// Whether any action bans.
    pub(super) bans: bool,
}

impl<'a> Named<'a> {
    pub(super) fn new(budgets: &'a [Budget]) -> Self {
        let by_name = budgets.iter().map(|budget| (budget.name.as_str(), budget)).collect();
        Self { by_name, wanted: BTreeSet::new(), bans: false }
    }

    pub(super) fn name(
        &mut self,
        subject: SubjectRef<'_>,
        name: &str,
    ) -> Result<&'a Budget, PlanError> {
        let budget = self.by_name.get(name).copied().ok_or_else(|| PlanError::NoBudget {
            subject: subject.subject(),
            name: name.to_owned(),
        })?;
        self.wanted.insert(&budget.name);
        Ok(budget)
    }

    pub(super) fn over(&mut self, subject: SubjectRef<'_>, over: &Over) -> Result<(), PlanError> {
        self.bans |= matches!(over, Over::Ban(_));
        let Over::Class(name) = over else {
            return Ok(());
        };
        let class = self.name(subject, name)?;
        if matches!(class.limits.over, Over::Class(_)) {
            return Err(PlanError::ClassOfClass { subject: subject.subject(), name: name.clone() });
        }
        // Nobody follows it, but it is in the record.
        self.over(subject, &class.limits.over)
    }
}
