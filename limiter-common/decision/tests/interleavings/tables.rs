//! Packets of one key on several CPUs while the rule changes its algorithm, and charges of two
//! tables of which one refuses.

use limiter_common::verdict::Verdict;
use limiter_common::wire::Algorithm::{FixedWindow, LeakyBucket, SlidingCounter, TokenBucket};
use limiter_common::wire::{Algorithm, Kind, Record};
use loom::sync::Arc;
use loom::thread;

use crate::tables_maps::{Maps, Way, limit_of, passes, rule};

/// Every order with at most one switch away from a thread that could go on, or as many as
/// `LOOM_MAX_PREEMPTIONS` says. With two it takes most of a minute.
fn every_order(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(1);
    model.check(check);
}

/// Every case with all ways of two packets.
fn with_ways<T: Copy>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = (T, [Way; 2])> {
    cases.into_iter().flat_map(|case| Way::PAIRS.map(|ways| (case, ways)))
}

const CHANGES: [(Algorithm, Algorithm); 4] = [
    (TokenBucket, FixedWindow),
    (FixedWindow, SlidingCounter),
    (SlidingCounter, TokenBucket),
    (LeakyBucket, FixedWindow),
];

fn of(algorithm: Algorithm, packets: u64, since: u32) -> Record {
    // A leaky bucket takes one more than its backlog.
    let room = packets - u64::from(algorithm == LeakyBucket);
    rule(&[limit_of(algorithm, room)], since)
}

/// One of four is used and the rule changes: three are left, whoever converts the bucket, and a
/// charge under the rule before is not stored under the new one.
#[test]
fn a_bucket_is_converted_once_and_no_late_charge_is_lost_or_doubled() {
    for ((before, after), [one, another]) in with_ways(CHANGES) {
        every_order(move || {
            let maps = Maps::new(&[of(before, 4, 1), of(after, 4, 2)], &[[1, 0]]);
            assert!(passes(maps.packet()));
            let maps = Arc::new(maps);
            let other = thread::spawn({
                let maps = Arc::clone(&maps);
                move || maps.packet_by(another)
            });
            maps.commit(2);
            let mut passed = usize::from(passes(maps.packet_by(one)));
            passed += usize::from(passes(other.join().unwrap()));
            let rest = maps.rest();
            // A count of 4 rounds the used share up to a whole packet.
            assert!(
                (2..=3).contains(&(passed + rest)),
                "{passed} and {rest}: {before:?} {after:?}"
            );
        });
    }
}

/// Two packets of the new rule set meet the bucket of the old one.
#[test]
fn two_converters_are_one() {
    for ((before, after), [one, another]) in with_ways(CHANGES) {
        every_order(move || {
            let maps = Maps::new(&[of(before, 4, 1), of(after, 4, 2)], &[[1, 0]]);
            assert!(passes(maps.packet()));
            maps.commit(2);
            let maps = Arc::new(maps);
            let other = thread::spawn({
                let maps = Arc::clone(&maps);
                move || maps.packet_by(another)
            });
            let mut passed = usize::from(passes(maps.packet_by(one)));
            passed += usize::from(passes(other.join().unwrap()));
            let rest = maps.rest();
            assert!(
                (2..=3).contains(&(passed + rest)),
                "{passed} and {rest}: {before:?} {after:?}"
            );
        });
    }
}

/// Each has room for one packet where the other has more: one passes, and what the other one
/// charged is given back or stays, the safe side.
#[test]
fn a_packet_passes_both_tables_or_is_charged_to_none() {
    for (first, second) in [(1, 2), (2, 1), (1, 1)] {
        every_order(move || {
            let rules = [of(TokenBucket, first, 1), of(FixedWindow, second, 1)];
            let maps = Arc::new(Maps::new(&rules, &[[0, 0], [1, 1]]));
            let other = thread::spawn({
                let maps = Arc::clone(&maps);
                move || maps.packet()
            });
            let mut passed = usize::from(passes(maps.packet()));
            passed += usize::from(passes(other.join().unwrap()));
            assert_eq!(passed, 1, "{first} {second}");
            assert_eq!(maps.rest(), 0);
        });
    }
}

/// Room for two in both, and two packets: both pass.
#[test]
fn nothing_is_lost_where_both_have_room() {
    every_order(|| {
        let rules =
            [rule(&[limit_of(TokenBucket, 2), limit_of(FixedWindow, 3)], 1), of(FixedWindow, 2, 1)];
        let maps = Arc::new(Maps::new(&rules, &[[0, 0], [1, 1]]));
        let other = thread::spawn({
            let maps = Arc::clone(&maps);
            move || maps.packet()
        });
        assert!(passes(maps.packet()));
        assert!(passes(other.join().unwrap()));
        assert_eq!(maps.rest(), 0);
    });
}

/// A rule of two token buckets, which are charged one after the other without a subprogram: of two
/// packets, as many pass as both have room for.
#[test]
fn two_plain_limits_pass_what_both_have_room_for() {
    let rooms = [(1, 2), (2, 1), (1, 1), (2, 2), (2, 3)];
    for ((first, second), [one, another]) in with_ways(rooms) {
        every_order(move || {
            let both = rule(&[limit_of(TokenBucket, first), limit_of(TokenBucket, second)], 1);
            assert!(matches!(both.plain(), Some((_, Some(_)))));
            let maps = Arc::new(Maps::new(&[both], &[[0, 0]]));
            let other = thread::spawn({
                let maps = Arc::clone(&maps);
                move || maps.packet_by(another)
            });
            let mut passed = u64::from(passes(maps.packet_by(one)));
            passed += u64::from(passes(other.join().unwrap()));
            assert_eq!(passed, first.min(second), "{first} {second}");
            assert_eq!(maps.rest(), 0);
        });
    }
}

/// A rule in shadow mode drops neither of two packets, also where one of them uses up the limit
/// between the look at the other one and its charge: in the bucket of a key, and in a budget.
#[test]
fn a_shadow_rule_drops_nobody_in_a_race() {
    for budget in [0, 1] {
        for (limits, [one, another]) in with_ways([&[1][..], &[1, 2], &[2, 1]]) {
            every_order(move || {
                let limits: Vec<_> = limits.iter().map(|of| limit_of(TokenBucket, *of)).collect();
                let shadow = Record { kind: Kind::Shadow as u8, budget, ..rule(&limits, 1) };
                let maps = Arc::new(Maps::new(&[shadow], &[[0, 0]]));
                let other = thread::spawn({
                    let maps = Arc::clone(&maps);
                    move || maps.packet_by(another)
                });
                for reason in [maps.packet_by(one), other.join().unwrap()] {
                    assert_eq!(reason.verdict(), Verdict::Pass, "{reason:?}");
                }
            });
        }
    }
}
