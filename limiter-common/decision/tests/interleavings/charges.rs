//! Packets of one source on several CPUs, no rule change.

use loom::sync::Arc;
use loom::thread;

use crate::maps::{Maps, burst, every_order, owing, passes, resolved};
use limiter_common::bucket::Slot;

/// `packets` at once, each on a CPU of its own: how many passed.
fn at_once(maps: Maps, packets: usize) -> usize {
    let maps = Arc::new(maps);
    let others: Vec<_> = (1..packets)
        .map(|_| {
            let maps = Arc::clone(&maps);
            thread::spawn(move || maps.packet())
        })
        .collect();
    let mut passed = usize::from(passes(maps.packet()));
    for other in others {
        passed += usize::from(passes(other.join().unwrap()));
    }
    passed
}

/// Packets pass as long as the bucket holds one, and not one packet more.
#[test]
fn three_packets_get_what_the_bucket_holds() {
    for room in 0..=3 {
        every_order(move || {
            let maps = Maps::new(1, &[burst(4, 1)], [0, 0])
                .with_bucket(owing(4 - room, false), resolved(1, 0, Slot::NONE, false));
            assert_eq!(at_once(maps, 3), usize::try_from(room).unwrap());
        });
    }
}

/// A new source gets one bucket, whoever makes it.
#[test]
fn first_packets_share_one_bucket() {
    for room in 1..=2 {
        every_order(move || {
            let maps = Maps::new(1, &[burst(room, 1)], [0, 0]);
            assert_eq!(at_once(maps, 3), usize::try_from(room).unwrap());
        });
    }
}
