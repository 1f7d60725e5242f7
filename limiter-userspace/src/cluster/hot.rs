//! Keys of rules that nodes share: those that have leases here, and those that another node has
//! leases of. All others cost nothing.

use std::collections::{BTreeMap, HashMap};

use limiter_common::bucket::Slot;
use limiter_common::wire::{Ask, BUDGET_LEASES, KEY_LEASES, KeyLeases, TableKey};

use super::leases::Leases;
use super::shared::{Shared, SharedRule};
use super::store::HotKey;

/// Time in microseconds for which a key that was told is remembered without another mention: as
/// long as the store keeps it.
const TOLD: u64 = 60_000_000;

/// Time in microseconds after which a key that found no leases may ask again.
const AGAIN: u64 = 10_000_000;

/// A key that has leases.
#[derive(Debug)]
struct HotEntry {
    /// Index of the rule.
    rule: usize,
    /// The first of its leases.
    first: u32,
    /// Numbers of its limits in the loop.
    limits: Vec<u64>,
}

/// Keys of shared rules.
#[derive(Debug, Default)]
pub(super) struct Hot {
    rules: Vec<SharedRule>,
    entries: HashMap<TableKey, HotEntry>,
    /// Keys without leases that have an entry in the data path, and when it goes.
    marked: HashMap<TableKey, u64>,
    lines: Lines,
    /// Keys that found no leases.
    refused: u64,
}

/// Limits of a key that begin.
#[derive(Debug)]
pub(super) struct Promoted {
    /// The key.
    pub(super) key: TableKey,
    /// Its limits, with their leases.
    pub(super) limits: Vec<Shared>,
}

/// Limits of keys that end, by their numbers.
pub(super) type Ended = Vec<u64>;

impl Hot {
    /// Number of keys that have leases.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of keys that found no leases: there are no more.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// True if any rule has keys.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Shortest sync period of the rules, in microseconds.
    pub(super) fn sync(&self) -> Option<u64> {
        self.rules.iter().flat_map(|rule| &rule.limits).map(|limit| limit.terms.sync()).min()
    }

    /// Takes over new rules: keys of one that changed lose their leases, and ask again.
    pub(super) fn set_rules(&mut self, rules: Vec<SharedRule>, leases: &mut impl Leases) -> Ended {
        let place: Vec<Option<usize>> =
            self.rules.iter().map(|old| rules.iter().position(|new| new == old)).collect();
        self.rules = rules;
        let mut ended = Vec::new();
        let lines = &mut self.lines;
        self.entries.retain(|key, entry| {
            if let Some(rule) = place.get(entry.rule).copied().flatten() {
                entry.rule = rule;
                return true;
            }
            leases.set_leased(key, None);
            lines.leave(entry.first);
            ended.append(&mut entry.limits);
            false
        });
        // The rules that they were of are not known.
        for key in std::mem::take(&mut self.marked).into_keys() {
            leases.set_leased(&key, None);
        }
        ended
    }

    /// Gives a key that asks leases, if there are some; the limits that begin.
    pub(super) fn ask(
        &mut self,
        ask: &Ask,
        now: u64,
        leases: &mut impl Leases,
    ) -> Option<Promoted> {
        let rule = self.rules.iter().position(|rule| rule.slot == ask.slot);
        let Some((rule, of)) = rule.and_then(|rule| Some((rule, self.rules.get(rule)?))) else {
            // Of a rule that is no more.
            leases.set_leased(&ask.key, None);
            return None;
        };
        if self.entries.contains_key(&ask.key) {
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

    /// The limits of a key have begun, under these numbers.
    pub(super) fn begun(&mut self, key: &TableKey, limits: Vec<u64>, leases: &mut impl Leases) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Some(rule) = self.rules.get(entry.rule)
        {
            entry.limits = limits;
            leases.set_leased(key, Some(KeyLeases::new(Slot::new(rule.slot), entry.first)));
        }
    }

    /// Takes the leases away of keys of which no limit needs one.
    pub(super) fn end_idle(
        &mut self,
        is_idle: impl Fn(u64) -> bool,
        leases: &mut impl Leases,
    ) -> Ended {
        let mut ended = Vec::new();
        let lines = &mut self.lines;
        self.entries.retain(|key, entry| {
            let stays = !entry.limits.iter().all(|number| is_idle(*number));
            if !stays {
                leases.set_leased(key, None);
                lines.leave(entry.first);
                ended.append(&mut entry.limits);
            }
            stays
        });
        ended
    }

    /// Another node has leases of a key, or this one: one without some asks with its next packet.
    pub(super) fn heard(&mut self, hot: &HotKey, now: u64, leases: &mut impl Leases) {
        let Some(key) = self.rules.iter().find_map(|rule| rule.key_of(&hot.name)) else {
            return;
        };
        if self.entries.contains_key(&key) {
            return;
        }
        if self.marked.len() + self.entries.len() >= KEY_LEASES as usize {
            self.refused += 1;
            return;
        }
        if self.marked.insert(key, now + TOLD).is_none() {
            leases.set_leased(&key, Some(KeyLeases::ELSEWHERE));
        }
    }

    /// Forgets keys that nobody mentioned for long.
    pub(super) fn forget(&mut self, now: u64, leases: &mut impl Leases) {
        self.marked.retain(|key, end| {
            let stays = now < *end;
            if !stays {
                leases.set_leased(key, None);
            }
            stays
        });
    }

    /// The leases of keys that ended a while ago may be handed out again.
    pub(super) fn free(&mut self) {
        self.lines.free();
    }

    /// Ends all of them.
    pub(super) fn end(&mut self, leases: &mut impl Leases) {
        let keys = self.entries.drain().map(|(key, _)| key);
        for key in keys.chain(std::mem::take(&mut self.marked).into_keys()) {
            leases.set_leased(&key, None);
        }
    }
}

/// Leases of keys that are free.
#[derive(Debug, Default)]
struct Lines {
    /// Number of leases that were ever handed out.
    begun: u32,
    /// Those that came back, by their number.
    free: BTreeMap<u32, Vec<u32>>,
    /// Number of leases by the first one, of those in use.
    used: HashMap<u32, u32>,
    /// First leases of keys that ended: packets under way may still charge them.
    leaving: Vec<u32>,
}

impl Lines {
    /// The first of `count` leases, one after the other.
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

    fn leave(&mut self, first: u32) {
        self.leaving.push(first);
    }

    fn free(&mut self) {
        for first in std::mem::take(&mut self.leaving) {
            if let Some(count) = self.used.remove(&first) {
                self.free.entry(count).or_default().push(first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::key::Words;
    use crate::cluster::leases::Counts;
    use crate::cluster::shared::{SharedPlace, SharedTerms};
    use crate::cluster::window::{Window, WindowKind};

    /// Entries of keys, as the data path has them.
    #[derive(Default)]
    struct Entries(HashMap<TableKey, KeyLeases>);

    impl Leases for Entries {
        fn now(&self) -> u64 {
            0
        }

        fn seen(&self, _lease: u32) -> Counts {
            Counts::default()
        }

        fn take_asks(&mut self) -> Vec<Ask> {
            Vec::new()
        }

        fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>) {
            match leases {
                Some(leases) => drop(self.0.insert(*key, leases)),
                None => drop(self.0.remove(key)),
            }
        }

        fn forget_keys(&mut self) {
            self.0.clear();
        }

        fn write(&mut self, _lease: u32, _words: Words) {}
    }

    fn rule(slot: u32, places: &[u32]) -> SharedRule {
        let window =
            Window { kind: WindowKind::Fixed, length: 60_000_000, quota: 9, largest: 1, life: 1 };
        let terms = SharedTerms::Window { window, sync: 200_000 };
        let limits = places.iter().map(|place| SharedPlace {
            place: *place,
            tag: u64::from(slot) << 8 | u64::from(*place),
            terms,
        });
        SharedRule { name: "a rule".into(), slot, table: 77, limits: limits.collect() }
    }

    fn key(vlan: u16) -> TableKey {
        TableKey { table: 77, vlan, ..TableKey::EMPTY }
    }

    fn ask(vlan: u16, slot: u32) -> Ask {
        Ask { key: key(vlan), slot, reserved: 0 }
    }

    fn hot(rules: Vec<SharedRule>) -> (Hot, Entries) {
        let (mut hot, mut entries) = (Hot::default(), Entries::default());
        assert!(hot.set_rules(rules, &mut entries).is_empty());
        (hot, entries)
    }

    #[test]
    fn a_key_that_asks_has_leases_of_its_own_until_it_is_idle() {
        let (mut hot, mut entries) = hot(vec![rule(5, &[0, 2]), rule(6, &[0])]);
        let one = hot.ask(&ask(1, 5), 0, &mut entries).unwrap();
        let leases: Vec<u32> = one.limits.iter().map(|limit| limit.lease).collect();
        assert_eq!(leases, [BUDGET_LEASES, BUDGET_LEASES + 2]);
        hot.begun(&one.key, vec![10, 11], &mut entries);
        assert_eq!(entries.0[&key(1)], KeyLeases::new(Slot::new(5), BUDGET_LEASES));
        assert!(hot.ask(&ask(1, 5), 0, &mut entries).is_none(), "it has some");
        let two = hot.ask(&ask(2, 6), 0, &mut entries).unwrap();
        assert_eq!(two.limits[0].lease, BUDGET_LEASES + 3);
        hot.begun(&two.key, vec![12], &mut entries);
        assert!(hot.end_idle(|number| number == 10, &mut entries).is_empty(), "11 is in use");
        assert_eq!(hot.end_idle(|number| number < 12, &mut entries), [10, 11]);
        assert!(!entries.0.contains_key(&key(1)) && hot.len() == 1);
        // Packets under way may still charge its leases.
        let next = hot.ask(&ask(3, 5), 0, &mut entries).unwrap();
        assert_eq!(next.limits[0].lease, BUDGET_LEASES + 4);
        hot.free();
        let again = hot.ask(&ask(4, 5), 0, &mut entries).unwrap();
        assert_eq!(again.limits[0].lease, BUDGET_LEASES);
    }

    #[test]
    fn a_key_that_finds_no_lease_is_counted_and_may_ask_later() {
        let (mut hot, mut entries) = hot(vec![rule(5, &[0])]);
        hot.lines.begun = KEY_LEASES - 1;
        assert!(hot.ask(&ask(1, 5), 0, &mut entries).is_some());
        entries.set_leased(&key(2), Some(KeyLeases::ASKED));
        assert!(hot.ask(&ask(2, 5), 0, &mut entries).is_none());
        assert_eq!((hot.len(), hot.refused()), (1, 1));
        hot.forget(AGAIN - 1, &mut entries);
        assert!(entries.0.contains_key(&key(2)));
        hot.forget(AGAIN, &mut entries);
        assert!(!entries.0.contains_key(&key(2)));
        // Of a rule that is no more.
        entries.set_leased(&key(3), Some(KeyLeases::ASKED));
        assert!(hot.ask(&ask(3, 9), 0, &mut entries).is_none());
        assert!(!entries.0.contains_key(&key(3)));
    }

    #[test]
    fn a_key_of_another_node_is_marked_and_forgotten() {
        let (mut hot, mut entries) = hot(vec![rule(5, &[0])]);
        let told = |slot: u32, vlan: u16| {
            let of = rule(slot, &[0]);
            let shared = of.of_key(&of.limits[0], &key(vlan), BUDGET_LEASES);
            let name = [&b"f:"[..], &shared.id.bytes(&shared.name)].concat();
            HotKey { name: name.into(), at: 1 }
        };
        hot.heard(&told(5, 1), 0, &mut entries);
        assert_eq!(entries.0[&key(1)], KeyLeases::ELSEWHERE);
        // Neither a key of another rule, nor a budget's name.
        hot.heard(&told(6, 2), 0, &mut entries);
        hot.heard(&HotKey { name: (*b"b:0:packets:bucket:x").into(), at: 1 }, 0, &mut entries);
        assert_eq!(entries.0.len(), 1);
        // A mention makes it last.
        hot.heard(&told(5, 1), 1000, &mut entries);
        hot.forget(TOLD + 999, &mut entries);
        assert_eq!(entries.0.len(), 1);
        hot.forget(TOLD + 1000, &mut entries);
        assert!(entries.0.is_empty());
        // One that has leases here is not marked.
        let one = hot.ask(&ask(1, 5), 0, &mut entries).unwrap();
        hot.begun(&one.key, vec![1], &mut entries);
        hot.heard(&told(5, 1), 0, &mut entries);
        assert_ne!(entries.0[&key(1)], KeyLeases::ELSEWHERE);
    }

    #[test]
    fn keys_of_a_rule_that_changed_lose_their_leases() {
        let (mut hot, mut entries) = hot(vec![rule(5, &[0]), rule(6, &[0])]);
        for (number, (vlan, slot)) in [(1, 5), (2, 6)].into_iter().enumerate() {
            let one = hot.ask(&ask(vlan, slot), 0, &mut entries).unwrap();
            hot.begun(&one.key, vec![number as u64], &mut entries);
        }
        assert_eq!(hot.set_rules(vec![rule(6, &[0])], &mut entries), [0]);
        assert_eq!(entries.0.keys().collect::<Vec<_>>(), [&key(2)]);
        hot.end(&mut entries);
        assert!(entries.0.is_empty() && hot.len() == 0);
    }
}
