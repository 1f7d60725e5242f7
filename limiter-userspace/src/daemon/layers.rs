//! Which rules are in force: the rule file's, the command line's over them, and the management
//! prefixes over everything.

use std::collections::BTreeMap;

use crate::control::api::Origin;
use crate::rules::file::{FilePlace, Problem};
use crate::rules::model::Martians;
use crate::rules::{
    Action, Budget, KeyedRule, PlanError, RateLimit, Rule, RuleFileError, RuleFiles, RuleSet,
    Selector, Subject, Terms,
};

/// Where rules come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// The rule files, or what `limiter apply` put in their place.
    pub(super) file: RuleFiles,
    /// Whether it is that.
    pub(super) applied: bool,
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
    /// Those by source alone.
    pub(super) rules: BTreeMap<Selector, Effective>,
    /// Those on other keys. Only the rule file has them.
    pub(super) keyed: Vec<KeyedRule>,
    /// What rules may be charged to.
    pub(super) budgets: Vec<Budget>,
    /// How many replies there may be.
    pub(super) replies: Option<RateLimit>,
    /// How many new bans.
    pub(super) bans: Option<RateLimit>,
    /// What becomes of packets whose source no host can have.
    pub(super) martians: Option<Martians>,
    /// Which rules are not in force, and why.
    pub(super) warnings: Vec<String>,
}

impl Layers {
    /// The same with other rule files.
    pub(super) fn with_file(&self, file: RuleFiles, applied: bool) -> Self {
        let (edits, management) = (self.edits.clone(), self.management.clone());
        Self { file, applied, edits, management }
    }

    /// Why a rule set cannot be put in force, with its place, if the rule files are at fault.
    pub(super) fn refused(&self, error: &PlanError) -> Option<RuleFileError> {
        let subject = error.subject()?;
        let edited = matches!(subject, Subject::Source(at) if self.edits.contains_key(at));
        let FilePlace { file, place } = self.file.places.get(subject).filter(|_| !edited)?;
        Some(RuleFileError {
            file: file.to_string(),
            place: Some(*place),
            problem: Problem::Limit(error.to_string()),
        })
    }

    /// The management prefix that all of a selector's sources are in.
    pub(super) fn managed(&self, selector: &Selector) -> Option<Selector> {
        self.management.keys().find(|prefix| prefix.contains(selector)).copied()
    }

    /// Rules of the files that are kept out because they are inside a management prefix, with that.
    pub(super) fn kept_out(&self) -> Vec<(String, Selector)> {
        let RuleSet { rules, keyed, .. } = &self.file.rules;
        let sources = rules.iter().filter(|rule| rule.action != Action::Unlimited);
        let sources = sources.filter_map(|rule| {
            let prefix = self.managed(&rule.selector)?;
            Some((rule.selector.to_string(), prefix))
        });
        let keyed = keyed.iter().filter(|rule| rule.terms != Terms::Unlimited);
        let keyed = keyed.filter_map(|rule| {
            let source = rule.path.source().and_then(|(_, net)| net).map(Selector::Prefix)?;
            let prefix = self.managed(&source)?;
            Some((rule.path.to_string(), prefix))
        });
        sources.chain(keyed).collect()
    }

    /// Puts the layers together.
    pub(super) fn effective(&self) -> EffectiveSet {
        let RuleSet { rules, keyed, budgets, replies, bans, martians } = &self.file.rules;
        let mut set = EffectiveSet {
            budgets: budgets.clone(),
            replies: *replies,
            bans: *bans,
            martians: *martians,
            ..EffectiveSet::default()
        };
        let file = rules.iter().map(|rule| (rule, Origin::File));
        let edits = self.edits.values().map(|rule| (rule, Origin::Cli));
        // Many at once are a map much faster than one after the other; a file has each selector once.
        let mut in_force = Vec::with_capacity(rules.len());
        let mut edited = Vec::new();
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
                    let effective = Effective { rule: rule.clone(), origin };
                    let layer = if origin == Origin::File { &mut in_force } else { &mut edited };
                    layer.push((rule.selector, effective));
                }
            }
        }
        set.rules = in_force.into_iter().collect();
        // Later layers replace earlier ones.
        set.rules.extend(edited);
        for rule in keyed {
            let source = rule.path.source().and_then(|(_, net)| net).map(Selector::Prefix);
            match source.and_then(|source| self.managed(&source)) {
                // Its packets pass before any table.
                Some(prefix) if rule.terms != Terms::Unlimited => set.warnings.push(format!(
                    "the rule for {} (file) is not in force: it is inside the management prefix {prefix}",
                    rule.path
                )),
                Some(_) => {}
                None => set.keyed.push(rule.clone()),
            }
        }
        set.warnings.extend(super::warnings::of(&set));
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
        RuleSet {
            rules: self.rules.values().map(|effective| effective.rule.clone()).collect(),
            keyed: self.keyed.clone(),
            budgets: self.budgets.clone(),
            replies: self.replies,
            bans: self.bans,
            martians: self.martians,
        }
    }

    /// How many rules there are.
    pub(super) fn len(&self) -> usize {
        self.rules.len() + self.keyed.len()
    }

    /// The rule that a source falls under: the longest prefix. By look-ups, because many sources are asked for at once.
    pub(super) fn resolve(&self, source: &Selector) -> Option<&Effective> {
        std::iter::once(*source).chain(source.wider()).find_map(|at| self.rules.get(&at))
    }
}
