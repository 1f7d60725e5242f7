//! The step from the tables in force to those of a rule set.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use limiter_common::bucket::Slot;
use limiter_common::wire::OnLoss;
use limiter_common::wire::{ActionKind, Count, Kind, Record, RuleSetHeader, Table, field};

use super::actions::Actions;
use super::companion::{Wide, needs_companion};
use super::environment::Environment;
use super::free::Numbers;
use super::installed::{InstalledTables, Retired};
use super::layout::Layout;
use super::named::Named;
use super::records::{BANS, EVERYTHING, Full, REPLIES, Records};
use super::rule_id::RuleId;
use super::{PlanError, TablesPlan};
use crate::rules::compile;
use crate::rules::model::{
    Action, Budget, KeyedRule, Limits, Martians, Meter, Over, RateLimit, Rule, RuleLimit, RuleSet,
    SubjectRef, Terms, Unit,
};

/// New bans that there may be unless the rule set says otherwise.
pub const DEFAULT_BANS: RateLimit =
    RateLimit { count: Count::Packets, requests_per_unit: 10, unit: Unit::Second, burst: 10 };

/// One step, on its way.
pub(super) struct Step<'a> {
    old: &'a InstalledTables,
    set: &'a RuleSet,
    environment: &'a Environment<'a>,
    generation: u64,
    layout: Layout,
    keyed: Vec<RuleId>,
    live: HashSet<RuleId>,
    records: Records<'a>,
    actions: Actions<'a>,
    /// The slots of budgets by name.
    budgets: BTreeMap<&'a str, u32>,
    rules: BTreeMap<RuleId, u32>,
    /// What the error says if there is no room.
    too_many: PlanError,
}

impl<'a> Step<'a> {
    /// Lays out the tables, and finds room for the budgets that rules name.
    pub(super) fn begin(
        old: &'a InstalledTables,
        set: &'a RuleSet,
        generation: u64,
        capacity: u32,
        environment: &'a Environment<'a>,
        too_many: PlanError,
        numbers: &mut Numbers,
    ) -> Result<Self, PlanError> {
        let mut step = Self {
            old,
            set,
            environment,
            generation,
            layout: Layout::default(),
            keyed: Vec::with_capacity(set.keyed.len()),
            live: HashSet::new(),
            records: Records::new(old, super::low_bits(generation), capacity),
            actions: Actions::new(old, environment),
            budgets: BTreeMap::new(),
            rules: BTreeMap::new(),
            too_many,
        };
        step.lay_out()?;
        step.place_budgets(numbers)?;
        Ok(step)
    }

    fn lay_out(&mut self) -> Result<(), PlanError> {
        let set = self.set;
        let order = vec![field::SOURCE];
        let mut wide = Wide::default();
        for rule in set.rules.iter().filter(|rule| needs_companion(&rule.action)) {
            let id = RuleId::companion(&rule.selector);
            self.layout.add_ordered(id, order.clone(), SubjectRef::Source(rule.selector))?;
            wide.add(&rule.selector);
        }
        for rule in set.rules.iter().filter(|rule| !needs_companion(&rule.action)) {
            if wide.covers(&rule.selector) {
                let id = RuleId::companion(&rule.selector);
                self.layout.add_ordered(id, order.clone(), SubjectRef::Source(rule.selector))?;
            }
        }
        let mut seen = HashSet::with_capacity(set.keyed.len());
        for rule in &set.keyed {
            let subject = SubjectRef::Keyed(&rule.path);
            let id = RuleId::new(&rule.path, self.environment.interface_index)
                .map_err(|name| PlanError::NoInterface { subject: subject.subject(), name })?;
            if !seen.insert(id) {
                return Err(PlanError::Duplicate(subject.subject()));
            }
            self.layout.add(id, &rule.path, subject)?;
            self.keyed.push(id);
        }
        self.live = self.layout.live().collect();
        Ok(())
    }

    /// Budgets that rules in force name, those that are a class first: their slots are part of the
    /// actions of others.
    fn place_budgets(&mut self, numbers: &mut Numbers) -> Result<(), PlanError> {
        let set = self.set;
        let mut named = Named::new(&set.budgets);
        for (subject, terms) in self.terms_in_force() {
            match terms {
                Terms::Unlimited => {}
                Terms::Limits(limits) => named.over(subject, &limits.over)?,
                Terms::Budget(name) => {
                    let budget = named.name(subject, name)?;
                    named.over(SubjectRef::Budget(&budget.name), &budget.limits.over)?;
                }
            }
        }
        let (wanted, bans) = (named.wanted, named.bans);
        let mut budgets: Vec<&Budget> =
            set.budgets.iter().filter(|budget| wanted.contains(budget.name.as_str())).collect();
        // Stable: the file's order otherwise.
        budgets.sort_by_key(|budget| matches!(budget.limits.over, Over::Class(_)));
        for budget in budgets {
            let subject = SubjectRef::Budget(&budget.name);
            let record = self.record(&budget.limits, &budget.limits.limits, subject)?;
            let slot = self.place_budget(&budget.name, record, subject, numbers)?;
            self.budgets.insert(&budget.name, slot);
        }
        let bans = set.bans.or(bans.then_some(DEFAULT_BANS));
        let own = [(REPLIES, set.replies, SubjectRef::Replies), (BANS, bans, SubjectRef::Bans)];
        for (name, rate, subject) in own {
            if let Some(rate) = rate {
                let limits = vec![RuleLimit::hard(Meter::TokenBucket(rate))];
                let limits = Limits::new(limits);
                let record = self.record(&limits, &limits.limits, subject)?;
                let slot = self.place_budget(name, record, subject, numbers)?;
                self.budgets.insert(name, slot);
            }
        }
        Ok(())
    }

    fn place_budget(
        &mut self,
        name: &str,
        record: Record,
        subject: SubjectRef<'_>,
        numbers: &mut Numbers,
    ) -> Result<u32, PlanError> {
        self.records.budget(name, record, numbers).map_err(|full| self.full(full, subject))
    }

    /// What every rule says that a packet can find.
    fn terms_in_force(&self) -> impl Iterator<Item = (SubjectRef<'a>, &'a Terms)> {
        let sources = self.set.rules.iter().filter_map(|rule| match &rule.action {
            Action::Terms(terms) => Some((SubjectRef::Source(rule.selector), &**terms)),
            Action::Limit(_) | Action::Shadow(_) | Action::Unlimited => None,
        });
        let keyed = self
            .set
            .keyed
            .iter()
            .zip(&self.keyed)
            .filter(|(_, id)| self.live.contains(id))
            .map(|(rule, _)| (SubjectRef::Keyed(&rule.path), &rule.terms));
        sources.chain(keyed)
    }

    /// The record of limits, without what is the place's.
    fn record(
        &mut self,
        all: &Limits,
        part: &[RuleLimit],
        subject: SubjectRef<'_>,
    ) -> Result<Record, PlanError> {
        let before = all.limits.len() - part.len();
        let compiled = compile::compile(part, all.shadow, self.environment.max_frame).map_err(
            |(index, source)| PlanError::Limit {
                subject: subject.subject(),
                limit: (all.limits.len() > 1).then_some(before + index + 1),
                source: Box::new(source),
            },
        )?;
        let action = self.over(&all.over, subject)?;
        // A rule in shadow mode counts, and leaves every packet as it is.
        let mark = compiled.mark.filter(|_| !all.shadow);
        let soft_action = if compiled.soft { self.actions.soft(mark, subject)? } else { 0 };
        let (full, on_loss) = (all.full as u8, all.on_loss as u8);
        Ok(Record { action, soft_action, full, on_loss, ..compiled.record })
    }

    fn over(&mut self, over: &Over, subject: SubjectRef<'_>) -> Result<u16, PlanError> {
        let budgets = &self.budgets;
        self.actions.over(over, subject, |name| budgets.get(name).copied())
    }

    fn full(&self, full: Full, subject: SubjectRef<'_>) -> PlanError {
        match full {
            Full::Rules => self.too_many.clone(),
            Full::Budgets => PlanError::TooManyBudgets(subject.subject()),
        }
    }

    /// What a source rule has over its limit in the source table.
    pub(super) fn source_action(&mut self, rule: &Rule) -> Result<u16, PlanError> {
        match &rule.action {
            Action::Terms(terms) => match terms.limits() {
                Some(limits) if limits.in_source_table().is_some() => {
                    self.over(&limits.over, SubjectRef::Source(rule.selector))
                }
                _ => Ok(0),
            },
            Action::Limit(_) | Action::Shadow(_) | Action::Unlimited => Ok(0),
        }
    }

    /// Places the part of a source rule that the source table has no room for.
    pub(super) fn companion(
        &mut self,
        rule: &Rule,
        number: u32,
        numbers: &mut Numbers,
    ) -> Result<(), PlanError> {
        let id = RuleId::companion(&rule.selector);
        if !self.live.contains(&id) {
            return Ok(());
        }
        let subject = SubjectRef::Source(rule.selector);
        let slot = match &rule.action {
            Action::Terms(terms) if needs_companion(&rule.action) => match &**terms {
                Terms::Budget(name) => self.budget_slot(name, subject)?,
                Terms::Limits(limits) => {
                    let skip = usize::from(limits.in_source_table().is_some());
                    let part = limits.limits.get(skip..).unwrap_or_default();
                    let record = Record { companion: 1, ..self.record(limits, part, subject)? };
                    let before = self.old.rules.get(&id).copied();
                    self.records
                        .rule(before, Some(number), record, numbers)
                        .map_err(|full| self.full(full, subject))?
                }
                Terms::Unlimited => return Ok(()),
            },
            _ => self.records.pass().map_err(|full| self.full(full, subject))?,
        };
        self.rules.insert(id, slot);
        Ok(())
    }

    fn budget_slot(&self, name: &str, subject: SubjectRef<'_>) -> Result<u32, PlanError> {
        self.budgets.get(name).copied().ok_or_else(|| PlanError::NoBudget {
            subject: subject.subject(),
            name: name.to_owned(),
        })
    }

    /// Places the rules of the other tables.
    pub(super) fn keyed(&mut self, numbers: &mut Numbers) -> Result<(), PlanError> {
        let set = self.set;
        for (index, rule) in set.keyed.iter().enumerate() {
            let id = self.keyed.get(index).copied().filter(|id| self.live.contains(id));
            if let Some(id) = id {
                let slot = self.keyed_slot(rule, &id, numbers)?;
                self.rules.insert(id, slot);
            }
        }
        Ok(())
    }

    fn keyed_slot(
        &mut self,
        rule: &KeyedRule,
        id: &RuleId,
        numbers: &mut Numbers,
    ) -> Result<u32, PlanError> {
        let subject = SubjectRef::Keyed(&rule.path);
        let record = match &rule.terms {
            Terms::Budget(name) => return self.budget_slot(name, subject),
            Terms::Unlimited => Record { kind: Kind::Unlimited as u8, ..Record::default() },
            Terms::Limits(limits) => self.record(limits, &limits.limits, subject)?,
        };
        if !id.form.has_keys() {
            return self.place_budget(EVERYTHING, record, subject, numbers);
        }
        let before = self.old.rules.get(id).copied();
        self.records.rule(before, None, record, numbers).map_err(|full| self.full(full, subject))
    }

    /// The whole plan of the tables, and the tables afterwards.
    pub(super) fn finish(self) -> (TablesPlan, InstalledTables) {
        let old = self.old;
        let mut installed = InstalledTables {
            rules: self.rules,
            next_slot: self.records.next_slot(),
            records: self.records.in_force,
            actions: self.actions.in_force,
            interfaces: self.actions.interfaces,
            ..InstalledTables::default()
        };
        let mut tables = Vec::with_capacity(self.layout.tables.len());
        for (index, table) in (0u32..).zip(&self.layout.tables) {
            let id = match old.ids.get(&table.form) {
                Some(id) => *id,
                None => new_id(self.generation, index, old),
            };
            installed.ids.insert(table.form, id);
            let slot = table.fixed.and_then(|rule| installed.rules.get(&rule).copied());
            let fixed = slot.unwrap_or(Slot::NONE.index());
            let shapes = table.shapes();
            let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
            tables.push((Table { fixed, shapes: count, ..table.form.table(id) }, shapes));
        }
        installed.retired = retired(old, &installed);
        let word = |name| self.budgets.get(name).map_or(0, |slot| u64::from(*slot) + 1);
        let flows = installed.records.values().any(compile::counts_flows);
        let count = u32::try_from(tables.len()).unwrap_or(u32::MAX);
        let bans = |action: &limiter_common::wire::Action| action.kind() == ActionKind::Ban;
        let mut header = RuleSetHeader::new(count, flows, !installed.actions.is_empty());
        if self.layout.tables.iter().any(|table| table.form.fields & field::INNER != 0) {
            header = header.with_inner();
        }
        if installed.records.values().any(|record| record.on_loss != OnLoss::Keep as u8) {
            header = header.with_loss();
        }
        if self.set.martians == Some(Martians::Drop) {
            header = header.with_martians_dropped();
        }
        let plan = TablesPlan {
            header,
            tables,
            trie: self.layout.trie(|id| installed.rules.get(id).copied()),
            records: self.records.new,
            actions: self.actions.new,
            begun_budgets: self.records.begun_budgets,
            interfaces: installed.interfaces.iter().map(|(a, b)| (*a, *b)).collect(),
            cpus: self.actions.cpus,
            replies: word(REPLIES),
            bans: word(BANS),
            keeps_bans: installed.actions.values().any(bans),
        };
        (plan, installed)
    }
}

/// An id that no table had before: no other step has this generation.
fn new_id(generation: u64, index: u32, old: &InstalledTables) -> u32 {
    let mut id = super::low_bits(generation.wrapping_mul(8)).wrapping_add(index);
    while old.ids.values().any(|used| *used == id) {
        // Only after 2^29 generations.
        id = id.wrapping_add(8);
    }
    id
}

pub(super) fn retired(old: &InstalledTables, new: &InstalledTables) -> Retired {
    let budgets: BTreeSet<u32> =
        new.records.values().filter_map(|record| record.budget.checked_sub(1)).collect();
    let gone = |budget: &u32| !budgets.contains(budget);
    Retired {
        slots: old.records.keys().filter(|slot| !new.records.contains_key(slot)).copied().collect(),
        budgets: old
            .records
            .values()
            .filter_map(|record| record.budget.checked_sub(1))
            .filter(gone)
            .collect(),
        actions: old
            .actions
            .iter()
            .filter(|(index, _)| !new.actions.contains_key(index))
            .map(|(index, action)| (*index, *action))
            .collect(),
        interfaces: old
            .interfaces
            .iter()
            .filter(|(index, _)| !new.interfaces.contains_key(index))
            .map(|(index, ifindex)| (*index, *ifindex))
            .collect(),
    }
}
