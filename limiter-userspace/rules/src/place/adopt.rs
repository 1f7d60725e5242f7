//! Reading the tables back from the maps.

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::bucket::Slot;
use limiter_common::wire::{Action, ActionKind, Record, Shape, Table, TableKey, TrieValue};

use super::Installed;
use super::installed::InstalledTables;
use crate::compile::RuleId;

/// Tables of the generation in force, as the maps hold them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldTables {
    /// The tables in the order of their index, each with its shapes: as many as the header says.
    pub tables: Vec<(Table, Vec<Shape>)>,
    /// The trie: key, significant bits of it, value.
    pub trie: Vec<(TableKey, u32, TrieValue)>,
    /// The word of [`limiter_common::wire::OwnBudget::Replies`].
    pub replies: u64,
    /// The word of [`limiter_common::wire::OwnBudget::Bans`].
    pub bans: u64,
    /// Interfaces that packets are redirected to: index into the map, interface index.
    pub interfaces: Vec<(u32, u32)>,
}

impl Installed {
    /// Adds the tables that the maps hold to the source table of [`Installed::from_maps`].
    #[must_use]
    pub fn with_tables(
        mut self,
        held: &HeldTables,
        record: impl Fn(u32) -> Option<Record>,
        action: impl Fn(u16) -> Option<Action>,
    ) -> Self {
        let mut tables = InstalledTables::default();
        for (key, length, value) in &held.trie {
            // A hole is for what the source table has.
            if value.slot() != Slot::NONE.index()
                && let Some(id) = RuleId::from_entry(&held.tables, key, *length, *value)
            {
                tables.rules.insert(id, value.slot());
            }
        }
        for (table, _) in &held.tables {
            let id = RuleId::of_fixed(table);
            tables.ids.insert(id.form, table.id);
            tables.compact.extend((table.compact != 0).then_some(*table));
            if table.fixed != Slot::NONE.index() && !id.form.has_keys() {
                tables.rules.insert(id, table.fixed);
            }
        }
        let words = [held.replies, held.bans];
        let mut slots: Vec<u32> = words
            .into_iter()
            .filter_map(|word| u32::try_from(word.checked_sub(1)?).ok())
            .chain(tables.rules.values().copied())
            .collect();
        let mut indices: BTreeSet<u16> =
            self.rules.values().map(|rule| rule.limit.action).collect();
        // Actions name the records of classes, and those have actions.
        loop {
            for slot in slots.drain(..) {
                if let Some(record) = record(slot) {
                    indices.extend([record.action, record.soft_action]);
                    tables.records.insert(slot, record);
                }
            }
            for index in std::mem::take(&mut indices) {
                if index != 0
                    && !tables.actions.contains_key(&index)
                    && let Some(action) = action(index)
                {
                    tables.actions.insert(index, action);
                    if action.kind() == ActionKind::Class
                        && !tables.records.contains_key(&action.target)
                    {
                        slots.push(action.target);
                    }
                }
            }
            if slots.is_empty() {
                break;
            }
        }
        let used: BTreeSet<u32> = tables
            .actions
            .values()
            .filter(|action| action.kind() == ActionKind::Interface)
            .map(|action| action.target)
            .collect();
        let known: BTreeMap<u32, u32> = held.interfaces.iter().copied().collect();
        tables.interfaces = known.into_iter().filter(|(index, _)| used.contains(index)).collect();
        let newest = tables.records.iter().max_by_key(|(_, record)| record.since);
        if let Some((slot, record)) = newest
            && self.rules.values().all(|rule| rule.limit.since <= record.since)
        {
            self.next_slot = slot + 1;
        }
        self.tables = tables;
        self
    }
}
