//! Rules in force: the rule file's, the command line's over them, and the management prefixes over
//! everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use limiter_rules::compile::{BANS, REPLIES};
use limiter_rules::file::{FilePlace, Problem};
use limiter_rules::model::Martians;
use limiter_rules::place::budget_tag;
use limiter_rules::read_back::{Known, ReadBudget, ReadRule, ReadSet};
use limiter_rules::{
    Budget, Path, PlanError, RateLimit, Rule, RuleFileError, RuleFiles, RuleSet, Selector, Subject,
    Terms,
};
use limiter_sharing::SharedSet;

use crate::api::limits::Origin;

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
    /// None for a rule of the daemon's own.
    pub(super) from_maps: Option<FromMaps>,
}

/// Facts about a rule that was read back from the maps.
#[derive(Clone, Copy, Debug)]
pub(super) struct FromMaps {
    /// Index of the rule's counters.
    pub(super) number: u32,
    /// How well the rule's words say what is in force.
    pub(super) known: Known,
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
    /// Budgets that were read back from the maps, by the names that stand for theirs: the tag of
    /// the true name, and how well the words say what is in force. None for the daemon's own rules.
    read_back: Option<BTreeMap<String, (u64, Known)>>,
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
        sources.sort_by_key(|(selector, _)| *selector);
        (set.sources, set.rules) = sources.into_iter().unzip();
        set.rules.append(&mut others);
        set.warnings.extend(super::warnings::of(&set));
        set
    }
}

impl Effective {
    /// How well the words of the rule say what is in force.
    pub(super) fn known(&self) -> Known {
        self.from_maps.map_or(Known::Exactly, |from| from.known)
    }
}

impl EffectiveSet {
    /// The rules that maps hold. Sources in `management` are never limited.
    pub(super) fn read_back(read: ReadSet, management: &BTreeSet<Selector>) -> Self {
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

    /// The tag that a budget has in the maps.
    pub(super) fn tag(&self, name: &str) -> u64 {
        let read = self.read_back.as_ref().and_then(|tags| tags.get(name));
        read.map_or_else(|| budget_tag(name), |(tag, _)| *tag)
    }

    /// Origin of the budgets.
    pub(super) const fn budget_origin(&self) -> Origin {
        if self.read_back.is_some() { Origin::Unknown } else { Origin::File }
    }

    /// How well the words of a budget say what is in force.
    pub(super) fn known_budget(&self, name: &str) -> Known {
        let read = self.read_back.as_ref().and_then(|tags| tags.get(name));
        read.map_or(Known::Exactly, |(_, known)| *known)
    }

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
