//! Totals and rates of accounts that are made by hand.

use super::*;

const ALL: Seen = Seen { source: true, keys: true, reported: true };

const SECOND: Ticks = Ticks::from_nanos(1_000_000_000);

fn key(table: u32, port: u16) -> Counter {
    Counter::Key(TableKey { table, destination_port: port, ..TableKey::EMPTY })
}

/// An account whose source has its rule in the table 9, of all keys.
fn account(lines: &[(Counter, u64, u64)]) -> Account {
    let line = |(counter, passed, dropped): &(Counter, u64, u64)| Line {
        counter: *counter,
        rule: None,
        counters: Counters { passed: *passed, dropped: *dropped },
        title: None,
    };
    let mut lines: Vec<Line> = lines.iter().map(line).collect();
    lines.sort_by_key(|line| line.counter);
    let (tables, own) = (vec![7, 8, 9], Some(9));
    Account { lines, seen: ALL, tables, own, ..Account::default() }
}

fn rates(from: &Account, to: &Account) -> Option<(f64, f64)> {
    to.rates(from, SECOND).map(|rates| (rates.passed, rates.dropped))
}

#[test]
fn drops_add_up_and_what_passed_several_tables_counts_once() {
    let all =
        [(Counter::Source, 10, 1), (key(7, 1), 4, 20), (key(7, 2), 5, 0), (key(8, 1), 9, 300)];
    let expected = Total { passed: 10, dropped: 321, ..Total::default() };
    assert_eq!(account(&all).total(), expected);
    let without = account(&all[1..]).total();
    assert_eq!((without.passed, without.passed_at_least), (9, true));
    let reported = Counter::Reported { rule: 1, reason: 14, began: SystemTime::UNIX_EPOCH };
    let total = account(&[(key(9, 0), 3, 4), (reported, 0, 5)]).total();
    assert_eq!((total.passed, total.dropped), (3, 9));
    assert_eq!((total.passed_at_least, total.dropped_at_least), (false, true));
    let in_part = Account { seen: Seen { keys: false, ..ALL }, ..account(&all) };
    assert!(in_part.total().dropped_at_least);
}

#[test]
fn a_rate_is_of_counters_that_both_readings_have() {
    let from = account(&[(Counter::Source, 10, 5), (key(7, 1), 4, 20)]);
    let to = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 50)]);
    assert_eq!(rates(&from, &to), Some((3.0, 30.0)));
    assert_eq!(to.rates(&from, Ticks::ZERO), None, "no time");
    // A key that came in between has counted from nothing.
    let came = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 20), (key(8, 1), 0, 7)]);
    assert_eq!(rates(&from, &came), Some((3.0, 7.0)));
    // Not so if its table was not in force, or not all keys were read.
    let other = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 20), (key(6, 1), 0, 7)]);
    assert_eq!(rates(&from, &other), None);
    assert_eq!(rates(&Account { seen: Seen { keys: false, ..ALL }, ..from.clone() }, &came), None);
    // One that left, and one that left and came again.
    let left = account(&[(Counter::Source, 13, 5)]);
    assert_eq!(rates(&from, &left), None);
    let again = account(&[(Counter::Source, 13, 5), (key(7, 1), 1, 2)]);
    assert_eq!(rates(&from, &again), None);
    assert_eq!(rates(&again, &account(&[(key(7, 1), 1, 3)])), None, "the bucket left");
    let new = account(&[(Counter::Source, 2, 1)]);
    assert_eq!(rates(&account(&[]), &new), Some((2.0, 1.0)), "a new source");
    assert_eq!(rates(&Account { seen: Seen { source: false, ..ALL }, ..account(&[]) }, &new), None);
}

#[test]
fn an_episode_is_a_counter_of_its_own() {
    let began = |second| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
    let reported = |second| Counter::Reported { rule: 1, reason: 14, began: began(second) };
    let from = account(&[(reported(1), 0, 100)]);
    assert_eq!(rates(&from, &account(&[(reported(1), 0, 130)])), Some((0.0, 30.0)));
    // Another one began; the first is forgotten.
    assert_eq!(rates(&from, &account(&[(reported(2), 0, 20)])), Some((0.0, 20.0)));
}
