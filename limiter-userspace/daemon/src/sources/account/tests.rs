//! Totals and rates of hand-made accounts.

use proptest::prelude::*;

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
        direction: Direction::In,
        counters: Counters { passed: *passed, dropped: *dropped },
        since: None,
        title: None,
    };
    let mut lines: Vec<Line> = lines.iter().map(line).collect();
    lines.sort_by_key(|line| line.counter);
    let (tables, own) = (vec![7, 8, 9], Some(9));
    Account { lines, seen: ALL, tables, own, ..Account::default() }
}

fn rates(from: &Account, to: &Account) -> Option<(f64, f64)> {
    over(from, to, SECOND)
}

fn over(from: &Account, to: &Account, time: Ticks) -> Option<(f64, f64)> {
    let mut to = Account { at: from.at.plus(time), ..to.clone() };
    to.compare(from);
    to.rates(Direction::In).map(|rates| (rates.passed, rates.dropped))
}

#[test]
fn drops_add_up_and_what_passed_several_tables_counts_once() {
    let all =
        [(Counter::Source, 10, 1), (key(7, 1), 4, 20), (key(7, 2), 5, 0), (key(8, 1), 9, 300)];
    let expected = Total { passed: 10, dropped: 321, ..Total::default() };
    assert_eq!(account(&all).total(), expected);
    let without = account(&all[1..]).total();
    assert_eq!((without.passed, without.passed_at_least), (9, true));
    let reported =
        Counter::Reported { rule: 1, reason: 14, is_out: false, began: SystemTime::UNIX_EPOCH };
    let total = account(&[(key(9, 0), 3, 4), (reported, 0, 5)]).total();
    assert_eq!((total.passed, total.dropped), (3, 9));
    assert_eq!((total.passed_at_least, total.dropped_at_least), (false, true));
    let in_part = Account { seen: Seen { keys: false, ..ALL }, ..account(&all) };
    assert!(in_part.total().dropped_at_least);
}

/// No packet comes in and goes out; a rule for both counts each once.
#[test]
fn what_comes_in_and_what_goes_out_passed_both() {
    let ways = [Direction::In, Direction::Out, Direction::Both];
    for (packets, passed) in [([5, 7, 0], 12), ([5, 7, 20], 20), ([5, 7, 11], 12)] {
        let mut account = account(&[
            (key(7, 1), packets[0], 1),
            (key(8, 1), packets[1], 2),
            (key(9, 1), packets[2], 3),
        ]);
        for (line, direction) in account.lines.iter_mut().zip(ways) {
            line.direction = direction;
        }
        assert_eq!((account.total().passed, account.total().dropped), (passed, 6));
    }
}

#[test]
fn a_rate_is_of_counters_that_both_readings_have() {
    let from = account(&[(Counter::Source, 10, 5), (key(7, 1), 4, 20)]);
    let to = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 50)]);
    assert_eq!(rates(&from, &to), Some((3.0, 30.0)));
    assert_eq!(over(&from, &to, Ticks::ZERO), None, "no time");
    // A key that came in between has counted from nothing.
    let came = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 20), (key(8, 1), 0, 7)]);
    assert_eq!(rates(&from, &came), Some((3.0, 7.0)));
    // This does not hold if its table was not in force, or not all keys were read.
    let other = account(&[(Counter::Source, 13, 5), (key(7, 1), 4, 20), (key(6, 1), 0, 7)]);
    assert_eq!(rates(&from, &other), None);
    assert_eq!(rates(&Account { seen: Seen { keys: false, ..ALL }, ..from.clone() }, &came), None);
    // One counter that was evicted, and one that was evicted and came back.
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
    let reported =
        |second| Counter::Reported { rule: 1, reason: 14, is_out: false, began: began(second) };
    let from = account(&[(reported(1), 0, 100)]);
    assert_eq!(rates(&from, &account(&[(reported(1), 0, 130)])), Some((0.0, 30.0)));
    // Another episode began; the first is forgotten.
    assert_eq!(rates(&from, &account(&[(reported(2), 0, 20)])), Some((0.0, 20.0)));
    // One packet tells no rate.
    assert_eq!(rates(&from, &account(&[(reported(2), 0, 1)])), Some((0.0, 0.0)));
    assert_eq!(rates(&from, &account(&[(reported(2), 0, 2)])), Some((0.0, 2.0)));
}

/// A counter of a rule: its number, its key, drops at the first reading, and drops since then.
fn counted() -> impl Strategy<Value = (u32, u16, u64, u64)> {
    (0..5u32, 0..9u16, 0..50u64, prop_oneof![Just(0), 0..50u64])
}

proptest! {
    /// The rule that is named first is the one that dropped most between two readings; where
    /// nothing was dropped in between, and without two readings, the one that dropped most in all.
    #[test]
    fn the_rule_that_dropped_most_is_named_first(
        counted in prop::collection::vec(counted(), 1..30),
        twice: bool,
    ) {
        let titles: BTreeMap<u32, Title> = (0..5)
            .map(|rule| {
                (rule, Title { rule: format!("rule {rule}"), name: None, of_one: false })
            })
            .collect();
        let (mut first, mut now, mut totals, mut since) =
            (BTreeMap::new(), BTreeMap::new(), [0; 5], [0; 5]);
        for (rule, port, before, more) in counted {
            let at = key(7 + rule, port);
            // One counter for each key.
            if now.insert(at, (rule, before + more)).is_some() {
                now.insert(at, (rule, first[&at]));
                continue;
            }
            first.insert(at, before);
        }
        let line = |counter: Counter, rule: u32, dropped: u64| Line {
            counter,
            rule: Some(rule),
            direction: Direction::In,
            counters: Counters { passed: 0, dropped },
            since: None,
            title: None,
        };
        for (at, (rule, dropped)) in &now {
            totals[*rule as usize] += dropped;
            since[*rule as usize] += dropped - first[at];
        }
        let lines = |first: Option<&BTreeMap<Counter, u64>>| Account {
            lines: now
                .iter()
                .map(|(at, (rule, dropped))| line(*at, *rule, first.map_or(*dropped, |of| of[at])))
                .collect(),
            seen: ALL,
            ..Account::default()
        };
        let mut account = lines(None);
        if twice {
            account.at = SECOND;
            account.compare(&lines(Some(&first)));
        }
        let drops = account.drops(&Rules::new(titles, false, |_| None), Direction::In);
        let most = |of: [u64; 5]| of.into_iter().max().unwrap_or(0);
        let number = |by: &RuleDrops| by.rule.as_ref().unwrap()[5..].parse::<usize>().unwrap();
        prop_assert_eq!(drops.len(), totals.iter().filter(|dropped| **dropped > 0).count());
        if let Some(by) = drops.first() {
            let rule = number(by);
            prop_assert_eq!(by.dropped, totals[rule]);
            if twice && most(since) > 0 {
                prop_assert_eq!(since[rule], most(since));
            } else {
                prop_assert_eq!(totals[rule], most(totals));
            }
        }
        for by in &drops {
            let rate = twice.then(|| u32::try_from(since[number(by)]).map(f64::from).unwrap());
            prop_assert_eq!(by.dropped_per_second, rate);
        }
    }
}
