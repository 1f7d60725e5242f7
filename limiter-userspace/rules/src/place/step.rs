//! The step from the rule set in force to another one.

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::bucket::Slot;
use limiter_common::compact::compact_number;
use limiter_common::wire::{ActionKind, Kind, OnLoss, Record, RuleSetHeader, Table, field};

use super::actions::Actions;
use super::free::Places;
use super::installed::{Installed, InstalledTables, Retired};
use super::records::{Full, Records, everything};
use super::{PlaceError, TablesPlan};
use crate::compile::{
    self, BANS, CompiledKeyed, CompiledLimits, CompiledOver, CompiledSet, CompiledTerms, REPLIES,
    TableForm,
};
use crate::model::{Martians, Path, Subject, TriePrefix};

/// One step in the making.
pub(super) struct Step<'a> {
    old: &'a Installed,
    set: &'a CompiledSet<'a>,
    generation: u64,
    records: Records<'a>,
    actions: Actions,
    /// The slots of budgets by name.
    budgets: BTreeMap<&'a str, u32>,
    rules: Vec<(compile::RuleId, u32)>,
    /// The tables that had rules.
    held: BTreeSet<TableForm>,
    /// Error if there is no room.
    too_many: PlaceError,
}

impl<'a> Step<'a> {
    /// Finds places for the budgets.
    pub(super) fn begin(
        old: &'a Installed,
        set: &'a CompiledSet<'a>,
        generation: u64,
        too_many: PlaceError,
        places: &mut Places,
    ) -> Result<Self, PlaceError> {
        let mut step = Self {
            old,
            set,
            generation,
            records: Records::new(&old.tables, low_bits(generation)),
            actions: Actions::new(&old.tables),
            budgets: BTreeMap::new(),
            rules: Vec::with_capacity(set.keyed.len()),
            held: old.tables.rules.keys().map(|id| id.form).collect(),
            too_many,
        };
        for budget in &set.budgets {
            let record = step.record(&budget.limits, &budget.subject)?;
            let slot = step.place_budget(budget.name, record, &budget.subject, places)?;
            step.budgets.insert(budget.name, slot);
        }
        Ok(step)
    }

    fn place_budget(
        &mut self,
        name: &str,
        record: Record,
        subject: &Subject,
        places: &mut Places,
    ) -> Result<u32, PlaceError> {
        self.records.budget(name, record, places).map_err(|full| self.full(full, subject))
    }

    fn record(
        &mut self,
        limits: &CompiledLimits<'_>,
        subject: &Subject,
    ) -> Result<Record, PlaceError> {
        let action = self.over(limits.over, subject)?;
        let soft_action = self.actions.soft(limits.soft, subject)?;
        Ok(Record { action, soft_action, ..limits.record })
    }

    /// The index of what happens over a limit.
    pub(super) fn over(
        &mut self,
        over: CompiledOver<'_>,
        subject: &Subject,
    ) -> Result<u16, PlaceError> {
        let budgets = &self.budgets;
        self.actions.over(over, subject, |name| budgets.get(name).copied())
    }

    fn full(&self, full: Full, subject: &Subject) -> PlaceError {
        match full {
            Full::Rules => self.too_many.clone(),
            Full::Budgets => PlaceError::TooManyBudgets(subject.clone()),
        }
    }

    /// Finds places for the rules of keyed tables.
    pub(super) fn keyed(&mut self, places: &mut Places) -> Result<(), PlaceError> {
        let set = self.set;
        for rule in &set.keyed {
            let slot = self.keyed_slot(rule, places)?;
            self.rules.push((rule.id, slot));
        }
        Ok(())
    }

    fn keyed_slot(
        &mut self,
        rule: &CompiledKeyed<'_>,
        places: &mut Places,
    ) -> Result<u32, PlaceError> {
        let CompiledKeyed { id, path, terms } = rule;
        let subject = Subject::Rule(Path::clone(path));
        let record = match terms {
            // Compiling has found it.
            CompiledTerms::Budget(name) => {
                return Ok(self.budgets.get(name).copied().unwrap_or(Slot::NONE.index()));
            }
            CompiledTerms::Unlimited => Record { kind: Kind::Unlimited as u8, ..Record::default() },
            CompiledTerms::Limits(limits) => self.record(limits, &subject)?,
        };
        if !id.form.has_keys() {
            return self.place_budget(everything(id.form.direction()), record, &subject, places);
        }
        // A rule that was in the source table goes on counting.
        let was = id.selector().and_then(|selector| self.old.rules.get(&selector));
        let before = self.old.tables.rules.get(id).copied();
        self.records
            .rule(
                before,
                was.map(|rule| rule.limit.rule),
                self.held.contains(&id.form),
                record,
                places,
            )
            .map_err(|full| self.full(full, &subject))
    }

    /// The whole plan of the tables, the tables afterwards, and the rules of compact keys in the
    /// trie of sources.
    pub(super) fn finish(self) -> (TablesPlan, InstalledTables, Vec<(TriePrefix, u32)>) {
        let old = &self.old.tables;
        let mut installed = InstalledTables {
            // Many at once are a map much faster than one after the other.
            rules: self.rules.into_iter().collect(),
            records: self.records.in_force,
            actions: self.actions.in_force,
            interfaces: self.actions.interfaces,
            ..InstalledTables::default()
        };
        let layout = &self.set.layout;
        let (mut sources, mut outgoing) = (Vec::new(), Vec::new());
        let mut tables = Vec::with_capacity(layout.tables.len());
        for (index, table) in (0u32..).zip(&layout.tables) {
            let id = match old.ids.get(&table.form) {
                Some(id) => *id,
                None => new_id(self.generation, index, old),
            };
            installed.ids.insert(table.form, id);
            let slot = table.fixed.and_then(|rule| installed.rules.get(&rule).copied());
            let fixed = slot.unwrap_or(Slot::NONE.index());
            let shapes = table.shapes();
            let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
            let mut of = Table { fixed, shapes: count, ..table.table(id) };
            let compact = table.compact(&mut of, |rule| {
                let slot = *installed.rules.get(rule)?;
                installed.records.get(&slot)?.is_compact().then_some(slot)
            });
            if table.form.direction().has_out() {
                let has_rule = compact.iter().any(|(_, slot)| *slot != Slot::NONE.index());
                let by_address = has_rule && table.form.is_by_address();
                outgoing.push(if by_address { of.compact } else { 0 });
            }
            sources.extend(compact);
            installed.compact.extend((of.compact != 0).then_some(of));
            tables.push((of, shapes));
        }
        installed.retired = retired(old, &installed);
        let word = |name| self.budgets.get(name).map_or(0, |slot| u64::from(*slot) + 1);
        let flows = installed.records.values().any(compile::counts_flows);
        let count = u32::try_from(tables.len()).unwrap_or(u32::MAX);
        let bans = |action: &limiter_common::wire::Action| action.kind() == ActionKind::Ban;
        let mut header = RuleSetHeader::new(count, flows, !installed.actions.is_empty());
        if layout.tables.iter().any(|table| table.form.fields & field::INNER != 0) {
            header = header.with_inner();
        }
        if !outgoing.is_empty() {
            header = header.with_out();
        }
        // Every packet adds to what is known of flows.
        if let [compact] = outgoing[..]
            && !flows
        {
            header = header.with_only_out(compact);
        }
        if installed.records.values().any(|record| record.on_loss != OnLoss::Keep as u8) {
            header = header.with_loss();
        }
        if self.set.sources.is_empty() {
            header = header.without_sources();
        }
        if self.set.martians == Some(Martians::Drop) {
            header = header.with_martians_dropped();
        }
        let plan = TablesPlan {
            header,
            tables,
            trie: layout.trie(|id| installed.rules.get(id).copied()),
            records: self.records.new,
            actions: self.actions.new,
            begun_budgets: self.records.begun_budgets,
            interfaces: installed.interfaces.iter().map(|(a, b)| (*a, *b)).collect(),
            cpus: self.actions.cpus,
            replies: word(REPLIES),
            bans: word(BANS),
            keeps_bans: installed.actions.values().any(bans),
        };
        (plan, installed, sources)
    }
}

/// An id that no table had before: no other step has this generation.
fn new_id(generation: u64, index: u32, old: &InstalledTables) -> u32 {
    let mut id = low_bits(generation.wrapping_mul(8)).wrapping_add(index);
    // Only after 2^13 generations: the number of a compact table has 16 bits of the id.
    let is_taken = |id| {
        compact_number(id) == 0
            || old.ids.values().any(|used| compact_number(*used) == compact_number(id))
    };
    while is_taken(id) {
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

#[expect(clippy::cast_possible_truncation, reason = "only the low bits are compared")]
pub(super) const fn low_bits(generation: u64) -> u32 {
    generation as u32
}
