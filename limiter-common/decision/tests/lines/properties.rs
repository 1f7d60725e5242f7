//! Random packets and rule changes: the line table says what a table without bounds says, but to a
//! source whose line is full of others that owe.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::bucket_key::BucketKey;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use proptest::prelude::*;

use crate::maps::{Lines, Maps, Rules, Unbounded, limit, source};

/// Ticks of a packet.
const PACKET: u64 = 1 << 20;

const CHANGES: u64 = 30;

/// Four limits that never change, and a new one in each generation.
fn rules() -> Rules {
    let mut limits = vec![limit(PACKET, 3, 0), limit(PACKET, 1, 0), limit(7 * PACKET, 2, 0)];
    limits.push(limiter_common::wire::Limit {
        kind: limiter_common::wire::Kind::Unlimited as u8,
        ..limit(PACKET, 1, 0)
    });
    for generation in 0..CHANGES + 2 {
        let number = u32::try_from(generation).unwrap();
        limits.push(limit(PACKET * (1 + generation % 3), 1 + generation % 5, number));
    }
    let slot = |generation: u64, source: &BucketKey| {
        let [_, _, _, number, ..] = source.word().to_ne_bytes();
        match number % 6 {
            fixed @ 0..=3 => u32::from(fixed),
            // One that changes with each generation, and one that changes now and then.
            4 => u32::try_from(4 + generation).unwrap(),
            _ => u32::try_from(4 + generation / 4 * 4).unwrap(),
        }
    };
    Rules { limits, slot, generation: AtomicU64::new(1) }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Packet(u32),
    Wait(u64),
    Change,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(
        prop_oneof![
            30 => (0..40_u32).prop_map(Step::Packet),
            10 => (0..2 * PACKET).prop_map(Step::Wait),
            1 => (0..40 * PACKET).prop_map(Step::Wait),
            1 => Just(Step::Change),
        ],
        1..600,
    )
}

proptest! {
    #[test]
    fn the_line_table_says_what_a_table_without_bounds_says(
        lines in prop_oneof![1..4_usize, Just(40)],
        steps in steps(),
    ) {
        let rules = rules();
        let table = Lines::new(lines);
        let sources = table.crowd(40);
        let here = Maps { store: &table, rules: &rules };
        let there = Maps { store: Unbounded::default(), rules: &rules };
        let mut now = Ticks::new(1 << 40);
        let mut seen = HashMap::new();
        for step in steps {
            match step {
                Step::Wait(ticks) => now = now.plus(Ticks::new(ticks)),
                Step::Change => {
                    let generation = rules.generation.load(Ordering::Relaxed);
                    rules.generation.store((generation + 1).min(CHANGES), Ordering::Relaxed);
                }
                Step::Packet(number) => {
                    let source = source(sources[usize::try_from(number).unwrap()]);
                    let full = table.is_full_for(&source, now);
                    // Only what has drained leaves; it begins full, also where its limit has
                    // changed since.
                    prop_assert!(table.has(&source) || there.store.forget(&source, now));
                    let reason = here.packet(&source, now);
                    *seen.entry(reason.name()).or_insert(0) += 1;
                    // A packet without an entry is dropped here, and charged nowhere; the unlimited
                    // pass without.
                    if full && reason == Reason::OverAggregate {
                        continue;
                    }
                    prop_assert_eq!(reason, there.packet(&source, now), "{:?}", source);
                }
            }
        }
        prop_assert!(!seen.contains_key(Reason::Contended.name()));
        let mut names: Vec<u64> = table.entries().iter().map(|entry| entry.name).collect();
        let entries = names.len();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), entries, "a source has two entries");
    }
}

/// The property above meets what it is about: without that it would hold of anything.
#[test]
fn sources_stand_in_three_lines_and_find_no_room() {
    let rules = rules();
    let table = Lines::new(40);
    let maps = Maps { store: &table, rules: &rules };
    let now = Ticks::new(1 << 40);
    // Of the kinds that owe: 21 find room, and no other.
    let owes = |number: &u32| (number & 0xff) % 6 < 3;
    let crowd: Vec<u32> = table.crowd(80).into_iter().filter(owes).collect();
    for (index, number) in crowd.iter().enumerate() {
        let expected = if index < 21 { Reason::Conforming } else { Reason::OverAggregate };
        assert_eq!(maps.packet(&source(*number), now), expected);
    }
    assert!(crowd.len() > 21, "too few: {crowd:?}");
    assert!(table.owing_in_overflow(now) > 0, "nobody went to the overflow");
}

/// Sources that leave a table of one line, and others that find no room there.
#[test]
fn sources_leave_and_find_no_room() {
    let rules = rules();
    let table = Lines::new(1);
    let maps = Maps { store: &table, rules: &rules };
    let now = Ticks::new(1 << 40);
    // Seven that owe, of the kind that never changes.
    let owing: Vec<u32> = (0..7).map(|number| 6 * number + 2).collect();
    for number in &owing {
        assert_eq!(maps.packet(&source(*number), now), Reason::Conforming);
    }
    assert!(table.is_full_for(&source(1), now));
    assert_eq!(maps.packet(&source(1), now), Reason::OverAggregate);
    // At the instant at which they drain they still stay.
    let drained = now.plus(Ticks::new(7 * PACKET));
    assert_eq!(maps.packet(&source(1), drained), Reason::OverAggregate);
    let after = drained.plus(Ticks::new(1));
    assert_eq!(maps.packet(&source(1), after), Reason::Conforming);
    assert_eq!(maps.packet(&source(1), after), Reason::OverLimit);
    assert_eq!(table.entries().len(), 7);
}
