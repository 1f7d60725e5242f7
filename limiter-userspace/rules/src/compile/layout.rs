//! Tables, shapes and trie entries of a rule set.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;

use limiter_common::bucket::Slot;
use limiter_common::wire::{
    MAX_SHAPES, MAX_TABLES, Range, Shape, Table, TableKey, TrieValue, field,
};

use super::rule_error::RuleError;
use super::rule_id::{Pattern, RuleId, TableForm};
use crate::model::{Part, Path, Subject};

#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) tables: Vec<LayoutTable>,
    by_form: BTreeMap<TableForm, usize>,
    /// True if a rule or a hole is looked up by the key of another one, or by no key.
    hidden: bool,
}

#[derive(Debug)]
pub(crate) struct LayoutTable {
    pub(crate) form: TableForm,
    /// The keys as the first rule has them.
    order: Vec<u32>,
    first: Path,
    /// The shapes, with their index in order of appearance.
    shapes: BTreeMap<TableKey, u32>,
    /// The most specific rule of those with the same key in the trie, and its rank; no rule if it
    /// is in the source table.
    entries: BTreeMap<Pattern, (u32, Option<RuleId>)>,
    /// The rule of a table without keys.
    pub(crate) fixed: Option<RuleId>,
    /// Values that count as one: at most [`limiter_common::wire::MAX_RANGES`].
    ranges: Vec<Range>,
}

impl Layout {
    /// Adds a rule, `id` being that of `path`.
    pub(super) fn add(&mut self, id: RuleId, path: &Path) -> Result<(), RuleError> {
        let order = path.parts.iter().map(Part::field);
        let next = self.tables.len();
        let index = *self.by_form.entry(id.form).or_insert(next);
        if index == next {
            if u32::try_from(next).is_ok_and(|next| next >= MAX_TABLES) {
                self.by_form.remove(&id.form);
                return Err(RuleError::TooManyTables);
            }
            self.tables.push(LayoutTable {
                form: id.form,
                order: order.collect(),
                first: path.clone(),
                shapes: BTreeMap::new(),
                entries: BTreeMap::new(),
                fixed: None,
                ranges: Vec::new(),
            });
        } else if let Some(table) = self.tables.get(index)
            && !order.eq(table.order.iter().copied())
        {
            return Err(RuleError::KeyOrder(Subject::Rule(table.first.clone())));
        }
        if let Some(table) = self.tables.get_mut(index) {
            self.hidden |= table.add(id, Some(id))?;
        }
        Ok(())
    }

    /// Says which values of a table count as one.
    pub(super) fn set_ranges(&mut self, form: TableForm, ranges: Vec<Range>) {
        let index = self.by_form.get(&form).copied();
        if let Some(table) = index.and_then(|index| self.tables.get_mut(index)) {
            table.ranges = ranges;
        }
    }

    /// True if a packet may not find all rules: [`Layout::live`] has those that it can.
    pub(super) const fn has_hidden(&self) -> bool {
        self.hidden
    }

    /// Excludes from a table what is inside one of its prefixes: packets with these keys have no
    /// rule there. The table has the prefix around it, so both the table and the shape exist.
    pub(super) fn add_hole(&mut self, id: RuleId) {
        let index = self.by_form.get(&id.form).copied();
        if let Some(table) = index.and_then(|index| self.tables.get_mut(index)) {
            self.hidden |= table.add(id, None).unwrap_or_default();
        }
    }

    /// Rules that a packet can find. Others have the same packets as a more specific rule.
    pub(super) fn live(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.tables
            .iter()
            .flat_map(|table| table.entries.values().filter_map(|(_, id)| *id).chain(table.fixed))
    }

    /// The trie, once the slots are known.
    pub(crate) fn trie(
        &self,
        slot: impl Fn(&RuleId) -> Option<u32>,
    ) -> Vec<(TableKey, u32, TrieValue)> {
        let mut trie = Vec::new();
        for (index, table) in (0u32..).zip(&self.tables) {
            for (pattern, (rank, id)) in &table.entries {
                let slot = id.as_ref().map_or(Some(Slot::NONE.index()), &slot);
                if let (Some(shape), Some(slot)) = (table.shapes.get(&pattern.mask), slot) {
                    let key = TableKey { table: index * MAX_SHAPES + shape, ..pattern.key };
                    trie.push((key, pattern.length, TrieValue::new(*rank, slot)));
                }
            }
        }
        trie
    }
}

impl LayoutTable {
    /// Adds `rule` where `id` is looked up. Returns whether it has no place there, or another one
    /// does.
    fn add(&mut self, id: RuleId, rule: Option<RuleId>) -> Result<bool, RuleError> {
        if !self.form.has_keys() {
            return Ok(mem::replace(&mut self.fixed, rule).is_some());
        }
        let rank = id.rank(&self.order);
        let patterns = id.patterns();
        let mut hidden = patterns.is_empty();
        for pattern in patterns {
            let next = u32::try_from(self.shapes.len()).unwrap_or(u32::MAX);
            if next >= MAX_SHAPES && !self.shapes.contains_key(&pattern.mask) {
                return Err(RuleError::TooManyShapes);
            }
            self.shapes.entry(pattern.mask).or_insert(next);
            match self.entries.entry(pattern) {
                Entry::Vacant(entry) => {
                    entry.insert((rank, rule));
                }
                Entry::Occupied(mut entry) => {
                    hidden = true;
                    if entry.get().0 < rank {
                        entry.insert((rank, rule));
                    }
                }
            }
        }
        Ok(hidden)
    }

    /// The table in the maps, without its rules.
    pub(crate) fn table(&self, id: u32) -> Table {
        let mut table = self.form.table(id);
        for (place, range) in table.ranges.iter_mut().zip(&self.ranges) {
            *place = *range;
        }
        [table.agreed, table.agreed_values] = self.agreed();
        table
    }

    /// The bits of a key's first three words that all rules and holes agree on, and their values.
    /// Values of a range are not known before the key has its class.
    fn agreed(&self) -> [[u64; 3]; 2] {
        let mut patterns = self.entries.keys().map(|Pattern { mask, key, .. }| (mask, key));
        let Some((mask, first)) = patterns.next() else { return [[0; 3]; 2] };
        let first = first.words();
        let facts = (0..u32::BITS).map(|bit| 1 << bit).filter(|fact| self.form.fields & fact != 0);
        let ranged = facts.filter(|fact| self.ranges.iter().any(|range| range.is_of(*fact)));
        // Nor is the version of a packet inside a tunnel among the words that are compared.
        let inner = self.form.fields & field::INNER;
        let ranged = TableKey::mask(ranged.fold(inner, |facts, fact| facts | fact));
        let mut agreed = mask.words();
        for (mask, key) in patterns {
            let words = mask.words().into_iter().zip(key.words()).zip(first);
            for (agreed, ((mask, key), first)) in agreed.iter_mut().zip(words) {
                *agreed &= mask & !(key ^ first);
            }
        }
        for (agreed, ranged) in agreed.iter_mut().zip(ranged) {
            *agreed &= !ranged;
        }
        let mut values = first;
        for (value, agreed) in values.iter_mut().zip(agreed) {
            *value &= agreed;
        }
        [agreed, values]
    }

    /// The rules by what they look at, with their ranks; `None` if the rule is in the source table.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Pattern, &(u32, Option<RuleId>))> {
        self.entries.iter()
    }

    /// True if some values count as one.
    pub(super) const fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    pub(crate) fn shapes(&self) -> Vec<Shape> {
        let mut shapes: Vec<_> = self.shapes.iter().map(|(mask, index)| (*index, *mask)).collect();
        shapes.sort_unstable_by_key(|(index, _)| *index);
        shapes.into_iter().map(|(_, mask)| Shape { mask }).collect()
    }
}
