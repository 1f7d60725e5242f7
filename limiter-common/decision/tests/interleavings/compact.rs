//! Packets of one source on several CPUs in tables where its key is compact, beside a rule for the
//! source, and beside a table where the key is not.

use std::sync::atomic::{AtomicBool, Ordering};

use limiter_common::wire::Algorithm::TokenBucket;
use loom::sync::Arc;
use loom::thread;

use crate::maps::every_order_within;
use crate::tables_maps::{Maps, Way, limit_of, passes, rule};

/// Two packets at once, each on its way: how many passed.
fn at_once(maps: &Arc<Maps>, [one, another]: [Way; 2]) -> usize {
    let other = thread::spawn({
        let maps = Arc::clone(maps);
        move || maps.packet_by(another)
    });
    let passed = usize::from(passes(maps.packet_by(one)));
    passed + usize::from(passes(other.join().unwrap()))
}

const ROOMS: [[u64; 2]; 5] = [[1, 2], [2, 1], [1, 1], [2, 2], [2, 3]];

/// Two packets pass as long as every bucket has room, and none passes more. One that is dropped is
/// charged nowhere, or stays charged where another CPU came after it: the safe side.
fn all_or_nothing(maps: impl Fn([u64; 2]) -> Maps + Send + Sync + Copy + 'static) {
    for rooms in ROOMS {
        for ways in Way::PAIRS {
            every_order_within(2, move || {
                let maps = Arc::new(maps(rooms));
                let passed = at_once(&maps, ways);
                let [first, second] = rooms.map(|room| usize::try_from(room).unwrap());
                assert_eq!(passed, first.min(second), "{rooms:?} {ways:?}");
                for used in maps.used() {
                    assert_eq!(used.passed, passed, "{used:?}: {rooms:?} {ways:?}");
                    assert!((passed..=2).contains(&used.owed), "{used:?}: {rooms:?} {ways:?}");
                }
                assert_eq!(maps.rest(), 0, "{rooms:?} {ways:?}");
            });
        }
    }
}

#[test]
fn a_packet_passes_its_compact_key_and_its_source_or_is_charged_to_neither() {
    all_or_nothing(|[compact, source]| {
        Maps::new(&[], &[]).with_compact(&[compact]).with_source(source).with_buckets()
    });
}

#[test]
fn a_packet_passes_two_compact_keys_or_is_charged_to_neither() {
    all_or_nothing(|rooms| Maps::new(&[], &[]).with_compact(&rooms).with_buckets());
}

#[test]
fn a_packet_passes_its_compact_key_and_another_table_or_is_charged_to_neither() {
    all_or_nothing(|[compact, full]| {
        Maps::new(&[rule(&[limit_of(TokenBucket, full)], 1)], &[[0, 0]])
            .with_compact(&[compact])
            .with_buckets()
    });
}

/// Two compact keys and the source, of which one has room for a packet: that is the one that
/// passes.
#[test]
fn of_three_buckets_the_smallest_one_decides() {
    for rooms in [[1, 2, 2], [2, 1, 2], [2, 2, 1]] {
        every_order_within(2, move || {
            let [first, second, source] = rooms;
            let maps = Maps::new(&[], &[])
                .with_compact(&[first, second])
                .with_source(source)
                .with_buckets();
            let maps = Arc::new(maps);
            assert_eq!(at_once(&maps, [Way::Short, Way::Short]), 1, "{rooms:?}");
            assert_eq!(maps.rest(), 0, "{rooms:?}");
        });
    }
}

/// The first packets of a key, at once: they share one bucket, whoever makes it.
#[test]
fn the_first_packets_of_a_compact_key_share_one_bucket() {
    for room in 1..=2 {
        for ways in Way::PAIRS {
            every_order_within(2, move || {
                let maps = Arc::new(Maps::new(&[], &[]).with_compact(&[room]));
                let room = usize::try_from(room).unwrap();
                assert_eq!(at_once(&maps, ways), room, "{ways:?}");
                let used = &maps.used()[0];
                assert_eq!([used.passed, used.owed], [room; 2], "{ways:?}");
                assert_eq!(maps.rest(), 0, "{ways:?}");
            });
        }
    }
}

/// A packet that loses the race for its second key takes back what it charged to the first one,
/// where no other packet came after it. Both outcomes come about.
#[test]
fn a_charge_is_taken_back_where_nobody_came_after_it() {
    // Not loom's: they outlive its orders.
    static TAKEN: AtomicBool = AtomicBool::new(false);
    static STAYED: AtomicBool = AtomicBool::new(false);
    every_order_within(2, || {
        let maps = Arc::new(Maps::new(&[], &[]).with_compact(&[2, 1]).with_buckets());
        assert_eq!(at_once(&maps, [Way::Short, Way::Short]), 1);
        let first = &maps.used()[0];
        assert_eq!(first.passed, 1);
        if first.taken_back == 1 {
            let outcome = if first.owed == 1 { &TAKEN } else { &STAYED };
            outcome.store(true, Ordering::Relaxed);
        }
    });
    assert!(TAKEN.load(Ordering::Relaxed) && STAYED.load(Ordering::Relaxed));
}
