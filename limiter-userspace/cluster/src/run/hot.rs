//! Keys of rules that nodes share: those with leases here, and those with leases on another node.
//! All other keys cost nothing.

use std::collections::{BTreeMap, HashMap};

use limiter_common::bucket::Slot;
use limiter_common::wire::{Ask, BUDGET_LEASES, KEY_LEASES, KeyLeases, TableKey};
use limiter_sharing::leases::Leases;
use limiter_sharing::{Shared, SharedId, SharedRule, SharedTerms};

use crate::store::HotKey;

/// Time in microseconds for which a reported key is remembered without another mention: as long as
/// the store keeps it.
const REPORTED: u64 = 60_000_000;

/// Time in microseconds after which a key that found no free leases may ask again.
const AGAIN: u64 = 10_000_000;

/// A key that has leases.
#[derive(Debug)]
struct HotEntry {
    rule: usize,
    /// The first of the key's leases.
    first: u32,
    /// Numbers of the limits in the loop, in the order of the rule.
    limits: Vec<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Hot {
    rules: Vec<SharedRule>,
    /// Index of the rule by its record's slot.
    by_slot: HashMap<u32, usize>,
    /// Index of the rule by the tag of a limit.
    by_tag: HashMap<u64, usize>,
    /// Shortest sync period of the rules, in microseconds.
    sync: Option<u64>,
    entries: HashMap<TableKey, HotEntry>,
    /// Keys without leases that have an entry in the data path, and when it is removed.
    marked: HashMap<TableKey, u64>,
    lines: Lines,
    /// Number of keys that found no free leases.
    refused: u64,
}

/// New limits of a key.
#[derive(Debug)]
pub(crate) struct Promoted {
    pub(crate) key: TableKey,
    pub(crate) limits: Vec<Shared>,
}

/// A key that no longer has leases.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The first of the leases, for [`Hot::free`].
    pub(crate) first: u32,
    pub(crate) limits: Vec<u64>,
}

/// A limit's number, and its new terms.
pub(crate) type Changed = (u64, SharedTerms);

impl Hot {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of keys that found no free leases.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// True if there is a rule with keys.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Shortest sync period of the rules, in microseconds.
    pub(crate) fn sync(&self) -> Option<u64> {
        self.sync
    }

    /// Replaces the rules. Keys of a rule that remains keep their leases, perhaps with other
    /// numbers; other keys lose theirs.
    pub(crate) fn set_rules(
        &mut self,
        rules: Vec<SharedRule>,
        leases: &mut impl Leases,
    ) -> (Vec<Ended>, Vec<Changed>) {
        self.by_slot = (0..).zip(&rules).map(|(index, rule)| (rule.slot, index)).collect();
        let tags = |(index, rule): (usize, &SharedRule)| {
            rule.limits.iter().map(move |limit| (limit.tag, index)).collect::<Vec<_>>()
        };
        self.by_tag = rules.iter().enumerate().flat_map(tags).collect();
        self.sync = rules.iter().flat_map(|rule| &rule.limits).map(|at| at.terms.sync()).min();
        let old = std::mem::replace(&mut self.rules, rules);
        let place = |old: &SharedRule| {
            let index = *self.by_tag.get(&old.limits.first()?.tag)?;
            self.rules.get(index).filter(|new| new.goes_on(old)).map(|_| index)
        };
        let places: Vec<Option<usize>> = old.iter().map(place).collect();
        let (mut ended, mut changed) = (Vec::new(), Vec::new());
        self.entries.retain(|key, entry| {
            let before = old.get(entry.rule);
            let place = places.get(entry.rule).copied().flatten();
            let after = place.and_then(|place| Some((place, self.rules.get(place)?)));
            let (Some(before), Some((place, after))) = (before, after) else {
                leases.set_leased(key, None);
                ended.push(Ended { first: entry.first, limits: std::mem::take(&mut entry.limits) });
                return false;
            };
            entry.rule = place;
            if before.slot != after.slot {
                let here = KeyLeases::new(Slot::new(after.slot), entry.first);
                leases.set_leased(key, Some(here));
            }
            if before.limits != after.limits {
                let terms = after.limits.iter().map(|limit| limit.terms);
                changed.extend(entry.limits.iter().copied().zip(terms));
            }
            true
        });
        // Their rules are not known.
        for key in std::mem::take(&mut self.marked).into_keys() {
            leases.set_leased(&key, None);
        }
        (ended, changed)
    }

    /// Gives leases to a key that asks, if some are free. Returns the limits to begin.
    pub(crate) fn ask(
        &mut self,
        ask: &Ask,
        now: u64,
        leases: &mut impl Leases,
    ) -> Option<Promoted> {
        let index = self.by_slot.get(&ask.slot).copied();
        // A reused slot may belong to a rule of another table.
        let rule = index
            .and_then(|index| Some((index, self.rules.get(index)?)))
            .filter(|(_, rule)| rule.table == ask.key.table);
        let Some((rule, of)) = rule else {
            leases.set_leased(&ask.key, None);
            return None;
        };
        if let Some(entry) = self.entries.get(&ask.key) {
            // The data path lost the entry.
            let slot = self.rules.get(entry.rule).map_or(ask.slot, |rule| rule.slot);
            leases.set_leased(&ask.key, Some(KeyLeases::new(Slot::new(slot), entry.first)));
            return None;
        }
        let Some(first) = self.lines.take(of.leases()) else {
            self.refused += 1;
            self.marked.insert(ask.key, now + AGAIN);
            return None;
        };
        self.marked.remove(&ask.key);
        let limits = of.limits.iter().map(|limit| of.of_key(limit, &ask.key, first));
        let promoted = Promoted { key: ask.key, limits: limits.collect() };
        self.entries.insert(ask.key, HotEntry { rule, first, limits: Vec::new() });
        Some(promoted)
    }

    /// Records the numbers of a key's limits, which have begun.
    pub(crate) fn begun(&mut self, key: &TableKey, limits: Vec<u64>, leases: &mut impl Leases) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Some(rule) = self.rules.get(entry.rule)
        {
            entry.limits = limits;
            leases.set_leased(key, Some(KeyLeases::new(Slot::new(rule.slot), entry.first)));
        }
    }

    /// Takes the leases from keys of which no limit needs one.
    pub(crate) fn end_idle(
        &mut self,
        is_idle: impl Fn(u64) -> bool,
        leases: &mut impl Leases,
    ) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.entries.retain(|key, entry| {
            let stays = !entry.limits.iter().all(|number| is_idle(*number));
            if !stays {
                leases.set_leased(key, None);
                ended.push(Ended { first: entry.first, limits: std::mem::take(&mut entry.limits) });
            }
            stays
        });
        ended
    }

    /// Handles a key that has leases on some node. If it has none here, it asks for them with its
    /// next packet.
    pub(crate) fn heard(&mut self, hot: &HotKey, now: u64, leases: &mut impl Leases) {
        let Some(key) = self.key_of(&hot.name) else {
            return;
        };
        if self.entries.contains_key(&key) {
            return;
        }
        if self.marked.len() + self.entries.len() >= KEY_LEASES as usize {
            self.refused += 1;
            return;
        }
        if self.marked.insert(key, now + REPORTED).is_none() {
            leases.set_leased(&key, Some(KeyLeases::ELSEWHERE));
        }
    }

    /// The key of this node behind a key's name in the store, if it belongs to a rule.
    fn key_of(&self, name: &[u8]) -> Option<TableKey> {
        let (tag, key) = SharedId::read(name)?;
        let rule = self.rules.get(*self.by_tag.get(&tag)?)?;
        Some(TableKey { table: rule.table, ..key })
    }

    /// Forgets keys that were not mentioned for a long time.
    pub(crate) fn forget(&mut self, now: u64, leases: &mut impl Leases) {
        self.marked.retain(|key, end| {
            let stays = now < *end;
            if !stays {
                leases.set_leased(key, None);
            }
            stays
        });
    }

    /// Frees the leases of a key that ended: no packet in progress can charge them any more, and
    /// their use is reported.
    pub(crate) fn free(&mut self, first: u32) {
        self.lines.free(first);
    }

    pub(crate) fn end(&mut self, leases: &mut impl Leases) {
        let keys = self.entries.drain().map(|(key, _)| key);
        for key in keys.chain(std::mem::take(&mut self.marked).into_keys()) {
            leases.set_leased(&key, None);
        }
    }
}

/// Allocates leases for keys.
#[derive(Debug, Default)]
struct Lines {
    /// Number of leases that were ever used.
    begun: u32,
    /// Returned leases, by the number that a key has.
    free: BTreeMap<u32, Vec<u32>>,
    /// Number of leases in use, by the first one.
    used: HashMap<u32, u32>,
}

impl Lines {
    /// Allocates `count` consecutive leases and returns the first.
    fn take(&mut self, count: u32) -> Option<u32> {
        let first = match self.free.get_mut(&count).and_then(Vec::pop) {
            Some(first) => first,
            None if self.begun + count <= KEY_LEASES => {
                self.begun += count;
                BUDGET_LEASES + self.begun - count
            }
            None => return None,
        };
        self.used.insert(first, count);
        Some(first)
    }

    fn free(&mut self, first: u32) {
        if let Some(count) = self.used.remove(&first) {
            self.free.entry(count).or_default().push(first);
        }
    }
}

#[cfg(test)]
mod tests;
