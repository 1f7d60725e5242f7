//! Keys that ask, end, and are heard of.

use limiter_sharing::key::Words;
use limiter_sharing::leases::Counts;
use limiter_sharing::window::{Window, WindowKind};
use limiter_sharing::{SharedPlace, SharedTerms};

use super::*;

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
    let window = Window {
        kind: WindowKind::Fixed,
        length: 60_000_000,
        quota: 9,
        largest: 1,
        life: 1,
        lease_cap: 250,
    };
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
    assert_eq!(hot.set_rules(rules, &mut entries), (vec![], vec![]));
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
    let ended = hot.end_idle(|number| number < 12, &mut entries);
    assert_eq!(ended, [Ended { first: BUDGET_LEASES, limits: vec![10, 11] }]);
    assert!(!entries.0.contains_key(&key(1)) && hot.len() == 1);
    // Packets under way may still charge its leases.
    let next = hot.ask(&ask(3, 5), 0, &mut entries).unwrap();
    assert_eq!(next.limits[0].lease, BUDGET_LEASES + 4);
    hot.free(BUDGET_LEASES);
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
    let reported = |slot: u32, vlan: u16| {
        let of = rule(slot, &[0]);
        let shared = of.of_key(&of.limits[0], &key(vlan), BUDGET_LEASES);
        let name = [&b"f:"[..], &shared.id.bytes(&shared.name)].concat();
        HotKey { name: name.into(), at: 1 }
    };
    hot.heard(&reported(5, 1), 0, &mut entries);
    assert_eq!(entries.0[&key(1)], KeyLeases::ELSEWHERE);
    // Neither a key of another rule, nor a budget's name.
    hot.heard(&reported(6, 2), 0, &mut entries);
    hot.heard(&HotKey { name: (*b"b:0:packets:bucket:x").into(), at: 1 }, 0, &mut entries);
    assert_eq!(entries.0.len(), 1);
    // A mention makes it last.
    hot.heard(&reported(5, 1), 1000, &mut entries);
    hot.forget(REPORTED + 999, &mut entries);
    assert_eq!(entries.0.len(), 1);
    hot.forget(REPORTED + 1000, &mut entries);
    assert!(entries.0.is_empty());
    // One that has leases here is not marked.
    let one = hot.ask(&ask(1, 5), 0, &mut entries).unwrap();
    hot.begun(&one.key, vec![1], &mut entries);
    hot.heard(&reported(5, 1), 0, &mut entries);
    assert_ne!(entries.0[&key(1)], KeyLeases::ELSEWHERE);
}

#[test]
fn a_key_asks_again_where_the_data_path_lost_it() {
    let (mut hot, mut entries) = hot(vec![rule(5, &[0])]);
    let one = hot.ask(&ask(1, 5), 0, &mut entries).unwrap();
    hot.begun(&one.key, vec![1], &mut entries);
    let before = entries.0.insert(key(1), KeyLeases::ASKED).unwrap();
    assert!(hot.ask(&ask(1, 5), 0, &mut entries).is_none());
    assert_eq!(entries.0[&key(1)], before);
    // A key of another table, whose rule had the slot before.
    let other = TableKey { table: 78, ..key(1) };
    entries.set_leased(&other, Some(KeyLeases::ASKED));
    assert!(hot.ask(&Ask { key: other, ..ask(1, 5) }, 0, &mut entries).is_none());
    assert_eq!((entries.0.contains_key(&other), hot.len()), (false, 1));
}

#[test]
fn keys_keep_their_leases_unless_their_rule_is_gone() {
    let (mut hot, mut entries) = hot(vec![rule(5, &[0]), rule(6, &[0])]);
    for (number, (vlan, slot)) in [(1, 5), (2, 6)].into_iter().enumerate() {
        let one = hot.ask(&ask(vlan, slot), 0, &mut entries).unwrap();
        hot.begun(&one.key, vec![number as u64], &mut entries);
    }
    // In another slot, with a quota of 10.
    let mut new = SharedRule { slot: 9, ..rule(6, &[0]) };
    let SharedTerms::Window { window, sync } = new.limits[0].terms else { panic!() };
    let window = Window { quota: 10, ..window };
    new.limits[0].terms = SharedTerms::Window { window, sync };
    let (ended, changed) = hot.set_rules(vec![new.clone()], &mut entries);
    assert_eq!(ended, [Ended { first: BUDGET_LEASES, limits: vec![0] }]);
    assert_eq!(changed, [(1, new.limits[0].terms)]);
    assert_eq!(entries.0.get(&key(2)), Some(&KeyLeases::new(Slot::new(9), BUDGET_LEASES + 1)));
    assert_eq!(entries.0.len(), 1);
    // With another tag it is another limit.
    new.limits[0].tag += 1;
    let (ended, changed) = hot.set_rules(vec![new], &mut entries);
    assert_eq!((ended.len(), changed.len(), hot.len()), (1, 0, 0));
    hot.end(&mut entries);
    assert!(entries.0.is_empty());
}
