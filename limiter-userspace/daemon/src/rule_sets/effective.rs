//! The rules in force, composed from files or read back from the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use limiter_api::limits::Origin;
use limiter_common::wire::field;
use limiter_rules::compile::{BANS, REPLIES};
use limiter_rules::model::{Limits, Martians, Over, Part};
use limiter_rules::place::budget_tag;
use limiter_rules::read_back::{Known, ReadBudget, ReadRule, ReadSet};
use limiter_rules::warnings::Warnings;
use limiter_rules::{Budget, RateLimit, Rule, RuleSet, Selector, Terms};
use limiter_sharing::SharedSet;

#[derive(Clone, Debug)]
pub(crate) struct Effective {
    pub(crate) rule: Arc<Rule>,
    pub(crate) origin: Origin,
    /// End of a temporary edit, in seconds since 1970.
    pub(crate) end: Option<u64>,
    /// `None` for a rule from the daemon's own files.
    pub(crate) from_maps: Option<FromMaps>,
}

/// Facts about a rule that was read back from the maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromMaps {
    /// Index of the rule's counters.
    pub(crate) number: u32,
    /// How exactly the rule's text describes the rule in force.
    pub(crate) known: Known,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct EffectiveSet {
    /// Rules by source alone in the order of their prefixes, then rules on other keys in the order
    /// of the rule file.
    pub(crate) rules: Vec<Effective>,
    /// Sources of the rules by source alone, which come first: sorted, for the look-up.
    sources: Vec<Selector>,
    /// Budgets that rules may be charged to.
    pub(crate) budgets: Vec<Budget>,
    pub(crate) replies: Option<RateLimit>,
    pub(crate) bans: Option<RateLimit>,
    /// Action for packets with a source that no host can have.
    pub(crate) martians: Option<Martians>,
    /// Number of nodes that share limits; `None` without a cluster.
    pub(crate) cluster: Option<u64>,
    /// Limits shared by nodes, with their leases, once the set is in force.
    pub(crate) shared: SharedSet,
    /// Warnings about rules that are not in force, with the reason.
    pub(crate) warnings: Vec<String>,
    /// Warnings that follow from the rules alone; `warnings` has them in short.
    pub(crate) judged: Warnings,
    /// Budgets read back from the maps, by their substitute names: the tag of the true name, and
    /// how exactly the text describes the budget in force. `None` for rules from the daemon's own
    /// files.
    read_back: Option<BTreeMap<String, (u64, Known)>>,
}

impl AsRef<Rule> for Effective {
    fn as_ref(&self) -> &Rule {
        &self.rule
    }
}

impl Effective {
    /// How exactly the rule's text describes the rule in force.
    pub(crate) fn known(&self) -> Known {
        self.from_maps.map_or(Known::Exactly, |from| from.known)
    }
}

impl EffectiveSet {
    /// Returns true if the appearance of one of these interfaces changes how a rule is put in
    /// force, or a warning about it.
    pub(crate) fn depends_on(&self, interfaces: &BTreeSet<String>) -> bool {
        let of_limits = |limits: &Limits| matches!(&limits.over, Over::Interface(name) if interfaces.contains(name));
        let of_part = |part: &Part| match part {
            Part::Interface(Some(name)) => interfaces.contains(name),
            part => part.field() == field::VLAN,
        };
        self.budgets.iter().any(|budget| of_limits(&budget.limits))
            || self.rules.iter().any(|Effective { rule, .. }| {
                rule.path.parts.iter().any(of_part)
                    || matches!(&rule.terms, Terms::Limits(limits) if of_limits(limits))
            })
    }

    /// Composes rules by source alone and rules on other keys; budgets and bounds come from `file`,
    /// and `cluster` is the number of nodes that share limits.
    pub(crate) fn new(
        file: &RuleSet,
        mut by_source: Vec<(Selector, Effective)>,
        mut others: Vec<Effective>,
        cluster: Option<u64>,
    ) -> Self {
        by_source.sort_by_key(|(selector, _)| *selector);
        let (sources, mut rules): (_, Vec<Effective>) = by_source.into_iter().unzip();
        rules.append(&mut others);
        Self {
            rules,
            sources,
            budgets: file.budgets.clone(),
            replies: file.replies,
            bans: file.bans,
            martians: file.martians,
            cluster,
            ..Self::default()
        }
    }

    /// Returns the rules that the maps hold. Sources in `management` are never limited.
    pub(crate) fn read_back(read: ReadSet, management: &BTreeSet<Selector>) -> Self {
        let ReadSet { sources, others, budgets, replies, bans, martians } = read;
        let effective = |origin, read: ReadRule| {
            let ReadRule { rule, number, known } = read;
            Effective { rule, origin, end: None, from_maps: Some(FromMaps { number, known }) }
        };
        let rate = |bound: Option<(RateLimit, _)>| bound.map(|(rate, _)| rate);
        let mut set = Self {
            replies: rate(replies),
            bans: rate(bans),
            martians: Some(martians),
            ..Self::default()
        };
        for (selector, rule) in sources {
            let managed = management.contains(&selector) && rule.rule.terms == Terms::Unlimited;
            let origin = if managed { Origin::Management } else { Origin::Unknown };
            set.sources.push(selector);
            set.rules.push(effective(origin, rule));
        }
        set.rules.extend(others.into_iter().map(|rule| effective(Origin::Unknown, rule)));
        let mut tags = BTreeMap::new();
        for (name, bound) in [(REPLIES, replies), (BANS, bans)] {
            tags.extend(bound.map(|(_, known)| (name.to_owned(), (budget_tag(name), known))));
        }
        for ReadBudget { budget, tag, known } in budgets {
            tags.insert(budget.name.clone(), (tag, known));
            set.budgets.push(budget);
        }
        set.read_back = Some(tags);
        set
    }

    pub(crate) fn tag(&self, name: &str) -> u64 {
        let read = self.read_back.as_ref().and_then(|tags| tags.get(name));
        read.map_or_else(|| budget_tag(name), |(tag, _)| *tag)
    }

    pub(crate) const fn budget_origin(&self) -> Origin {
        if self.read_back.is_some() { Origin::Unknown } else { Origin::File }
    }

    /// How exactly the text of a budget describes the budget in force.
    pub(crate) fn known_budget(&self, name: &str) -> Known {
        let read = self.read_back.as_ref().and_then(|tags| tags.get(name));
        read.map_or(Known::Exactly, |(_, known)| *known)
    }

    /// The rule set in the form that the planner needs.
    pub(crate) fn rule_set(&self) -> RuleSet {
        RuleSet {
            rules: self.rules.iter().map(|effective| Arc::clone(&effective.rule)).collect(),
            budgets: self.budgets.clone(),
            replies: self.replies,
            bans: self.bans,
            martians: self.martians,
            // Entries of the lists are not rules; the lists keep them.
            lists: BTreeMap::new(),
        }
    }

    /// The rule by source alone that applies to a source: the one with the longest prefix. Uses
    /// look-ups, because many sources are resolved at once.
    pub(crate) fn resolve(&self, source: &Selector) -> Option<&Effective> {
        std::iter::once(*source).chain(source.wider()).find_map(|at| self.by_source(&at))
    }

    /// The rule for exactly these sources, if there is one.
    pub(crate) fn by_source(&self, selector: &Selector) -> Option<&Effective> {
        self.rules.get(self.sources.binary_search(selector).ok()?)
    }

    /// The rules on other keys than the source alone.
    pub(crate) fn on_other_keys(&self) -> impl Iterator<Item = &Effective> {
        self.rules.iter().skip(self.sources.len())
    }
}
