//! Translates what the data path finds into the rules as people wrote them.

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::source::Source;
use limiter_common::wire::TableKey;
use limiter_model::Found;
use limiter_rules::compile::{BANS, REPLIES, RuleId, TableForm};
use limiter_rules::model::{Limits, Rule};
use limiter_rules::place::budget_tag;
use limiter_rules::{Installed, RuleSet, Selector};

/// A rule that applies to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Table of the rule: 0 for rules by source alone; the others count from 1 in their order.
    pub table: u32,
    /// Keys of the rule, as other commands show them.
    pub rule: String,
    /// Name of the rule in the rule file.
    pub name: Option<String>,
    /// Number under which the rule is counted: its own, or its budget's.
    pub number: u32,
}

/// The bucket of a rule for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// A source's bucket in the source table.
    Source(Source),
    /// A key's bucket in another table.
    Key(TableKey),
    /// A budget that several rules share.
    Budget,
}

/// A rule that applies to a packet, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    /// Number under which the rule is counted: its own, or its budget's.
    pub number: u32,
    /// Bucket of the rule for the packet.
    pub bucket: Bucket,
}

/// A rule of a keyed table.
#[derive(Debug)]
struct Keyed {
    id: RuleId,
    slot: u32,
    /// Specificity among the rules of its table.
    rank: u32,
    text: String,
    name: Option<String>,
}

/// The rules of a rule set in force.
#[derive(Debug)]
pub(super) struct Rulebook {
    sources: BTreeMap<u32, (Selector, Option<String>, u32)>,
    /// By [`limiter_common::wire::Table::id`].
    forms: BTreeMap<u32, TableForm>,
    keyed: Vec<Keyed>,
    numbers: BTreeMap<u32, String>,
    /// Names that the authors gave the rules, by number; budgets have none.
    called: BTreeMap<u32, String>,
    by_slot: BTreeMap<u32, u32>,
    /// Slots of rules that are charged to a budget.
    shared: BTreeSet<u32>,
    /// Limits by the number of their rule or budget.
    limits: BTreeMap<u32, Limits>,
}

impl Rulebook {
    pub(super) fn new(
        set: &RuleSet,
        installed: &Installed,
        index: &dyn Fn(&str) -> Option<u32>,
    ) -> Self {
        let tables = &installed.tables;
        let mut book = Self {
            sources: BTreeMap::new(),
            forms: tables.ids.iter().map(|(form, id)| (*id, *form)).collect(),
            keyed: Vec::new(),
            numbers: BTreeMap::new(),
            called: BTreeMap::new(),
            by_slot: tables.records.iter().map(|(slot, record)| (*slot, record.rule)).collect(),
            shared: BTreeSet::new(),
            limits: BTreeMap::new(),
        };
        let budgets = tables.records.iter().filter(|(_, record)| record.budget != 0);
        book.shared.extend(budgets.map(|(slot, _)| *slot));
        for rule in &set.rules {
            let name = rule.name.as_deref().or(rule.label.as_deref());
            if let Some(selector) = rule.path.selector()
                && let Some(in_force) = installed.rules.get(&selector)
            {
                let number = in_force.limit.rule;
                book.numbers.insert(number, selector.to_string());
                book.call(number, rule);
                let name = name.map(str::to_owned);
                book.sources.insert(in_force.slot, (selector, name, number));
                book.limit(number, rule.terms.limits());
            } else if let Ok(id) = RuleId::new(&rule.path, index) {
                book.add(installed, id, rule);
            }
        }
        for budget in &set.budgets {
            if let Some((_, record)) = tables.budget(budget_tag(&budget.name)) {
                book.limit(record.rule, Some(&budget.limits));
            }
        }
        let named = set.budgets.iter().map(|budget| (budget.name.as_str(), budget.name.as_str()));
        for (shown, name) in named.chain([("(replies)", REPLIES), ("(bans)", BANS)]) {
            if let Some((_, record)) = tables.budget(budget_tag(name)) {
                book.numbers.insert(record.rule, format!("budget {shown}"));
            }
        }
        book
    }

    /// Adds a rule, unless no packet can match it.
    fn add(&mut self, installed: &Installed, id: RuleId, rule: &Rule) {
        let Some(slot) = installed.tables.rules.get(&id).copied() else {
            return;
        };
        let name = rule.name.as_deref().or(rule.label.as_deref()).map(str::to_owned);
        let text = rule.path.to_string();
        if let Some(number) = self.by_slot.get(&slot).copied() {
            self.numbers.entry(number).or_insert_with(|| text.clone());
            self.limit(number, rule.terms.limits());
            if !self.shared.contains(&slot) {
                self.call(number, rule);
            }
        }
        let rank = id.rank_of(&rule.path);
        self.keyed.push(Keyed { id, slot, rank, text, name });
    }

    fn call(&mut self, number: u32, rule: &Rule) {
        if let Some(name) = rule.called() {
            self.called.insert(number, name);
        }
    }

    fn limit(&mut self, number: u32, limits: Option<&Limits>) {
        if let Some(limits) = limits {
            self.limits.insert(number, limits.clone());
        }
    }

    /// The limits of a rule or budget, by number; `None` if everything passes.
    pub(super) fn limits(&self, number: u32) -> Option<&Limits> {
        self.limits.get(&number)
    }

    /// Appends the rules that the data path found, with their buckets for the packet.
    pub(super) fn charges(&self, found: &Found, source: Option<Source>, to: &mut Vec<Charge>) {
        let rule = found.source.and_then(|slot| self.sources.get(&slot.index()));
        if let (Some((_, _, number)), Some(source)) = (rule, source) {
            to.push(Charge { number: *number, bucket: Bucket::Source(source) });
        }
        to.extend(found.tables.iter().filter_map(|found| {
            let slot = found.slot.index();
            let number = *self.by_slot.get(&slot)?;
            let shared = self.shared.contains(&slot);
            let bucket = if shared { Bucket::Budget } else { Bucket::Key(found.key) };
            Some(Charge { number, bucket })
        }));
    }

    /// The rules that the data path found.
    pub(super) fn matches(&self, found: &Found) -> Vec<Match> {
        let mut matches = Vec::new();
        if let Some((selector, name, number)) =
            found.source.and_then(|slot| self.sources.get(&slot.index()))
        {
            let (rule, name) = (selector.to_string(), name.clone());
            matches.push(Match { table: 0, rule, name, number: *number });
        }
        for found in &found.tables {
            let slot = found.slot.index();
            let Some(rule) = self.rule(found.id, &found.key, slot) else {
                continue;
            };
            let number = self.by_slot.get(&slot).copied().unwrap_or_default();
            let (text, name) = (rule.text.clone(), rule.name.clone());
            let table = if rule.id.form.is_of_sources() { 0 } else { found.index + 1 };
            matches.push(Match { table, rule: text, name, number });
        }
        matches
    }

    /// Finds a rule. Rules that share a budget share its slot, so the packet's key decides among
    /// them.
    fn rule(&self, id: u32, key: &TableKey, slot: u32) -> Option<&Keyed> {
        let form = self.forms.get(&id)?;
        let of_table = self.keyed.iter().filter(|rule| rule.slot == slot && rule.id.form == *form);
        of_table.filter(|rule| rule.id.covers(key)).max_by_key(|rule| rule.rank)
    }

    pub(super) fn name(&self, number: u32) -> Option<&str> {
        self.numbers.get(&number).map(String::as_str)
    }

    /// The name that a rule's author gave it, by number.
    pub(super) fn called(&self, number: u32) -> Option<&str> {
        self.called.get(&number).map(String::as_str)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = (u32, &str)> {
        self.numbers.iter().map(|(number, name)| (*number, name.as_str()))
    }
}
