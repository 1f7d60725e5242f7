//! Contents of the maps beside the source table.

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::narrow::{narrow_key, narrow_owner};
use limiter_common::owner::Owner;
use limiter_common::wire::{Action, Record, Table, TableKey};

use crate::rules::compile::{RuleId, TableForm};

/// The tables that the maps hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledTables {
    /// [`limiter_common::wire::Table::id`] of each.
    pub ids: BTreeMap<TableForm, u32>,
    /// Tables whose keys of IPv4 packets are narrow, in the order in which they are asked.
    pub narrow: Vec<Table>,
    /// The slot of each rule that a packet can find.
    pub rules: BTreeMap<RuleId, u32>,
    /// The records in force by slot: those of the rules, and of budgets.
    pub records: BTreeMap<u32, Record>,
    /// The actions in force by index.
    pub actions: BTreeMap<u16, Action>,
    /// The indices of interfaces that packets are redirected to.
    pub interfaces: BTreeMap<u32, u32>,
    /// Indices that the generation before used: packets under way may still read them.
    pub retired: Retired,
}

/// Indices that are not handed out in the next step, although nothing in force needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    /// Slots of records.
    pub slots: BTreeSet<u32>,
    /// Indices of budgets.
    pub budgets: BTreeSet<u32>,
    /// Actions; one of the same content may be used again.
    pub actions: BTreeMap<u16, Action>,
    /// Interfaces, likewise.
    pub interfaces: BTreeMap<u32, u32>,
}

impl InstalledTables {
    /// The record of a rule; of its budget, if it is charged to one.
    pub fn record(&self, rule: &RuleId) -> Option<&Record> {
        self.rules.get(rule).and_then(|slot| self.records.get(slot))
    }

    /// The narrow key of packets with a key; none where theirs is not narrow.
    pub fn narrow_owner(&self, key: &TableKey) -> Option<Owner> {
        self.narrow.iter().find_map(|table| narrow_owner(table, key))
    }

    /// The key of packets with a narrow key; none where no table has it.
    pub fn narrow_key(&self, owner: &Owner) -> Option<TableKey> {
        self.narrow.iter().find_map(|table| narrow_key(table, owner))
    }

    /// The record of a budget by its [`super::budget_tag`], with its slot.
    pub fn budget(&self, tag: u64) -> Option<(u32, &Record)> {
        let found = self.records.iter().find(|(_, record)| record.budget_tag == tag);
        found.map(|(slot, record)| (*slot, record)).filter(|_| tag != 0)
    }

    /// The rule numbers in force.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.records.values().map(|record| record.rule)
    }

    /// Budgets that the next step may not hand out.
    pub(super) fn used_budgets(&self) -> impl Iterator<Item = u32> + '_ {
        let in_force = self.records.values().filter_map(|record| record.budget.checked_sub(1));
        in_force.chain(self.retired.budgets.iter().copied())
    }
}
