//! From what a packet finds in the maps to the rules as people wrote them. Explanations of live
//! packets and of captures both ask here, so they name the same rule.

use std::collections::BTreeMap;

use limiter_common::bucket::Slot;
use limiter_common::wire::TableKey;

use super::Installed;
use crate::compile::RuleId;
use crate::model::{Rule, Selector};

/// Rules in force by their slots: as the rule file has them, or with more that is known of each.
#[derive(Clone, Debug)]
pub struct Rulebook<R>(Vec<Written<R>>);

/// A rule in force, as it was written.
#[derive(Clone, Debug)]
pub struct Written<R> {
    /// The rule.
    pub rule: R,
    /// Number under which it is counted: its own, or that of the budget that it is charged to.
    pub number: u32,
    slot: u32,
    /// Id of its keyed table; `None` in the source table.
    table: Option<u32>,
    id: RuleId,
}

/// The title in reports of what has a number: a rule or a budget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Title {
    /// Sources or keys of the rule; `budget` and the name for a budget.
    pub rule: String,
    /// The name that its author gave it.
    pub name: Option<String>,
    /// True if it is for one source alone.
    pub of_one: bool,
}

impl<R: AsRef<Rule>> Rulebook<R> {
    /// The book of some rules, without those that no packet can find. `index` knows the interfaces
    /// by name.
    pub fn new(
        installed: &Installed,
        rules: impl IntoIterator<Item = R>,
        index: &dyn Fn(&str) -> Option<u32>,
    ) -> Self {
        let written = rules.into_iter().filter_map(|rule| Written::new(installed, rule, index));
        let mut written: Vec<_> = written.collect();
        written.sort_by_key(|written| written.slot);
        Self(written)
    }

    /// All rules, by their slots.
    pub fn rules(&self) -> impl Iterator<Item = &Written<R>> {
        self.0.iter()
    }

    /// The rule in a slot of the source table.
    pub fn of_source(&self, slot: Slot) -> Option<&Written<R>> {
        self.in_slot(slot).find(|written| written.table.is_none())
    }

    /// The rule in a slot that packets with a key find in the keyed table with an id. Rules that
    /// share a budget share its slot, so the key decides among them.
    pub fn of_key(&self, table: u32, key: &TableKey, slot: Slot) -> Option<&Written<R>> {
        self.in_slot(slot)
            .filter(|written| written.table == Some(table) && written.id.covers(key))
            .max_by_key(|written| written.id.rank_of(&written.rule.as_ref().path))
    }

    fn in_slot(&self, slot: Slot) -> impl Iterator<Item = &Written<R>> {
        let slot = slot.index();
        let first = self.0.partition_point(|written| written.slot < slot);
        self.0.iter().skip(first).take_while(move |written| written.slot == slot)
    }
}

impl<R: AsRef<Rule>> Written<R> {
    fn new(installed: &Installed, rule: R, index: &dyn Fn(&str) -> Option<u32>) -> Option<Self> {
        let path = &rule.as_ref().path;
        let id = RuleId::new(path, index).ok()?;
        if let Some(plain) = path.selector().and_then(|at| installed.rules.get(&at)) {
            return Some(Self {
                number: plain.limit.rule,
                slot: plain.slot,
                table: None,
                id,
                rule,
            });
        }
        let tables = &installed.tables;
        let slot = *tables.rules.get(&id)?;
        let number = tables.records.get(&slot)?.rule;
        Some(Self { number, slot, table: tables.ids.get(&id.form).copied(), id, rule })
    }
}

impl Installed {
    /// The titles of rules and budgets by number; a rule that is charged to a budget has the
    /// budget's. `budgets` are names with their [`super::budget_tag`].
    pub fn titles<'a>(
        &self,
        rules: impl IntoIterator<Item = &'a Rule>,
        budgets: impl IntoIterator<Item = (&'a str, u64)>,
        index: &dyn Fn(&str) -> Option<u32>,
    ) -> BTreeMap<u32, Title> {
        let mut titles = BTreeMap::new();
        for rule in rules {
            let Some(number) = self.number(&rule.path, index) else { continue };
            let net = || rule.path.source().and_then(|(_, net)| net).map(Selector::Prefix);
            titles.entry(number).or_insert_with(|| Title {
                rule: rule.path.to_string(),
                name: rule.called(),
                of_one: rule.path.selector().or_else(net).is_some_and(|at| at.is_source()),
            });
        }
        for (name, tag) in budgets {
            if let Some((_, record)) = self.tables.budget(tag) {
                let rule = format!("budget {name}");
                titles.insert(record.rule, Title { rule, name: None, of_one: false });
            }
        }
        titles
    }
}
