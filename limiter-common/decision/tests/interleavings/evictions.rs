//! A bucket that leaves while packets of its source come.

use limiter_common::bucket::Slot;
use limiter_common::verdict::Reason;
use loom::sync::Arc;
use loom::thread;

use crate::maps::{Maps, burst, every_order, owing, resolved};

fn maps(owed: u64) -> Arc<Maps> {
    let bucket = owing(owed, false);
    let maps = Maps::new(1, &[burst(2, 0)], [0, 0]);
    Arc::new(maps.with_bucket(bucket, resolved(1, 0, Slot::NONE, false)))
}

/// A drained bucket leaves while two packets come: what passes is the burst, with the bucket and
/// without.
#[test]
fn no_charge_is_lost_with_a_bucket_that_leaves() {
    every_order(|| {
        let maps = maps(0);
        let one = {
            let maps = Arc::clone(&maps);
            thread::spawn(move || maps.packet())
        };
        let other = {
            let maps = Arc::clone(&maps);
            thread::spawn(move || maps.packet())
        };
        maps.evict();
        let passed = [one.join().unwrap(), other.join().unwrap()]
            .into_iter()
            // A packet that meets the bucket as it leaves is judged as one without: here, dropped.
            .inspect(|reason| {
                let known = [Reason::Conforming, Reason::OverAggregate];
                assert!(known.contains(reason), "{reason:?}");
            })
            .filter(|reason| *reason == Reason::Conforming)
            .count();
        assert_eq!(passed + maps.pass_of(5), 2);
    });
}

/// A bucket that owes stays, whatever comes in between.
#[test]
fn a_bucket_that_owes_does_not_leave() {
    every_order(|| {
        let maps = maps(1);
        let packet = {
            let maps = Arc::clone(&maps);
            thread::spawn(move || maps.packet())
        };
        assert!(!maps.evict());
        assert_eq!(packet.join().unwrap(), Reason::Conforming);
        assert_eq!(maps.pass_of(5), 0);
    });
}

/// Two CPUs want the same room: one gets it.
#[test]
fn a_bucket_leaves_once() {
    every_order(|| {
        let maps = maps(0);
        let other = {
            let maps = Arc::clone(&maps);
            thread::spawn(move || maps.evict())
        };
        let here = maps.evict();
        assert!(here ^ other.join().unwrap());
    });
}
