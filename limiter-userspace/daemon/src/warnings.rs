//! Warnings about rules that are in force but may not do what their author thinks.

use std::collections::BTreeSet;

use limiter_common::wire::{Evidence, field};
use limiter_datapath::{Datapath, keep_tags};
use limiter_rules::model::{Limits, Martians, Over};
use limiter_rules::{Path, Subject, Terms};

use super::effective::{Effective, EffectiveSet};

/// Warnings about a rule set: one line for each kind.
pub(super) fn of(set: &EffectiveSet) -> Vec<String> {
    let (mut rejects, mut forgeable, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    let mut named = BTreeSet::new();
    let mut look = |subject: Subject, limits: &Limits| {
        if limits.sharing.is_some() {
            shared.push(subject.clone());
        }
        match &limits.over {
            Over::Reject => rejects.push(subject),
            Over::Ban(ban) if ban.evidence == Evidence::None => forgeable.push(subject),
            Over::Class(name) => {
                named.insert(name.clone());
            }
            Over::Drop | Over::Mark(_) | Over::Interface(_) | Over::Cpu(_) | Over::Ban(_) => {}
        }
    };
    let mut charged = BTreeSet::new();
    for Effective { rule, .. } in &set.rules {
        match &rule.terms {
            Terms::Unlimited => {}
            Terms::Budget(name) => {
                charged.insert(name.as_str());
            }
            Terms::Limits(limits) => look(Subject::Rule(rule.path.clone()), limits),
        }
    }
    for budget in &set.budgets {
        look(Subject::Budget(budget.name.clone()), &budget.limits);
    }
    let is_named = |name: &str| named.contains(name) || charged.contains(name);
    let mut warnings = Vec::new();
    if !limits_anybody(set) {
        warnings.push("nobody is limited: no rule that limits is in force".to_owned());
    }
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
    if let Some(who) = first_of(&shared)
        && set.cluster.is_none()
    {
        warnings.push(format!(
            "{who} has `scope: cluster`, but no cluster is configured (`limiter run --cluster \
             FILE`): it is a limit of this node alone"
        ));
    }
    for budget in set.budgets.iter().filter(|budget| !is_named(&budget.name)) {
        warnings.push(format!(
            "the budget {} is not in force: no rule names it; add one, or remove the budget",
            budget.name
        ));
    }
    warnings
}

/// Like [`limiter_rules::RuleSet::limits_anybody`], of the rules in force.
fn limits_anybody(set: &EffectiveSet) -> bool {
    set.rules.iter().any(|effective| effective.rule.terms != Terms::Unlimited)
        || set.martians == Some(Martians::Drop)
}

/// Rules for VLANs, on interfaces where the program sees no tag; asked anew for each rule set.
pub(super) fn of_tags(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    let by_tag = |path: &&Path| path.0.iter().any(|part| part.field() == field::VLAN);
    let paths = set.rules.iter().map(|effective| &effective.rule.path);
    let rules: Vec<_> = paths.filter(by_tag).cloned().map(Subject::Rule).collect();
    let Some(who) = first_of(&rules) else {
        return Vec::new();
    };
    let interfaces = datapath.attachments().iter().map(|attachment| &attachment.interface);
    interfaces
        .filter_map(|interface| match datapath.strips_tags(interface) {
            Ok(false) => None,
            Ok(true) => Some(format!(
                "{interface} takes VLAN tags off before they are seen, so {who} may match nothing \
                 there: {}",
                keep_tags(interface)
            )),
            Err(error) => Some(format!(
                "{who} may match nothing on {interface}, if that takes VLAN tags off, which \
                 cannot be told ({error}): see rx-vlan-offload in ethtool -k {interface}"
            )),
        })
        .collect()
}

fn first_of(subjects: &[Subject]) -> Option<String> {
    let (first, others) = subjects.split_first()?;
    Some(match others.len() {
        0 => format!("the {first}"),
        more => format!("the {first} (and {more} more)"),
    })
}
