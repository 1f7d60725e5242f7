//! Counts of a source past 2^32 packets.

use std::sync::atomic::AtomicU64;

use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_decision::line::{Entry as _, Line as _, LiveEntry, Place};

use crate::maps::{Lines, Maps, Rules, limit, source};

/// Packets that a CPU counts between two looks at a count.
const MANY: u64 = 1 << 29;

/// Counts are carried before they are full, each by itself, also of the last way of a line, and
/// the next source of a way begins with none of them.
#[test]
fn counts_do_not_wrap() {
    let rules =
        Rules { limits: vec![limit(1 << 10, 1, 0)], slot: |_, _| 0, generation: AtomicU64::new(1) };
    let table = Lines::new(1);
    let maps = Maps { store: &table, rules: &rules };
    let mut now = Ticks::new(1 << 40);
    for number in 1..=7 {
        assert_eq!(maps.packet(&source(number), now), Reason::Conforming);
    }
    let live = |number: u32| -> LiveEntry {
        let name = source(number).name().unwrap();
        table.at(0).live_entries().find(|entry| entry.name == name).unwrap()
    };
    let way_of = |number: u32| {
        let name = source(number).name().unwrap();
        let place = Place::of(name, table.all());
        assert!(place.is_one());
        (1..=7).find(|way| table.at(0).read().entries[*way - 1].name == name).unwrap()
    };
    for number in 1..=7 {
        let way = u32::try_from(way_of(number)).unwrap();
        let entry = table.at(0).entry(way).unwrap();
        let (mut passed, mut dropped) = (live(number).bucket.passed, live(number).bucket.dropped);
        for _ in 0..20 {
            entry.count_passed(MANY);
            entry.count_dropped(MANY - 1);
            (passed, dropped) = (passed + MANY, dropped + MANY - 1);
            now = now.plus(Ticks::new(1 << 12));
            assert_eq!(maps.packet(&source(number), now), Reason::Conforming);
            passed += 1;
            let bucket = live(number).bucket;
            assert_eq!((bucket.passed, bucket.dropped), (passed, dropped), "source {number}");
        }
        assert!(passed > 1 << 33 && dropped > 1 << 33);
    }
    // All have drained: one leaves.
    now = now.plus(Ticks::new(1 << 60));
    assert_eq!(maps.packet(&source(8), now), Reason::Conforming);
    let bucket = live(8).bucket;
    assert_eq!((bucket.passed, bucket.dropped), (1, 0));
}
