//! Which rules are in force: the rule file's, the command line's over them, and the management
//! prefixes over everything.

use std::collections::BTreeMap;

use crate::control::api::Origin;
use crate::rules::{Action, Rule, RuleFile, RuleSet, Selector};

/// Where rules come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// The rule file.
    pub(super) file: RuleFile,
    /// `limiter set`.
    pub(super) edits: BTreeMap<Selector, Rule>,
    /// Prefixes that are never limited, with the reason.
    pub(super) management: BTreeMap<Selector, &'static str>,
}

/// A rule in force.
#[derive(Clone, Debug)]
pub(super) struct Effective {
    /// The rule.
    pub(super) rule: Rule,
    /// Its layer.
    pub(super) origin: Origin,
}

/// All rules in force.
#[derive(Clone, Debug, Default)]
pub(super) struct EffectiveSet {
    /// By selector.
    pub(super) rules: BTreeMap<Selector, Effective>,
    /// Which rules are not in force, and why.
    pub(super) warnings: Vec<String>,
}

impl Layers {
    /// The management prefix that all of a selector's sources are in.
    pub(super) fn managed(&self, selector: &Selector) -> Option<Selector> {
        self.management.keys().find(|prefix| prefix.contains(selector)).copied()
    }

    /// Puts the layers together.
    pub(super) fn effective(&self) -> EffectiveSet {
        let mut set = EffectiveSet::default();
        let file = self.file.rules.rules.iter().map(|rule| (rule, Origin::File));
        let edits = self.edits.values().map(|rule| (rule, Origin::Cli));
        // Later layers replace earlier ones.
        for (rule, origin) in file.chain(edits) {
            match self.managed(&rule.selector) {
                // A longer prefix would win inside the program, so such a rule must not get there.
                Some(prefix) if rule.action != Action::Unlimited => {
                    let selector = rule.selector;
                    set.warnings.push(format!(
                        "the rule for {selector} ({}) is not in force: it is inside the management prefix {prefix}",
                        origin.name()
                    ));
                }
                Some(_) => {}
                None => {
                    set.rules.insert(rule.selector, Effective { rule: rule.clone(), origin });
                }
            }
        }
        for (selector, reason) in &self.management {
            let rule = Rule {
                name: Some((*reason).to_owned()),
                selector: *selector,
                action: Action::Unlimited,
            };
            set.rules.insert(*selector, Effective { rule, origin: Origin::Management });
        }
        set
    }
}

impl EffectiveSet {
    /// As the planner takes it.
    pub(super) fn rule_set(&self) -> RuleSet {
        RuleSet { rules: self.rules.values().map(|effective| effective.rule.clone()).collect() }
    }

    /// The rule that a source falls under: the longest prefix.
    pub(super) fn resolve(&self, source: &Selector) -> Option<&Effective> {
        self.rules
            .values()
            .filter(|effective| effective.rule.selector.contains(source))
            .max_by_key(|effective| effective.rule.selector.prefix_len())
    }
}
