//! A whole rule set in the program's arithmetic, before anything of it has a place in the maps:
//! which rules the source table holds and which the keyed tables, and what cannot be held at all.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use limiter_common::wire::{self, ActionKind, Count, Evidence, Full, Limit, MARK_ECN, Record};
use limiter_sharing::SharedTerms;

use super::delay::delayed;
use super::environment::Environment;
use super::layout::Layout;
use super::ranges::Ranges;
use super::record::failures;
use super::rule_error::{CompileError, CompileErrors, RuleError};
use super::rule_id::RuleId;
use super::shared::share;
use super::{Compiled, compile, limit, ticks};
use crate::model::{
    Budget, Direction, Limits, Mark, Martians, Meter, Over, Path, Period, Quota, RateLimit, Rule,
    RuleSet, Selector, Subject, Terms, Unit,
};

/// The budget of replies.
pub const REPLIES: &str = "limiter:replies";
/// The budget of new bans.
pub const BANS: &str = "limiter:bans";
/// The budgets of replies and bans, as reports show them and by name.
pub const OWN_BUDGETS: [(&str, &str); 2] = [("(replies)", REPLIES), ("(bans)", BANS)];

/// New bans that there may be unless the rule set says otherwise.
pub const DEFAULT_BANS: RateLimit =
    Quota::new(Count::Packets, 10, Period::one(Unit::Second)).with_burst(10);

/// A rule set, compiled.
#[derive(Debug)]
pub struct CompiledSet<'a> {
    /// Rules of the source table, in the order of the rule set.
    pub(crate) sources: Vec<CompiledSource<'a>>,
    /// Sources inside one of those whose own rule is in a keyed table.
    pub(crate) elsewhere: Vec<Selector>,
    /// Rules of keyed tables that a packet can find, in the order of the rule set.
    pub(crate) keyed: Vec<CompiledKeyed<'a>>,
    /// Budgets that rules in force name, in the order in which they find their places: those with a
    /// class last.
    pub(crate) budgets: Vec<CompiledBudget<'a>>,
    pub(crate) layout: Layout,
    /// Treatment of packets whose source no host can have.
    pub(crate) martians: Option<Martians>,
    /// Number of rules and budgets, in force or not.
    pub(crate) count: usize,
}

/// A rule of the source table.
#[derive(Debug)]
pub(crate) struct CompiledSource<'a> {
    pub(crate) selector: Selector,
    pub(crate) path: &'a Path,
    /// Without rule number, generation and action.
    pub(crate) limit: Limit,
    pub(crate) over: CompiledOver<'a>,
}

/// A rule of a keyed table.
#[derive(Debug)]
pub(crate) struct CompiledKeyed<'a> {
    pub(crate) id: RuleId,
    pub(crate) path: &'a Path,
    pub(crate) terms: CompiledTerms<'a>,
}

#[derive(Debug)]
pub(crate) struct CompiledBudget<'a> {
    pub(crate) name: &'a str,
    pub(crate) subject: Subject,
    pub(crate) limits: CompiledLimits<'a>,
}

/// Terms of a rule of a keyed table.
#[derive(Debug)]
pub(crate) enum CompiledTerms<'a> {
    Unlimited,
    Budget(&'a str),
    Limits(Box<CompiledLimits<'a>>),
}

/// Limits, and what happens over them.
#[derive(Debug)]
pub(crate) struct CompiledLimits<'a> {
    /// Without rule number, generation, budget and actions.
    pub(crate) record: Record,
    pub(crate) over: CompiledOver<'a>,
    /// Action over the soft limits, if there are any.
    pub(crate) soft: Option<wire::Action>,
    /// Numbers of the limits by place, if nodes share them.
    pub(crate) shared: Vec<SharedTerms>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CompiledOver<'a> {
    Drop,
    /// An action that names nothing with a place of its own.
    Action(wire::Action),
    /// The budget of this name is charged.
    Class(&'a str),
    /// The interface of this index.
    Interface(u32),
}

/// Compiles a rule set for a machine.
///
/// # Errors
///
/// Everything that cannot be held, whatever is in force now.
pub fn compile_set<'a>(
    set: &'a RuleSet,
    environment: &Environment<'_>,
) -> Result<CompiledSet<'a>, CompileErrors> {
    let mut compiler = Compiler {
        set,
        environment,
        by_name: set.budgets.iter().map(|budget| (budget.name.as_str(), budget)).collect(),
        named: BTreeSet::new(),
        charged: BTreeSet::new(),
        evident: BTreeSet::new(),
        bans: false,
        errors: Vec::new(),
        compiled: CompiledSet {
            sources: Vec::new(),
            elsewhere: Vec::new(),
            keyed: Vec::new(),
            budgets: Vec::new(),
            layout: Layout::default(),
            martians: set.martians,
            count: set.rules.len() + set.budgets.len(),
        },
    };
    let (mut sources, mut others) = (Vec::new(), Vec::new());
    for rule in &set.rules {
        match rule.path.selector() {
            Some(selector) => sources.push(BySource { selector, rule }),
            None => others.push(&**rule),
        }
    }
    compiler.sources(&sources);
    compiler.others(&others);
    compiler.budgets();
    let Compiler { compiled, errors, .. } = compiler;
    let mut errors = errors.into_iter();
    match errors.next() {
        None => Ok(compiled),
        Some(first) => Err(CompileErrors { first, others: errors.collect() }),
    }
}

/// A rule by source alone.
#[derive(Clone, Copy)]
struct BySource<'a> {
    selector: Selector,
    rule: &'a Rule,
}

/// A rule set that is being compiled.
struct Compiler<'a, 'm> {
    set: &'a RuleSet,
    environment: &'m Environment<'m>,
    by_name: BTreeMap<&'a str, &'a Budget>,
    /// Budgets that rules in force name.
    named: BTreeSet<&'a str>,
    /// Budgets that packets of rules are charged to, before any class.
    charged: BTreeSet<&'a str>,
    /// Budgets over which a packet can be evidence for a ban.
    evident: BTreeSet<&'a str>,
    bans: bool,
    errors: Vec<CompileError>,
    compiled: CompiledSet<'a>,
}

impl<'a> Compiler<'a, '_> {
    /// Rules by source alone: the source table holds those of one plain token bucket, a keyed table
    /// the others. The longest prefix wins over both, so each has a hole where a rule of the other
    /// one is inside.
    fn sources(&mut self, rules: &[BySource<'a>]) {
        let (plain, keyed): (Vec<BySource<'_>>, Vec<BySource<'_>>) =
            rules.iter().partition(|by| is_plain(&by.rule.terms));
        let in_keyed: HashSet<Selector> = keyed.iter().map(|by| by.selector).collect();
        let mut in_source_table = HashSet::new();
        if !keyed.is_empty() {
            in_source_table.extend(plain.iter().map(|by| by.selector));
        }
        for BySource { selector, rule } in keyed {
            let id = RuleId::of_source(&selector);
            if is_inside(&selector, &in_source_table) {
                self.compiled.elsewhere.push(selector);
            }
            if self.lay_out(id, &rule.path) {
                self.keyed_rule(id, rule);
            }
        }
        self.compiled.sources.reserve(plain.len());
        for BySource { selector, rule } in plain {
            if is_inside(&selector, &in_keyed) {
                self.compiled.layout.add_hole(RuleId::of_source(&selector));
            }
            self.source(selector, rule);
        }
        // In this order, as they mostly are, each stands there once.
        if !rules.is_sorted_by(|one, next| one.selector < next.selector) {
            let mut seen = HashSet::with_capacity(rules.len());
            for BySource { selector, rule } in rules {
                if !seen.insert(selector) {
                    self.refuse(&Subject::Rule(rule.path.clone()), RuleError::Duplicate);
                }
            }
        }
    }

    fn source(&mut self, selector: Selector, rule: &'a Rule) {
        let subject = Subject::Rule(rule.path.clone());
        let over = rule.terms.limits().map_or(&Over::Drop, |limits| &limits.over);
        self.class(over, &subject);
        if let Some(limits) = rule.terms.limits() {
            self.at_tc(&rule.path, limits, None, &subject);
        }
        let over = self.over(over, &subject);
        match limit(&rule.terms, self.environment.max_frame) {
            Ok(limit) => {
                let path = &rule.path;
                self.compiled.sources.push(CompiledSource { selector, path, limit, over });
            }
            Err(error) => self.refuse(&subject, RuleError::limit(None, error)),
        }
    }

    fn others(&mut self, others: &[&'a Rule]) {
        let mut rules: Vec<(RuleId, &'a Rule)> = Vec::with_capacity(others.len());
        for rule in others {
            match RuleId::new(&rule.path, self.environment.interface_index) {
                Ok(id) => rules.push((id, *rule)),
                Err(name) => {
                    self.refuse(&Subject::Rule(rule.path.clone()), RuleError::NoInterface(name));
                }
            }
        }
        let Ranges { by_form, errors } = Ranges::of(&rules);
        self.errors.extend(errors);
        rules.retain(|(id, rule)| self.lay_out(*id, &rule.path));
        for (form, ranges) in by_form {
            self.compiled.layout.set_ranges(form, ranges);
        }
        // Usually no rule is in the way of another one.
        if self.compiled.layout.has_hidden() {
            let live: HashSet<RuleId> = self.compiled.layout.live().collect();
            self.compiled.keyed.retain(|rule| live.contains(&rule.id));
            let mut seen = HashSet::with_capacity(rules.len());
            rules.retain(|(id, rule)| {
                if !seen.insert(*id) {
                    self.refuse(&Subject::Rule(rule.path.clone()), RuleError::Duplicate);
                }
                live.contains(id)
            });
        }
        self.compiled.keyed.reserve(rules.len());
        for (id, rule) in rules {
            self.keyed_rule(id, rule);
        }
    }

    /// Adds a rule to the tables; returns whether there is a place for its keys.
    fn lay_out(&mut self, id: RuleId, path: &Path) -> bool {
        match self.compiled.layout.add(id, path) {
            Ok(()) => true,
            Err(error) => {
                self.refuse(&Subject::Rule(path.clone()), error);
                false
            }
        }
    }

    fn keyed_rule(&mut self, id: RuleId, rule: &'a Rule) {
        let Rule { path, terms, .. } = rule;
        let subject = Subject::Rule(path.clone());
        let terms = match terms {
            Terms::Unlimited => Some(CompiledTerms::Unlimited),
            Terms::Budget(name) => self.budget(name, &subject).map(|budget| {
                self.class(&budget.limits.over, &Subject::Budget(budget.name.clone()));
                self.charged.insert(&budget.name);
                self.at_tc(path, &budget.limits, Some(name), &subject);
                if wants_evidence(&budget.limits)
                    && budget.limits.can_have_evidence(path.traffic().meeting())
                {
                    self.evident.insert(&budget.name);
                }
                CompiledTerms::Budget(&budget.name)
            }),
            Terms::Limits(limits) => {
                self.class(&limits.over, &subject);
                self.at_tc(path, limits, None, &subject);
                if wants_evidence(limits) && !limits.can_have_evidence(path.traffic().meeting()) {
                    self.refuse(&subject, RuleError::no_evidence(limits));
                }
                self.limits(limits, &subject).map(|limits| CompiledTerms::Limits(Box::new(limits)))
            }
        };
        if let Some(terms) = terms {
            self.compiled.keyed.push(CompiledKeyed { id, path, terms });
        }
    }

    /// Refuses what a packet at tc cannot have, in the rule or in the budget that it is charged to.
    fn at_tc(&mut self, path: &Path, limits: &Limits, budget: Option<&str>, subject: &Subject) {
        let has_out = path.direction.has_out();
        let class = match &limits.over {
            Over::Class(name) => self.by_name.get(name.as_str()).copied(),
            _ => None,
        };
        let delays = |limits: &Limits| matches!(limits.over, Over::Delay(_));
        let own = delays(limits).then(|| budget.map(str::to_owned));
        let by_class =
            class.filter(|class| delays(&class.limits)).map(|class| Some(class.name.clone()));
        if let Some(budget) = own.or(by_class)
            && path.direction != Direction::Out
            && self.environment.in_at_tc == Some(false)
        {
            self.refuse(subject, RuleError::DelayIn { direction: path.direction, budget });
            return;
        }
        if !has_out && self.environment.in_at_tc != Some(true) {
            return;
        }
        let is_possible = match limits.over {
            Over::Drop | Over::Mark(_) | Over::Class(_) | Over::Delay(_) => true,
            Over::Interface(_) | Over::Cpu(_) => false,
            Over::Reject | Over::Ban(_) => !has_out,
        };
        if !is_possible {
            let (action, direction) = (limits.over.name(), path.direction);
            let budget = budget.map(str::to_owned);
            self.refuse(subject, RuleError::ActionAtTc { action, direction, budget });
        }
        let class = class.into_iter().flat_map(|class| class.limits.limits.iter());
        let mut all = limits.limits.iter().chain(class);
        if all.any(|limit| matches!(limit.meter, Meter::SlidingLog(_))) {
            let direction = path.direction;
            self.refuse(subject, RuleError::LogAtTc { direction });
        }
    }

    fn limits(&mut self, limits: &'a Limits, subject: &Subject) -> Option<CompiledLimits<'a>> {
        let over = self.over(&limits.over, subject);
        let Limits { full, on_loss, shadow, .. } = *limits;
        let Ok(Compiled { record, soft, mark }) =
            compile(&limits.limits, shadow, self.environment.max_frame)
        else {
            let several = limits.limits.len() > 1;
            for (index, error) in failures(&limits.limits, self.environment.max_frame) {
                self.refuse(subject, RuleError::limit(several.then_some(index + 1), error));
            }
            return None;
        };
        // A rule in shadow mode counts, and leaves every packet as it is.
        let mark = mark.filter(|_| !shadow);
        let pass = wire::Action { kind: ActionKind::Pass as u8, ..wire::Action::default() };
        // A key of a block gets no bucket, whatever room there is.
        let full = if limits.limits.is_empty() { Full::Drop } else { full };
        let mut record = Record { full: full as u8, on_loss: on_loss as u8, ..record };
        let mut soft = soft.then(|| mark.map_or(pass, marking));
        if let Over::Delay(delay) = &limits.over {
            match delayed(*delay, limits, &mut record) {
                Ok(action) => soft = action,
                Err(errors) => errors.into_iter().for_each(|error| self.refuse(subject, error)),
            }
        }
        let shared = self.share(limits, subject, &mut record);
        Some(CompiledLimits { record, over, soft, shared })
    }

    /// Compiles what happens over a limit, and keeps what is wrong with it.
    fn over(&mut self, over: &'a Over, subject: &Subject) -> CompiledOver<'a> {
        let of = |kind: ActionKind| wire::Action { kind: kind as u8, ..wire::Action::default() };
        match over {
            // What waits is not over the limit: `delayed` has it.
            Over::Drop | Over::Delay(_) => CompiledOver::Drop,
            Over::Reject => CompiledOver::Action(of(ActionKind::Reject)),
            Over::Mark(mark) => CompiledOver::Action(marking(*mark)),
            Over::Class(name) => CompiledOver::Class(name),
            Over::Interface(name) => {
                let index = (self.environment.interface_index)(name);
                if index.is_none() {
                    self.refuse(subject, RuleError::NoInterface(name.clone()));
                }
                index.map_or(CompiledOver::Drop, CompiledOver::Interface)
            }
            Over::Cpu(cpu) => {
                let (cpu, cpus) = (*cpu, self.environment.cpus);
                if cpu >= cpus {
                    self.refuse(subject, RuleError::NoCpu { cpu, cpus });
                }
                CompiledOver::Action(wire::Action { target: cpu, ..of(ActionKind::Cpu) })
            }
            Over::Ban(ban) => CompiledOver::Action(wire::Action {
                evidence: ban.evidence as u8,
                target: ban.strikes,
                ban_first: ticks(ban.first),
                ban_longest: ticks(ban.longest),
                ban_memory: ticks(ban.memory),
                ..of(ActionKind::Ban)
            }),
        }
    }

    /// Notes that a budget is needed.
    fn budget(&mut self, name: &str, subject: &Subject) -> Option<&'a Budget> {
        let Some(budget) = self.by_name.get(name).copied() else {
            self.refuse(subject, RuleError::NoBudget(name.to_owned()));
            return None;
        };
        self.named.insert(&budget.name);
        Some(budget)
    }

    /// Notes what an action needs: the budget of a class, and that there are bans.
    fn class(&mut self, over: &'a Over, subject: &Subject) {
        self.bans |= matches!(over, Over::Ban(_));
        let Over::Class(name) = over else {
            return;
        };
        if let Some(class) = self.budget(name, subject) {
            if matches!(class.limits.over, Over::Class(_)) {
                self.refuse(subject, RuleError::ClassOfClass(name.clone()));
            } else {
                // Nobody follows it, but it is in the record.
                self.bans |= matches!(class.limits.over, Over::Ban(_));
            }
        }
    }

    /// Budgets that rules in force name, and limiter's own.
    fn budgets(&mut self) {
        let set = self.set;
        let mut wanted: Vec<&Budget> =
            set.budgets.iter().filter(|at| self.named.contains(at.name.as_str())).collect();
        // Stable: the file's order otherwise.
        wanted.sort_by_key(|budget| matches!(budget.limits.over, Over::Class(_)));
        for budget in wanted {
            let subject = Subject::Budget(budget.name.clone());
            let charged = self.charged.contains(budget.name.as_str());
            if charged
                && wants_evidence(&budget.limits)
                && !self.evident.contains(budget.name.as_str())
            {
                self.refuse(&subject, RuleError::no_evidence(&budget.limits));
            }
            if let Some(limits) = self.limits(&budget.limits, &subject) {
                let name = &budget.name;
                self.compiled.budgets.push(CompiledBudget { name, subject, limits });
            }
        }
        let bans = set.bans.or(self.bans.then_some(DEFAULT_BANS));
        let own = [(REPLIES, set.replies, Subject::Replies), (BANS, bans, Subject::Bans)];
        for (name, rate, subject) in own {
            let Some(rate) = rate else {
                continue;
            };
            match compile(&rate.into(), false, self.environment.max_frame) {
                Ok(Compiled { record, .. }) => {
                    let (over, shared) = (CompiledOver::Drop, Vec::new());
                    let limits = CompiledLimits { record, over, soft: None, shared };
                    self.compiled.budgets.push(CompiledBudget { name, subject, limits });
                }
                Err((_, error)) => self.refuse(&subject, RuleError::limit(None, error)),
            }
        }
    }

    /// Reduces limits to this node's part, if nodes share them.
    fn share(
        &mut self,
        limits: &Limits,
        subject: &Subject,
        record: &mut Record,
    ) -> Vec<SharedTerms> {
        let Limits { limits, sharing: Some(sharing), .. } = limits else {
            return Vec::new();
        };
        if let Subject::Rule(path) = subject
            && path.has_interface()
        {
            self.refuse(subject, RuleError::SharedInterface);
            return Vec::new();
        }
        // A rule without keys is a budget of its own.
        let always = !matches!(subject, Subject::Rule(path) if !path.parts.is_empty());
        match share(limits, record, sharing, always, self.environment) {
            Ok(terms) => terms,
            Err(failures) => {
                let several = limits.len() > 1;
                for (index, error) in failures {
                    self.refuse(subject, RuleError::limit(several.then_some(index + 1), error));
                }
                Vec::new()
            }
        }
    }

    fn refuse(&mut self, subject: &Subject, error: RuleError) {
        self.errors.push(CompileError { subject: subject.clone(), error });
    }
}

/// True if the source table has room for all of a rule: it passes everything, or has one hard token
/// bucket on packets or bytes that does not depend on the daemon and lets nothing wait.
const fn is_plain(terms: &Terms) -> bool {
    match terms {
        Terms::Unlimited => true,
        Terms::Budget(_) => false,
        Terms::Limits(limits) => limits.plain().is_some() && !matches!(limits.over, Over::Delay(_)),
    }
}

/// True if a packet over these limits brings a ban only if it is evidence.
const fn wants_evidence(limits: &Limits) -> bool {
    matches!(&limits.over, Over::Ban(ban) if matches!(ban.evidence, Evidence::Established))
}

/// True if any of these prefixes is around a longer one.
fn is_inside(selector: &Selector, prefixes: &HashSet<Selector>) -> bool {
    !prefixes.is_empty() && selector.wider().any(|around| prefixes.contains(&around))
}

fn marking(mark: Mark) -> wire::Action {
    let dscp = match mark {
        Mark::Dscp(dscp) => dscp,
        Mark::Ecn => MARK_ECN,
    };
    wire::Action { kind: ActionKind::Mark as u8, dscp, ..wire::Action::default() }
}
