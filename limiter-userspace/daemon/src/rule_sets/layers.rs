//! Rules in force: the rule file's, overridden by the command line's, and the management prefixes
//! above all.

use std::collections::BTreeMap;
use std::sync::Arc;

use limiter_api::limits::{Origin, shown_origin};
use limiter_rules::file::{FilePlace, Problem};
use limiter_rules::{
    Path, PlanError, Rule, RuleFileError, RuleFiles, RuleSet, Selector, Subject, Terms,
};

use crate::cluster::store_guard::STORE;
use crate::rule_sets::effective::{Effective, EffectiveSet};
use crate::rule_sets::rule_files::{GIVEN, Texts};

/// Layers of rules by origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    /// The rule files, or the rules that `limiter apply` put in their place.
    pub(crate) file: RuleFiles,
    pub(crate) texts: Texts,
    /// True if `file` comes from `limiter apply`.
    pub(crate) applied: bool,
    /// Rules of `limiter set`.
    pub(crate) edits: BTreeMap<Path, Arc<Rule>>,
    /// Ends of temporary edits, in seconds since 1970.
    pub(crate) ends: BTreeMap<Path, u64>,
    /// Prefixes that are never limited, with the reason.
    pub(crate) management: BTreeMap<Selector, &'static str>,
    /// Number of nodes that share limits, including this one; `None` without a cluster.
    pub(crate) cluster: Option<u64>,
}

impl Layers {
    /// These layers with other rule files.
    pub(crate) fn with_file(&self, (file, texts): (RuleFiles, Texts), applied: bool) -> Self {
        let (edits, ends) = (self.edits.clone(), self.ends.clone());
        let (management, cluster) = (self.management.clone(), self.cluster);
        Self { file, texts, applied, edits, ends, management, cluster }
    }

    /// Edits whose time has passed.
    pub(crate) fn over(&self, now: u64) -> impl Iterator<Item = &Path> {
        self.ends.iter().filter(move |(_, end)| **end <= now).map(|(path, _)| path)
    }

    /// The rules of `limiter set` alone.
    pub(crate) fn edits(&self) -> RuleSet {
        RuleSet { rules: self.edits.values().map(Arc::clone).collect(), ..RuleSet::default() }
    }

    /// The index of an interface in a plan, where `found` is that of the machine. A limit of
    /// `limiter set` stays while its interface is gone, with an index that none has: the kernel's
    /// are below 2^31.
    pub(crate) fn index_of(&self, name: &str, found: Option<u32>) -> Option<u32> {
        const NOBODYS: u32 = 1 << 31;
        let interfaces = || self.edits.keys().filter_map(Path::interface);
        let place = || interfaces().position(|other| other == name);
        found.or_else(|| NOBODYS.checked_add(u32::try_from(place()?).ok()?))
    }

    /// The error with its place, if the rule files caused it.
    pub(crate) fn refused(&self, error: &PlanError) -> Option<RuleFileError> {
        let subject = error.subject()?;
        let edited = matches!(subject, Subject::Rule(at) if self.edits.contains_key(at));
        let FilePlace { file, place } = self.file.places.get(subject).filter(|_| !edited)?;
        Some(RuleFileError {
            file: file.to_string(),
            place: Some(*place),
            problem: Problem::Limit(error.to_string()),
        })
    }

    /// Returns true if there is a prefix that the daemon must not lock out, beside the store.
    fn has_managers(&self) -> bool {
        self.management.values().any(|reason| *reason != STORE)
    }

    /// The warning of a daemon that knows of no prefix that it must not lock out.
    pub(crate) fn nobody_is_safe(&self) -> Option<String> {
        (!self.has_managers()).then(|| {
            "no address is safe from the limits: there is no --management prefix, and no SSH \
             session started the daemon; start it with --management PREFIX, the network from which \
             you log in"
                .to_owned()
        })
    }

    /// The management prefix that contains all sources of a selector.
    pub(crate) fn managed(&self, selector: &Selector) -> Option<Selector> {
        self.management.keys().find(|prefix| prefix.contains(selector)).copied()
    }

    /// The management prefix that contains all sources of a rule.
    fn managed_rule(&self, rule: &Rule) -> Option<Selector> {
        let prefix = || rule.path.source().and_then(|(_, net)| net).map(Selector::Prefix);
        self.managed(&rule.path.selector().or_else(prefix)?)
    }

    /// Rules of the files that are kept out of force because they are inside a management prefix,
    /// each with the prefix.
    pub(crate) fn kept_out(&self) -> Vec<(String, Selector)> {
        let limiting = self.file.rules.rules.iter().filter(|rule| rule.terms != Terms::Unlimited);
        let kept_out =
            limiting.filter_map(|rule| Some((rule.path.to_string(), self.managed_rule(rule)?)));
        kept_out.collect()
    }

    pub(crate) fn effective(&self) -> EffectiveSet {
        let rules = &self.file.rules.rules;
        let mut out_of_force = Vec::new();
        // Of the text of arguments all rules are, or none.
        let is_given = self.file.places.values().next().is_some_and(|at| &*at.file == GIVEN);
        let own = if is_given { Origin::Run } else { Origin::File };
        let file = rules.iter().map(|rule| (rule, own));
        let edits = self.edits.values().map(|rule| (rule, Origin::Cli));
        let (mut sources, mut others) = (Vec::with_capacity(rules.len()), Vec::new());
        for (rule, origin) in file.chain(edits) {
            match self.managed_rule(rule) {
                // A longer prefix would win inside the program, and these packets pass before any
                // table.
                Some(prefix) if rule.terms != Terms::Unlimited => out_of_force.push(format!(
                    "the rule for {} ({}) is not in force: it is inside the management prefix \
                     {prefix}",
                    rule.path,
                    shown_origin(origin.name())
                )),
                Some(_) => {}
                // Later layers replace earlier ones.
                None if origin != Origin::Cli && self.edits.contains_key(&rule.path) => {}
                None => {
                    let end = self.ends.get(&rule.path).filter(|_| origin == Origin::Cli).copied();
                    let rule = Arc::clone(rule);
                    let effective = Effective { rule, origin, end, from_maps: None };
                    match effective.rule.path.selector() {
                        Some(selector) => sources.push((selector, effective)),
                        None => others.push(effective),
                    }
                }
            }
        }
        let management = self.management.iter().map(|(selector, reason)| {
            let path = Path::of_source(selector);
            let rule = Rule { name: Some((*reason).into()), ..Rule::new(path, Terms::Unlimited) };
            let (rule, origin) = (Arc::new(rule), Origin::Management);
            (*selector, Effective { rule, origin, end: None, from_maps: None })
        });
        sources.extend(management);
        let mut set = EffectiveSet::new(&self.file.rules, sources, others, self.cluster);
        set.warnings = out_of_force;
        set.warnings.extend(super::warnings::of_whole(&set));
        set.judged = super::warnings::of_rules(&set, &self.file.rules.lists);
        set.warnings.extend(set.judged.in_short().map(|(_, line)| line));
        set
    }
}
