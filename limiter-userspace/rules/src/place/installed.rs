//! Contents of the maps: the rules by source, and the tables beside them.

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::bucket_key::BucketKey;
use limiter_common::compact::{compact_bucket_key, compact_key};
use limiter_common::wire::{Action, Limit, Record, Table, TableKey};

use crate::compile::{RuleId, TableForm};
use crate::model::Selector;

/// A rule as the maps hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstalledRule {
    /// Index into the limits.
    pub slot: u32,
    /// The limit there, with the rule number.
    pub limit: Limit,
}

/// The rule set that the maps hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Rules of the source table, by the sources that they are for.
    pub rules: BTreeMap<Selector, InstalledRule>,
    /// Slots that the generation before used: packets under way may still read them.
    pub retired_slots: BTreeSet<u32>,
    /// Slot at which the search for a free one goes on. Slots are handed out in a circle, so that
    /// the limit that an idle bucket was charged under stays readable as long as possible.
    pub next_slot: u32,
    /// The keyed tables.
    pub tables: InstalledTables,
}

/// The tables that the maps hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledTables {
    /// [`limiter_common::wire::Table::id`] of each.
    pub ids: BTreeMap<TableForm, u32>,
    /// Tables whose keys of IPv4 packets are compact, in the order in which they are asked.
    pub compact: Vec<Table>,
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
    /// Actions; one with the same content may be used again.
    pub actions: BTreeMap<u16, Action>,
    /// Interfaces, likewise.
    pub interfaces: BTreeMap<u32, u32>,
}

impl InstalledTables {
    /// The record of a rule; of its budget, if it is charged to one.
    pub fn record(&self, rule: &RuleId) -> Option<&Record> {
        self.rules.get(rule).and_then(|slot| self.records.get(slot))
    }

    /// The compact key of packets with a key; `None` if theirs is not compact.
    pub fn compact_bucket_key(&self, key: &TableKey) -> Option<BucketKey> {
        self.compact.iter().find_map(|table| compact_bucket_key(table, key))
    }

    /// The key of packets with a compact key; `None` if no table has it.
    pub fn compact_key(&self, bucket_key: &BucketKey) -> Option<TableKey> {
        self.compact.iter().find_map(|table| compact_key(table, bucket_key))
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
