//! Which slot and rule number every rule gets.
//!
//! A rule that did not change keeps both, so its buckets and counters go on. A changed limit keeps
//! its number and gets a new slot, which tells the program to convert the buckets. Slots and
//! numbers in use now are not handed out again in this step: packets under way still read them.

mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub use tables::TablesPlan;

use limiter_common::wire::{Limit, MAX_SLOTS, RULE_RETIRED};

use super::compile::{self, CompileError};
use super::model::{RuleSet, Selector, TriePrefix};

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
    /// By selector.
    pub rules: BTreeMap<Selector, InstalledRule>,
    /// Slots that the generation before used: packets under way may still read them.
    pub retired_slots: BTreeSet<u32>,
    /// Where the search for a free slot goes on. Slots are handed out in a circle, so that the limit
    /// that an idle bucket was charged under stays readable as long as possible.
    pub next_slot: u32,
}

/// Slots of maps that are made for `rules` rules: four times as many, so that a rule can change
/// several times before a slot means something else.
pub const fn slots_for(rules: u32) -> u32 {
    let slots = rules.saturating_mul(4);
    // The last index means "none".
    if slots < MAX_SLOTS { slots } else { MAX_SLOTS - 1 }
}

/// What to write, and what it will be then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Slots to fill.
    pub limits: Vec<(u32, Limit)>,
    /// The whole new trie.
    pub trie: Vec<(TriePrefix, u32)>,
    /// The tables beside the source table.
    pub tables: TablesPlan,
    /// Rule numbers that begin: their counters are to be zeroed.
    pub begun: Vec<u32>,
    /// Rule numbers that end: their counters go to [`RULE_RETIRED`].
    pub ended: Vec<u32>,
    /// The maps afterwards.
    pub installed: Installed,
}

/// Why a rule set cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The limit itself is wrong.
    #[error("rule for {selector}: {source}")]
    Limit {
        /// Whose rule.
        selector: Selector,
        /// What is wrong.
        source: CompileError,
    },
    /// Two rules for the same sources.
    #[error("two rules for {0}: keep one")]
    Duplicate(Selector),
    /// The maps are too small.
    #[error(
        "{rules} rules do not fit beside the {installed} in force: start the daemon with --max-rules {needed}"
    )]
    TooMany {
        /// Rules wanted.
        rules: usize,
        /// Rules in force.
        installed: usize,
        /// What would do.
        needed: usize,
    },
}

/// First rule number that is a rule's.
const FIRST_RULE: u32 = RULE_RETIRED + 1;

impl Installed {
    /// Plans the step from `self` to `set`, as `generation`. `capacity` is the number of rules that
    /// the maps were made for; `max_frame` as in [`compile::limit`].
    pub fn plan(
        &self,
        set: &RuleSet,
        generation: u64,
        capacity: u32,
        max_frame: u64,
    ) -> Result<Plan, PlanError> {
        let mut next = Self::default();
        let mut limits = Vec::new();
        let mut begun = Vec::new();
        let mut slots = Free::new(
            0..slots_for(capacity),
            self.next_slot,
            self.rules.values().map(|rule| rule.slot).chain(self.retired_slots.iter().copied()),
        );
        let mut numbers = Free::new(
            FIRST_RULE..capacity,
            FIRST_RULE,
            self.rules.values().map(|rule| rule.limit.rule),
        );
        let too_many = || PlanError::TooMany {
            rules: set.rules.len(),
            installed: self.rules.len(),
            needed: 2 * (set.rules.len() + self.rules.len()) + 16,
        };
        for rule in &set.rules {
            let selector = rule.selector;
            let wanted = compile::limit(&rule.action, max_frame)
                .map_err(|source| PlanError::Limit { selector, source })?;
            let installed = match self.rules.get(&selector) {
                Some(old) if same(&old.limit, &wanted) => *old,
                old => {
                    let number = if let Some(old) = old {
                        old.limit.rule
                    } else {
                        let number = numbers.take().ok_or_else(too_many)?;
                        begun.push(number);
                        number
                    };
                    let slot = slots.take().ok_or_else(too_many)?;
                    let limit = Limit { rule: number, since: low_bits(generation), ..wanted };
                    limits.push((slot, limit));
                    InstalledRule { slot, limit }
                }
            };
            if next.rules.insert(selector, installed).is_some() {
                return Err(PlanError::Duplicate(selector));
            }
        }
        let ended = self
            .rules
            .iter()
            .filter(|(selector, _)| !next.rules.contains_key(selector))
            .map(|(_, rule)| rule.limit.rule)
            .collect();
        let kept: BTreeSet<u32> = next.rules.values().map(|rule| rule.slot).collect();
        next.retired_slots =
            self.rules.values().map(|rule| rule.slot).filter(|slot| !kept.contains(slot)).collect();
        next.next_slot = slots.next;
        let trie = trie(&next);
        Ok(Plan { limits, trie, tables: TablesPlan::default(), begun, ended, installed: next })
    }

    /// Reads the rule set back from what the maps hold: the trie in force and the limits.
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
            if let (Some(selector), Some(limit)) = (selector, limit(slot)) {
                rules.insert(selector, InstalledRule { slot, limit });
            }
        }
        let newest = rules.values().max_by_key(|rule| rule.limit.since);
        let next_slot = newest.map_or(0, |rule| rule.slot + 1);
        Self { rules, retired_slots: BTreeSet::new(), next_slot }
    }
}

/// An explicit `0.0.0.0/0` or `::/0` beats the family's half of [`Selector::Every`].
fn trie(installed: &Installed) -> Vec<(TriePrefix, u32)> {
    let mut trie = BTreeMap::new();
    // `Every` sorts first, so an explicit prefix overwrites it.
    for (selector, rule) in &installed.rules {
        for prefix in selector.trie_prefixes() {
            trie.insert(prefix, rule.slot);
        }
    }
    trie.into_iter().collect()
}

/// Whether the program would do the same.
fn same(a: &Limit, b: &Limit) -> bool {
    let Limit {
        increment,
        tolerance,
        rule: _,
        since: _,
        shift,
        count,
        kind,
        carry_shift: _,
        action,
        reserved: _,
    } = *a;
    (increment, tolerance, shift, count, kind, action)
        == (b.increment, b.tolerance, b.shift, b.count, b.kind, b.action)
}

#[expect(clippy::cast_possible_truncation, reason = "only the low bits are compared")]
const fn low_bits(generation: u64) -> u32 {
    generation as u32
}

/// Free indices of a range, in a circle.
struct Free {
    range: Range<u32>,
    next: u32,
    left: u32,
    used: BTreeSet<u32>,
}

impl Free {
    fn new(range: Range<u32>, next: u32, used: impl Iterator<Item = u32>) -> Self {
        let left = range.end.saturating_sub(range.start);
        Self { range, next, left, used: used.collect() }
    }

    fn take(&mut self) -> Option<u32> {
        while self.left > 0 {
            self.left -= 1;
            let index = if self.range.contains(&self.next) { self.next } else { self.range.start };
            self.next = index + 1;
            if !self.used.contains(&index) {
                return Some(index);
            }
        }
        None
    }
}
