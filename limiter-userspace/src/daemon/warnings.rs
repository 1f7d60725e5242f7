//! What of a rule set is in force but may not do what its author thinks.

use std::collections::BTreeSet;

use limiter_common::wire::Evidence;

use super::layers::EffectiveSet;
use crate::rules::model::Over;
use crate::rules::{Subject, Terms};

/// One line for each kind of thing.
pub(super) fn of(set: &EffectiveSet) -> Vec<String> {
    let (mut rejects, mut forgeable) = (Vec::new(), Vec::new());
    let mut named = BTreeSet::new();
    for (subject, terms) in terms(set) {
        let over = match &terms {
            Terms::Unlimited => continue,
            Terms::Budget(name) => {
                named.insert(name.clone());
                continue;
            }
            Terms::Limits(limits) => &limits.over,
        };
        match over {
            Over::Reject => rejects.push(subject),
            Over::Ban(ban) if ban.evidence == Evidence::None => forgeable.push(subject),
            Over::Class(name) => {
                named.insert(name.clone());
            }
            Over::Drop | Over::Mark(_) | Over::Interface(_) | Over::Cpu(_) | Over::Ban(_) => {}
        }
    }
    let mut warnings = Vec::new();
    if let Some(who) = first_of(&rejects)
        && set.replies.is_none()
    {
        warnings.push(format!(
            "{who} rejects, but there is no `replies`: packets over it are dropped, and nobody is \
             told; add replies to the rule file"
        ));
    }
    if let Some(who) = first_of(&forgeable) {
        warnings.push(format!(
            "{who} bans without evidence: whoever forges a source address gets it banned; write \
             `evidence: established` unless that is meant"
        ));
    }
    for budget in set.budgets.iter().filter(|budget| !named.contains(&budget.name)) {
        warnings.push(format!(
            "the budget {} is not in force: no rule names it; add one, or remove the budget",
            budget.name
        ));
    }
    warnings
}

/// What every rule and every budget does.
fn terms(set: &EffectiveSet) -> Vec<(Subject, Terms)> {
    let sources = set
        .rules
        .iter()
        .map(|(selector, effective)| (Subject::Source(*selector), effective.rule.action.terms()));
    let keyed =
        set.keyed.iter().map(|rule| (Subject::Keyed(rule.path.clone()), rule.terms.clone()));
    let budgets = set
        .budgets
        .iter()
        .map(|budget| (Subject::Budget(budget.name.clone()), Terms::Limits(budget.limits.clone())));
    sources.chain(keyed).chain(budgets).collect()
}

fn first_of(subjects: &[Subject]) -> Option<String> {
    let (first, others) = subjects.split_first()?;
    Some(match others.len() {
        0 => format!("the {first}"),
        more => format!("the {first} (and {more} more)"),
    })
}
