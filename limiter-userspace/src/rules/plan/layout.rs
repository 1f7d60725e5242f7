//! Which tables, shapes and trie entries a rule set has.

use std::collections::BTreeMap;

use limiter_common::wire::{MAX_SHAPES, MAX_TABLES, Shape, TableKey, TrieValue};

use super::PlanError;
use super::rule_id::{Pattern, RuleId, TableForm, field_of};
use crate::rules::model::{Path, Subject, SubjectRef};

/// The tables of a rule set.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) tables: Vec<LayoutTable>,
    by_form: BTreeMap<TableForm, usize>,
}

#[derive(Debug)]
pub(super) struct LayoutTable {
    pub(super) form: TableForm,
    /// The keys as the first rule has them.
    order: Vec<u32>,
    first: Subject,
    /// With their index in order of appearance.
    shapes: BTreeMap<TableKey, u32>,
    /// The most specific rule of those with the same key in the trie.
    entries: BTreeMap<Pattern, (u32, RuleId)>,
    /// The rule of a table without keys.
    pub(super) fixed: Option<RuleId>,
}

impl Layout {
    /// Adds a rule.
    pub(super) fn add(
        &mut self,
        id: RuleId,
        path: &Path,
        subject: SubjectRef<'_>,
    ) -> Result<(), PlanError> {
        let order: Vec<u32> = path.0.iter().map(field_of).collect();
        self.add_ordered(id, order, subject)
    }

    /// Adds a rule whose keys stand in `order`.
    pub(super) fn add_ordered(
        &mut self,
        id: RuleId,
        order: Vec<u32>,
        subject: SubjectRef<'_>,
    ) -> Result<(), PlanError> {
        let next = self.tables.len();
        let index = *self.by_form.entry(id.form).or_insert(next);
        if index == next {
            if u32::try_from(next).is_ok_and(|next| next >= MAX_TABLES) {
                return Err(PlanError::TooManyTables(subject.subject()));
            }
            self.tables.push(LayoutTable {
                form: id.form,
                order,
                first: subject.subject(),
                shapes: BTreeMap::new(),
                entries: BTreeMap::new(),
                fixed: None,
            });
        } else if let Some(table) = self.tables.get(index)
            && table.order != order
        {
            let first = table.first.clone();
            return Err(PlanError::KeyOrder { subject: subject.subject(), first });
        }
        match self.tables.get_mut(index) {
            Some(table) => table.add(id, subject),
            None => Ok(()),
        }
    }

    /// Rules that a packet can find. Others have the same packets as a more specific rule.
    pub(super) fn live(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.tables
            .iter()
            .flat_map(|table| table.entries.values().map(|(_, id)| *id).chain(table.fixed))
    }

    /// The trie, once the slots are known.
    pub(super) fn trie(
        &self,
        slot: impl Fn(&RuleId) -> Option<u32>,
    ) -> Vec<(TableKey, u32, TrieValue)> {
        let mut trie = Vec::new();
        for (index, table) in (0u32..).zip(&self.tables) {
            for (pattern, (rank, id)) in &table.entries {
                if let (Some(shape), Some(slot)) = (table.shapes.get(&pattern.mask), slot(id)) {
                    let key = TableKey { table: index * MAX_SHAPES + shape, ..pattern.key };
                    trie.push((key, pattern.length, TrieValue::new(*rank, slot)));
                }
            }
        }
        trie
    }
}

impl LayoutTable {
    fn add(&mut self, id: RuleId, subject: SubjectRef<'_>) -> Result<(), PlanError> {
        if !self.form.has_keys() {
            self.fixed = Some(id);
            return Ok(());
        }
        let rank = id.rank(&self.order);
        for pattern in id.patterns() {
            let next = u32::try_from(self.shapes.len()).unwrap_or(u32::MAX);
            self.shapes.entry(pattern.mask).or_insert(next);
            if next >= MAX_SHAPES && self.shapes.len() > next as usize {
                return Err(PlanError::TooManyShapes(subject.subject()));
            }
            let entry = self.entries.entry(pattern).or_insert((rank, id));
            if entry.0 < rank {
                *entry = (rank, id);
            }
        }
        Ok(())
    }

    /// Its shapes by index.
    pub(super) fn shapes(&self) -> Vec<Shape> {
        let mut shapes: Vec<_> = self.shapes.iter().map(|(mask, index)| (*index, *mask)).collect();
        shapes.sort_unstable_by_key(|(index, _)| *index);
        shapes.into_iter().map(|(_, mask)| Shape { mask }).collect()
    }
}
