//! Threads that charge and evict in a few lines as fast as they can: no source passes more than its
//! limit.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;

use crate::maps::{Lines, Maps, Rules, limit, source};

/// Ticks of a packet. The clock goes on by a part of it with each packet, so that entries drain all
/// the time.
const PACKET: u64 = 1 << 12;
const BURST: u64 = 3;
const SOURCES: u32 = 24;
const THREADS: u64 = 4;
const PACKETS: u64 = 150_000;

/// All threads read one clock that never goes back. Over the whole run, each source may pass its
/// burst and what the time gave. Rules change under way, between two slots that mean the same.
#[test]
fn no_source_passes_more_than_its_limit() {
    let limits = vec![limit(PACKET, BURST, 0), limit(PACKET, BURST, 0)];
    let slot = |generation: u64, _: &_| u32::from(!generation.is_multiple_of(2));
    let rules = Rules { limits, slot, generation: AtomicU64::new(1) };
    let table = Lines::new(2);
    let begin = 1_u64 << 40;
    let clock = AtomicU64::new(begin);
    let passed: Vec<AtomicU64> = (0..SOURCES).map(|_| AtomicU64::new(0)).collect();
    let [without, contended] = [AtomicU64::new(0), AtomicU64::new(0)];
    let barrier = Barrier::new(usize::try_from(THREADS).unwrap());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rules, table, clock, passed) = (&rules, &table, &clock, &passed);
            let (without, contended, barrier) = (&without, &contended, &barrier);
            scope.spawn(move || {
                let maps = Maps { store: table, rules };
                let mut state = thread + 1;
                barrier.wait();
                for packet in 0..PACKETS {
                    // Numerical Recipes.
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = u32::try_from((state >> 33) % u64::from(SOURCES)).unwrap();
                    let now = clock.fetch_add(PACKET / 16, Ordering::SeqCst);
                    if thread == 0 && packet % 500 == 0 {
                        rules.generation.fetch_add(1, Ordering::SeqCst);
                    }
                    match maps.packet(&source(number), Ticks::new(now)) {
                        Reason::Conforming => {
                            let index = usize::try_from(number).unwrap();
                            passed[index].fetch_add(1, Ordering::Relaxed);
                        }
                        Reason::OverAggregate => {
                            without.fetch_add(1, Ordering::Relaxed);
                        }
                        Reason::Contended => {
                            contended.fetch_add(1, Ordering::Relaxed);
                        }
                        Reason::OverLimit => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let elapsed = clock.load(Ordering::SeqCst) - begin;
    let bound = BURST + elapsed / PACKET;
    for (number, passed) in passed.iter().enumerate() {
        let passed = passed.load(Ordering::Relaxed);
        assert!(passed <= bound, "source {number} passed {passed} packets of {bound}");
    }
    let mut names: Vec<u64> = table.entries().iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), 14, "the lines were never full");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 14, "a source has two entries");
    assert!(without.load(Ordering::Relaxed) > 0, "no source ever found its line full");
    // Threads are held up with the lock in their hands, as no CPU is in softirq: many packets meet
    // that here.
    let contended = contended.load(Ordering::Relaxed);
    assert!(contended < PACKETS * THREADS / 2, "{contended} packets were contended");
}
