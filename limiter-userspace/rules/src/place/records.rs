//! Slots of records, rule numbers and indices of budgets: what did not change keeps them.

use std::collections::BTreeMap;

pub use limiter_common::wire::MAX_BUDGETS;
use limiter_common::wire::Record;
use limiter_sharing::fnv::Fnv;

use super::free::{Free, Places};
use super::installed::InstalledTables;
use super::largest::{Before, marked_record};
use super::shared;
use crate::model::Direction;

/// The most interfaces that packets are redirected to, with those being replaced.
pub const MAX_INTERFACES: u32 = 64;

/// The budget of the rule on all packets of a direction together.
pub const fn everything(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "limiter:generic_key",
        Direction::Out => "limiter:generic_key:out",
        Direction::Both => "limiter:generic_key:both",
    }
}

/// A hash of a budget's name: its identity in the maps. FNV-1a, 64 bits.
pub const fn budget_tag(name: &str) -> u64 {
    let hash = Fnv::new().with(name.as_bytes()).finish();
    // Zero is for no budget.
    if hash == 0 { 1 } else { hash }
}

/// Kinds of things that there was no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Rules,
    Budgets,
}

#[derive(Debug)]
pub(super) struct Records<'a> {
    old: &'a InstalledTables,
    budgets: Free,
    generation: u32,
    by_tag: BTreeMap<u64, u32>,
    pub(super) in_force: BTreeMap<u32, Record>,
    pub(super) new: Vec<(u32, Record)>,
    pub(super) begun_budgets: Vec<u32>,
}

impl<'a> Records<'a> {
    pub(super) fn new(old: &'a InstalledTables, generation: u32) -> Self {
        let by_tag = old
            .records
            .iter()
            .filter(|(_, record)| record.budget_tag != 0)
            .map(|(slot, record)| (record.budget_tag, *slot))
            .collect();
        Self {
            old,
            budgets: Free::new(0..MAX_BUDGETS, 0, old.used_budgets()),
            generation,
            by_tag,
            in_force: BTreeMap::new(),
            new: Vec::new(),
            begun_budgets: Vec::new(),
        }
    }

    /// Places the record of a rule with buckets of its own, that was in slot `before`; `number` is
    /// the one that it had elsewhere, and `taken` says that other rules may have held its keys.
    pub(super) fn rule(
        &mut self,
        before: Option<u32>,
        number: Option<u32>,
        taken: bool,
        wanted: Record,
        places: &mut Places,
    ) -> Result<u32, Full> {
        // A rule that was charged to a budget had that one's record.
        let old = before
            .and_then(|slot| self.old.records.get(&slot).map(|record| (slot, *record)))
            .filter(|(_, record)| record.budget_tag == 0);
        let rule = match (old, number) {
            (Some((_, old)), _) => old.rule,
            (None, Some(number)) => number,
            (None, None) => places.begin().ok_or(Full::Rules)?,
        };
        self.place(old, taken, Record { rule, ..wanted }, places)
    }

    pub(super) fn budget(
        &mut self,
        name: &str,
        wanted: Record,
        places: &mut Places,
    ) -> Result<u32, Full> {
        let tag = budget_tag(name);
        let old = self.by_tag.get(&tag);
        let old = old.and_then(|slot| self.old.records.get(slot).map(|record| (*slot, *record)));
        let rule = match old {
            Some((_, old)) => old.rule,
            None => places.begin().ok_or(Full::Rules)?,
        };
        let budget = match old {
            Some((_, old)) if !shared::others(&old, &wanted) => old.budget,
            _ => {
                let index = self.budgets.take().ok_or(Full::Budgets)?;
                self.begun_budgets.push(index);
                index + 1
            }
        };
        self.place(old, false, Record { rule, budget, budget_tag: tag, ..wanted }, places)
    }

    fn place(
        &mut self,
        old: Option<(u32, Record)>,
        taken: bool,
        wanted: Record,
        places: &mut Places,
    ) -> Result<u32, Full> {
        let before = match &old {
            Some((_, old)) => Before::Rule(old),
            None if taken => Before::Others,
            None => Before::Nothing,
        };
        let wanted = marked_record(before, wanted);
        if let Some((slot, old)) = old
            && same(&old, &wanted)
        {
            self.in_force.insert(slot, old);
            return Ok(slot);
        }
        let slot = places.slots.take().ok_or(Full::Rules)?;
        let record = Record { since: self.generation, ..wanted };
        self.new.push((slot, record));
        self.in_force.insert(slot, record);
        Ok(slot)
    }
}

/// True if the program would do the same for both.
fn same(a: &Record, b: &Record) -> bool {
    Record { since: 0, ended: 0, ..*a } == Record { since: 0, ended: 0, ..*b }
}
