//! Rules as the maps hold them, back in the words of rule files: the way of [`super::compile`] and
//! [`super::place`] backwards, for anybody who has no daemon to ask.
//!
//! The maps know numbers. Names, labels and origins are in none of them, nor is the order of a
//! rule's keys. Several ways to write a rate give the same numbers: the shortest of them is
//! reported, and compiling that gives these numbers again; where none does, [`Known::About`] says
//! so.

mod path;
mod rate;
mod terms;

use std::collections::BTreeMap;
use std::sync::Arc;

use limiter_common::wire::{Action, Record, RuleSetHeader, Table};

use self::rate::Rates;
use self::terms::Words;
use super::Budget;
use super::compile::{BANS, REPLIES, RuleId};
use super::model::{Direction, Limits, Martians, Path, RateLimit, Rule, Selector, Terms};
use super::place::{Installed, budget_tag, everything};

/// How well the words say what is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// The words give these numbers again.
    #[default]
    Exactly,
    /// No words give these numbers: the rate or the burst is about the one reported.
    About,
    /// These are the numbers of this node, of a limit that nodes share. The whole is not in the
    /// maps.
    Part,
}

/// A rule that was read back, with its number.
#[derive(Clone, Debug)]
pub struct ReadRule {
    /// The rule, without names.
    pub rule: Arc<Rule>,
    /// Index of the counters: of the rule itself, or of the budget that it is charged to.
    pub number: u32,
    /// Quality of its words.
    pub known: Known,
}

/// A budget that was read back.
#[derive(Clone, Debug)]
pub struct ReadBudget {
    /// The budget, with a name that stands for the one that is not known.
    pub budget: Budget,
    /// [`budget_tag`] of the true name.
    pub tag: u64,
    /// Quality of its words.
    pub known: Known,
}

/// A rule set that was read back.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    /// Rules by source alone, in the order of their prefixes.
    pub sources: Vec<(Selector, ReadRule)>,
    /// Rules on other keys, in the order in which their tables are asked.
    pub others: Vec<ReadRule>,
    /// Budgets that rules are charged to.
    pub budgets: Vec<ReadBudget>,
    /// Bound of the replies, and the quality of its words.
    pub replies: Option<(RateLimit, Known)>,
    /// Bound of new bans, and the quality of its words.
    pub bans: Option<(RateLimit, Known)>,
    /// Treatment of packets whose source no host can have.
    pub martians: Martians,
}

/// Facts that are asked beside the rules.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    /// Header of the rule set.
    pub header: RuleSetHeader,
    /// Tables of the rule set, in the order in which they are asked.
    pub tables: &'a [Table],
    /// The name of an interface by its index.
    pub interface_name: &'a dyn Fn(u32) -> Option<String>,
}

impl Beside<'_> {
    /// The name of an interface; what stands for it where that is not known has a space, which no
    /// name has.
    fn interface(&self, index: u32) -> String {
        (self.interface_name)(index).unwrap_or_else(|| format!("(index {index})"))
    }
}

impl std::fmt::Debug for Beside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beside")
            .field("header", &self.header)
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}

/// Reads the rules of a rule set back.
pub fn read_back(installed: &Installed, beside: Beside<'_>) -> ReadSet {
    let tables = &installed.tables;
    let mut words =
        Words { installed, beside, rates: Rates::default(), budgets: budget_names(installed) };
    let mut set = ReadSet { martians: martians(beside.header), ..ReadSet::default() };
    for (selector, rule) in &installed.rules {
        let (terms, known) = words.of_limit(&rule.limit);
        let rule = ReadRule {
            rule: Arc::new(Rule::new(Path::of_source(selector), terms)),
            number: rule.limit.rule,
            known,
        };
        set.sources.push((*selector, rule));
    }
    let place = |id: &RuleId| {
        let number = tables.ids.get(&id.form);
        beside.tables.iter().position(|table| Some(&table.id) == number)
    };
    let mut keyed: Vec<_> = tables.rules.iter().map(|(id, slot)| (place(id), id, slot)).collect();
    keyed.sort_by_key(|(place, id, _)| (*place, **id));
    for (place, id, slot) in keyed {
        let Some(record) = tables.records.get(slot) else { continue };
        let (terms, known) = words.of_record(record);
        let table = place.and_then(|place| beside.tables.get(place));
        let path = path::of(id, table, |index| beside.interface(index));
        let (number, rule) = (record.rule, Arc::new(Rule::new(path, terms)));
        let rule = ReadRule { rule, number, known };
        match id.selector() {
            Some(selector) => set.sources.push((selector, rule)),
            None => set.others.push(rule),
        }
    }
    set.sources.sort_by_key(|(selector, _)| *selector);
    for (tag, name) in words.budgets.clone() {
        let Some((_, record)) = tables.budget(tag) else { continue };
        let (limits, known) = words.limits(record);
        set.budgets.push(ReadBudget { budget: Budget { name, limits }, tag, known });
    }
    set.budgets.sort_by(|one, other| one.budget.name.cmp(&other.budget.name));
    let mut own = |name: &str| {
        let (_, record) = tables.budget(budget_tag(name))?;
        let (limits, known) = words.limits(record);
        Some((limits.plain()?, known))
    };
    (set.replies, set.bans) = (own(REPLIES), own(BANS));
    set
}

const fn martians(header: RuleSetHeader) -> Martians {
    if header.drops_martians() { Martians::Drop } else { Martians::Charge }
}

/// Stand-ins for the names of the budgets of the rule files, by their tags.
fn budget_names(installed: &Installed) -> BTreeMap<u64, String> {
    let own = [REPLIES, BANS].map(budget_tag);
    let records = installed.tables.records.values();
    let mut tags: Vec<(u32, u64)> = records
        .filter(|record| is_budget(record) && !own.contains(&record.budget_tag))
        .map(|record| (record.rule, record.budget_tag))
        .collect();
    tags.sort_unstable();
    tags.dedup();
    let name = |(number, (_, tag)): (usize, (u32, u64))| (tag, format!("(unknown {})", number + 1));
    tags.into_iter().enumerate().map(name).collect()
}

/// True if a record is of a budget that rules name.
fn is_budget(record: &Record) -> bool {
    let mut without_keys = Direction::NAMED.iter().map(|(_, direction)| everything(*direction));
    record.budget_tag != 0 && !without_keys.any(|name| record.budget_tag == budget_tag(name))
}

/// An action by its index; 0 is a drop.
fn action(installed: &Installed, index: u16) -> Option<&Action> {
    installed.tables.actions.get(&index).filter(|_| index != 0)
}

/// Terms of a rule that is charged to a budget.
fn charged_to(name: &str) -> Terms {
    Terms::Budget(name.to_owned())
}

const fn of_limits(limits: Limits) -> Terms {
    Terms::Limits(limits)
}

#[cfg(test)]
mod tests;
