//! Slots and rule numbers of all rules.
//!
//! A rule that did not change keeps both, so its buckets and counters go on. A changed limit keeps
//! its number and gets a new slot, which tells the program to convert the buckets. Slots and
//! numbers in use now are not handed out again in this step: packets under way still read them.
//!
//! Rules placed here were compiled before ([`super::compile`]), so the only errors are about room.
//! The source table is filled here, the keyed tables in `step`.

mod actions;
mod adopt;
mod error;
mod free;
mod installed;
mod largest;
mod left;
mod records;
mod rulebook;
mod shared;
mod step;
mod tables;
mod trial;
mod used;

use std::collections::BTreeMap;

pub use adopt::HeldTables;
pub use error::{PlaceError, PlanError};
pub use installed::{Installed, InstalledRule, InstalledTables, Retired};
pub use left::Slots;
pub use records::{MAX_BUDGETS, MAX_INTERFACES, budget_tag, everything};
pub use rulebook::{Rulebook, Title, Written};
pub use tables::TablesPlan;
pub use used::{Holder, Used};

use limiter_common::bucket::{MAX_SLOTS, Slot};
use limiter_common::wire::{Limit, MAX_RECORDS, RULE_RETIRED};
use limiter_sharing::SharedSet;

use self::free::{Flags, Free, Places};
use self::largest::Before;
use self::step::{Step, low_bits};
use super::compile::{CompiledSet, Environment, RuleId, compile_set};
use super::model::{Path, RuleSet, Selector, Subject, TriePrefix};

/// Slots of maps that are made for `rules` rules: four times as many, so that a rule can change
/// several times before a slot means something else.
pub const fn slots_for(rules: u32) -> u32 {
    let slots = rules.saturating_mul(4);
    // The last index means "none".
    if slots < MAX_SLOTS { slots } else { MAX_SLOTS - 1 }
}

/// Writes of one step, and the state after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Slots to fill.
    pub limits: Vec<(u32, Limit)>,
    /// The whole new trie.
    pub trie: Vec<(TriePrefix, u32)>,
    /// The keyed tables.
    pub tables: TablesPlan,
    /// Limits that nodes share, with their leases.
    pub shared: SharedSet,
    /// Rule numbers that begin: their counters are to be zeroed.
    pub begun: Vec<u32>,
    /// Rule numbers that end: their counters go to [`RULE_RETIRED`].
    pub ended: Vec<u32>,
    /// The maps afterwards.
    pub installed: Installed,
}

/// First rule number that is a rule's.
const FIRST_RULE: u32 = RULE_RETIRED + 1;

impl Installed {
    /// Compiles a rule set for a machine, and places it: [`compile_set`], then
    /// [`Installed::place`].
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn plan(
        &self,
        set: &RuleSet,
        generation: u64,
        capacity: u32,
        environment: &Environment<'_>,
    ) -> Result<Plan, PlanError> {
        match compile_set(set, environment) {
            Ok(compiled) => Ok(self.place(&compiled, generation, capacity)?),
            Err(errors) => Err(errors.first.into()),
        }
    }

    /// Plans the step from `self` to `set`, as `generation`. `capacity` is the number of rules that
    /// the maps were made for.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn place(
        &self,
        set: &CompiledSet<'_>,
        generation: u64,
        capacity: u32,
    ) -> Result<Plan, PlaceError> {
        let mut next = Self::default();
        let mut limits = Vec::new();
        let of_rules = self.rules.values().map(|rule| rule.slot);
        let of_tables = self.tables.records.keys().chain(&self.tables.retired.slots).copied();
        let used = of_rules.chain(self.retired_slots.iter().copied()).chain(of_tables);
        let slots = Free::new(0..slots_for(capacity).min(MAX_RECORDS), self.next_slot, used);
        let mut in_force: Vec<u32> = self.numbers().collect();
        in_force.sort_unstable();
        in_force.dedup();
        let too_many = PlaceError::TooMany {
            rules: set.count,
            installed: in_force.len(),
            needed: 2 * (set.count + in_force.len()) + 16,
        };
        let numbers = Free::new(FIRST_RULE..capacity, FIRST_RULE, in_force.iter().copied());
        let mut places = Places::new(slots, numbers);
        let mut step = Step::begin(self, set, generation, too_many.clone(), &mut places)?;
        let mut rules = Vec::with_capacity(set.sources.len());
        for rule in &set.sources {
            let selector = rule.selector;
            let action = step.over(rule.over, &Subject::Rule(rule.path.clone()))?;
            let wanted = Limit { action, ..rule.limit };
            let installed = match self.rules.get(&selector) {
                Some(old) if same(&old.limit, &wanted) => *old,
                old => {
                    let number = match old.map(|old| old.limit.rule).or(self.keyed(&selector)) {
                        Some(number) => number,
                        None => places.begin().ok_or_else(|| too_many.clone())?,
                    };
                    let slot = places.slots.take().ok_or_else(|| too_many.clone())?;
                    let limit = Limit { rule: number, since: low_bits(generation), ..wanted };
                    let before = match old {
                        Some(old) => Before::Rule(&old.limit),
                        None if self.holds(&selector) => Before::Others,
                        None => Before::Nothing,
                    };
                    let limit = largest::marked(before, limit);
                    limits.push((slot, limit));
                    InstalledRule { slot, limit }
                }
            };
            rules.push((selector, installed));
        }
        // In the order of their selectors, as they mostly come, a map is made at once.
        rules.sort_by_key(|(selector, _)| *selector);
        next.rules = rules.into_iter().collect();
        step.keyed(&mut places)?;
        let (tables, compact);
        (tables, next.tables, compact) = step.finish();
        limits.extend(left::limits_of(&tables.records));
        let shared = shared::of(set, &next.tables);
        let kept: Flags = next.rules.values().map(|rule| rule.slot).collect();
        let before = self.rules.values().map(|rule| rule.slot);
        next.retired_slots = before.filter(|slot| !kept.contains(*slot)).collect();
        next.next_slot = places.slots.next;
        let mut trie = trie(&next, &set.elsewhere);
        trie.extend(compact);
        let goes_on: Flags = next.numbers().collect();
        let ended = in_force.into_iter().filter(|number| !goes_on.contains(*number)).collect();
        let begun = places.begun;
        Ok(Plan { limits, trie, tables, shared, begun, ended, installed: next })
    }

    /// The number that a rule is counted under: its own, or that of the budget that it is charged
    /// to; `None` if no packet can find the rule. `index` knows the interfaces by name.
    pub fn number(&self, path: &Path, index: &dyn Fn(&str) -> Option<u32>) -> Option<u32> {
        let plain = path.selector().and_then(|selector| self.rules.get(&selector));
        if let Some(rule) = plain {
            return Some(rule.limit.rule);
        }
        if self.tables.rules.is_empty() {
            return None;
        }
        let id = RuleId::new(path, index).ok()?;
        self.tables.record(&id).map(|record| record.rule)
    }

    /// The number of a rule by source that is in a keyed table.
    fn keyed(&self, selector: &Selector) -> Option<u32> {
        if self.tables.rules.is_empty() {
            return None;
        }
        let record = self.tables.record(&RuleId::of_source(selector))?;
        (record.budget_tag == 0).then_some(record.rule)
    }

    /// True if there are no rules at all.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.tables.rules.is_empty()
    }

    /// The rule numbers in force; those with parts in several tables more than once.
    fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let sources = self.rules.values().map(|rule| rule.limit.rule);
        sources.chain(self.tables.numbers())
    }

    /// Reads the source table back from what the maps hold: the trie in force and the limits.
    /// [`Installed::with_tables`] adds the others.
    pub fn from_maps(trie: &[(TriePrefix, u32)], limit: impl Fn(u32) -> Option<Limit>) -> Self {
        let every = Selector::Every.trie_prefixes();
        let by_prefix: BTreeMap<TriePrefix, u32> = trie.iter().copied().collect();
        let shared: Vec<Option<&u32>> = every.iter().map(|p| by_prefix.get(p)).collect();
        let is_every = matches!(shared.as_slice(), [Some(a), Some(b)] if a == b);
        let mut rules = BTreeMap::new();
        for (prefix, slot) in by_prefix {
            let selector = if is_every && every.contains(&prefix) {
                Some(Selector::Every)
            } else {
                prefix.selector()
            };
            // A hole is for what a keyed table has, and has no limit to read; rules of compact keys
            // are read from the trie of their tables.
            if slot != Slot::NONE.index()
                && !prefix.is_compact()
                && let (Some(selector), Some(limit)) = (selector, limit(slot))
            {
                rules.insert(selector, InstalledRule { slot, limit });
            }
        }
        let newest = rules.values().max_by_key(|rule| rule.limit.since);
        let next_slot = newest.map_or(0, |rule| rule.slot + 1);
        Self { rules, next_slot, ..Self::default() }
    }
}

/// The trie of sources. An explicit `0.0.0.0/0` or `::/0` beats the family's half of
/// [`Selector::Every`]; the rules for the sources `elsewhere` are in a keyed table.
fn trie(installed: &Installed, elsewhere: &[Selector]) -> Vec<(TriePrefix, u32)> {
    let rules = installed.rules.iter().map(|(selector, rule)| (selector, rule.slot));
    let holes = elsewhere.iter().map(|selector| (selector, Slot::NONE.index()));
    let explicit = rules.chain(holes).filter(|(selector, _)| **selector != Selector::Every);
    let mut trie: BTreeMap<TriePrefix, u32> = explicit
        .flat_map(|(selector, slot)| {
            selector.trie_prefixes().into_iter().map(move |prefix| (prefix, slot))
        })
        .collect();
    if let Some(every) = installed.rules.get(&Selector::Every) {
        for prefix in Selector::Every.trie_prefixes() {
            trie.entry(prefix).or_insert(every.slot);
        }
    }
    // IPv4 stands inside IPv6 there, so a short IPv6 prefix would be for IPv4 as well.
    if let [_, v4] = Selector::Every.trie_prefixes().as_slice()
        && trie.keys().any(|prefix| prefix.contains(v4))
    {
        trie.entry(*v4).or_insert(Slot::NONE.index());
    }
    trie.into_iter().collect()
}

/// True if the program would do the same for both. The mark of the largest limit follows from the
/// limits before.
fn same(a: &Limit, b: &Limit) -> bool {
    let Limit {
        increment,
        tolerance,
        rule: _,
        since: _,
        shift,
        count,
        kind,
        full: _,
        action,
        ended: _,
    } = *a;
    let full = |full: u8| full & !Limit::LARGEST;
    (increment, tolerance, shift, count, kind, action, full(a.full))
        == (b.increment, b.tolerance, b.shift, b.count, b.kind, b.action, full(b.full))
}

#[cfg(test)]
mod tests;
