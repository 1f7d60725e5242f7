//! Packets on two CPUs while the daemon puts another limit in force.

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::wire::Limit;
use loom::sync::Arc;
use loom::thread;

use crate::world::{World, burst, every_order, owing, passes, resolved};

/// Two packets and a commit of `generation` at once, in every order. Then the rest of the bucket:
/// what passed in all.
fn under_a_change(world: World, generation: u64) -> usize {
    let world = Arc::new(world);
    let other = thread::spawn({
        let world = Arc::clone(&world);
        move || world.packet()
    });
    let daemon = thread::spawn({
        let world = Arc::clone(&world);
        move || world.commit(generation)
    });
    let mut passed = usize::from(passes(world.packet()));
    passed += usize::from(passes(other.join().unwrap()));
    daemon.join().unwrap();
    passed + world.pass_of(10)
}

/// Checks what passed, in every order.
fn check(
    limits: &[Limit],
    (owed, at): (Word, Resolved),
    generation: u64,
    expected: impl Fn(usize) -> bool + Sync + Send + 'static,
) {
    let limits = limits.to_vec();
    every_order(move || {
        let world =
            World::new(generation - 1, &limits, slots(&limits, generation)).with_bucket(owed, at);
        let passed = under_a_change(world, generation);
        assert!(expected(passed), "{passed} packets passed");
    });
}

/// The last limit is the new one, the one before it that of the generation before.
fn slots(limits: &[Limit], generation: u64) -> [u32; 2] {
    let new = u32::try_from(limits.len() - 1).unwrap();
    if generation.is_multiple_of(2) { [new, new - 1] } else { [new - 1, new] }
}

/// A full bucket gives no more than the larger of both limits, and no less than the smaller.
#[test]
fn a_full_bucket_gives_no_more_than_the_larger_limit() {
    for (old, new) in [(4, 2), (2, 4)] {
        let bucket = (owing(0, false), resolved(1, 0, Slot::NONE, false));
        check(&[burst(old, 1), burst(new, 2)], bucket, 2, |passed| (2..=4).contains(&passed));
    }
}

/// A change does not refill a bucket that has nothing left.
#[test]
fn an_empty_bucket_gives_nothing() {
    for (old, new) in [(4, 2), (2, 4)] {
        let bucket = (owing(old, false), resolved(1, 0, Slot::NONE, false));
        check(&[burst(old, 1), burst(new, 2)], bucket, 2, |passed| passed == 0);
    }
}

/// A conversion that waits is done once, also when the next change arrives: half used stays half used.
#[test]
fn a_waiting_conversion_is_done_once() {
    let bucket = (owing(4, false), resolved(2, 1, Slot::new(0), true));
    let limits = [burst(8, 1), burst(4, 2), burst(4, 3)];
    // Two are left, and rounding up what is owed costs the last one.
    check(&limits, bucket, 3, |passed| passed == 1);
}
