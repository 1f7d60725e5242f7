//! Rules in force: the rule file's, the command line's over them, and the management prefixes over
//! everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::SharedSet;
use crate::daemon::api::limits::Origin;
use crate::rules::file::{FilePlace, Problem};
use crate::rules::model::Martians;
use crate::rules::{
    Budget, Path, PlanError, RateLimit, Rule, RuleFileError, RuleFiles, RuleSet, Selector, Subject,
    Terms,
};

/// Layers of rules, by where they come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// The rule files, or what `limiter apply` put in their place.
    pub(super) file: RuleFiles,
    /// True if `limiter apply` put `file` there.
    pub(super) applied: bool,
    /// `limiter set`.
    pub(super) edits: BTreeMap<Path, Arc<Rule>>,
    /// Ends of edits that are for a time, in seconds since 1970.
    pub(super) ends: BTreeMap<Path, u64>,
    /// Prefixes that are never limited, with the reason.
    pub(super) management: BTreeMap<Selector, &'static str>,
    /// Number of nodes that share limits, this one among them; none without a cluster.
    pub(super) cluster: Option<u64>,
}

/// A rule in force.
#[derive(Clone, Debug)]
pub(super) struct Effective {
    /// The rule.
    pub(super) rule: Arc<Rule>,
    /// Layer of the rule.
    pub(super) origin: Origin,
    /// The end of an edit that is for a time, in seconds since 1970.
    pub(super) end: Option<u64>,
}

/// All rules in force.
#[derive(Clone, Debug, Default)]
pub(super) struct EffectiveSet {
    /// Rules by source alone in the order of their prefixes, then rules on other keys in the order
    /// of the rule file.
    pub(super) rules: Vec<Effective>,
    /// Sources of the rules by source alone, which come first: in order, for the look-up.
    sources: Vec<Selector>,
    /// Budgets that rules may be charged to.
    pub(super) budgets: Vec<Budget>,
    /// Bound of the replies.
    pub(super) replies: Option<RateLimit>,
    /// Bound of new bans.
    pub(super) bans: Option<RateLimit>,
    /// Action for packets whose source no host can have.
    pub(super) martians: Option<Martians>,
    /// Number of nodes that share limits, as in [`Layers::cluster`].
    pub(super) cluster: Option<u64>,
    /// Limits that nodes share, with their leases, once the set is in force.
    pub(super) shared: SharedSet,
    /// Warnings: rules that are not in force, and why.
    pub(super) warnings: Vec<String>,
}

impl Layers {
    /// These layers with other rule files.
    pub(super) fn with_file(&self, file: RuleFiles, applied: bool) -> Self {
        let (edits, ends) = (self.edits.clone(), self.ends.clone());
        let (management, cluster) = (self.management.clone(), self.cluster);
        Self { file, applied, edits, ends, management, cluster }
    }

    /// Edits whose time is over.
    pub(super) fn over(&self, now: u64) -> impl Iterator<Item = &Path> {
        self.ends.iter().filter(move |(_, end)| **end <= now).map(|(path, _)| path)
    }

    /// The rules of `limiter set` alone.
    pub(super) fn edits(&self) -> RuleSet {
        RuleSet { rules: self.edits.values().map(Arc::clone).collect(), ..RuleSet::default() }
    }

    /// The error with its place, if the rule files are at fault.
    pub(super) fn refused(&self, error: &PlanError) -> Option<RuleFileError> {
        let subject = error.subject()?;
        let edited = matches!(subject, Subject::Rule(at) if self.edits.contains_key(at));
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

    /// The management prefix that all sources of a rule are in.
    fn managed_rule(&self, rule: &Rule) -> Option<Selector> {
        let prefix = || rule.path.source().and_then(|(_, net)| net).map(Selector::Prefix);
        self.managed(&rule.path.selector().or_else(prefix)?)
    }

    /// Rules of the files that are kept out because they are inside a management prefix, with that.
    pub(super) fn kept_out(&self) -> Vec<(String, Selector)> {
        let limiting = self.file.rules.rules.iter().filter(|rule| rule.terms != Terms::Unlimited);
        let kept_out =
            limiting.filter_map(|rule| Some((rule.path.to_string(), self.managed_rule(rule)?)));
        kept_out.collect()
    }

    /// Puts the layers together.
    pub(super) fn effective(&self) -> EffectiveSet {
        let RuleSet { rules, budgets, replies, bans, martians } = &self.file.rules;
        let mut set = EffectiveSet {
            budgets: budgets.clone(),
            replies: *replies,
            bans: *bans,
            martians: *martians,
            cluster: self.cluster,
            ..EffectiveSet::default()
        };
        let file = rules.iter().map(|rule| (rule, Origin::File));
        let edits = self.edits.values().map(|rule| (rule, Origin::Cli));
        let (mut sources, mut others) = (Vec::with_capacity(rules.len()), Vec::new());
        for (rule, origin) in file.chain(edits) {
            match self.managed_rule(rule) {
                // A longer prefix would win inside the program, and packets pass before any table.
                Some(prefix) if rule.terms != Terms::Unlimited => set.warnings.push(format!(
                    "the rule for {} ({}) is not in force: it is inside the management prefix \
                     {prefix}",
                    rule.path,
                    origin.name()
                )),
                Some(_) => {}
                // Later layers replace earlier ones.
                None if origin == Origin::File && self.edits.contains_key(&rule.path) => {}
                None => {
                    let end = self.ends.get(&rule.path).filter(|_| origin == Origin::Cli).copied();
                    let effective = Effective { rule: Arc::clone(rule), origin, end };
                    match rule.path.selector() {
                        Some(selector) => sources.push((selector, effective)),
                        None => others.push(effective),
                    }
                }
            }
        }
        let management = self.management.iter().map(|(selector, reason)| {
            let path = Path::of_source(selector);
            let rule = Rule { name: Some((*reason).into()), ..Rule::new(path, Terms::Unlimited) };
            (*selector, Effective { rule: Arc::new(rule), origin: Origin::Management, end: None })
        });
        sources.extend(management);
        sources.sort_by_key(|(selector, _)| *selector);
        (set.sources, set.rules) = sources.into_iter().unzip();
        set.rules.append(&mut others);
        set.warnings.extend(super::warnings::of(&set));
        set
    }
}

impl EffectiveSet {
    /// The rule set in the form that the planner takes.
    pub(super) fn rule_set(&self) -> RuleSet {
        RuleSet {
            rules: self.rules.iter().map(|effective| Arc::clone(&effective.rule)).collect(),
            budgets: self.budgets.clone(),
            replies: self.replies,
            bans: self.bans,
            martians: self.martians,
        }
    }

    /// The rule by source alone that a source falls under: the longest prefix. By look-ups, because
    /// many sources are asked for at once.
    pub(super) fn resolve(&self, source: &Selector) -> Option<&Effective> {
        std::iter::once(*source).chain(source.wider()).find_map(|at| self.by_source(&at))
    }

    /// The rule on exactly these sources, if there is one.
    pub(super) fn by_source(&self, selector: &Selector) -> Option<&Effective> {
        self.rules.get(self.sources.binary_search(selector).ok()?)
    }

    /// The rules on other keys than the source alone.
    pub(super) fn on_other_keys(&self) -> impl Iterator<Item = &Effective> {
        self.rules.iter().skip(self.sources.len())
    }
}
