//! Packets on two CPUs while the daemon puts another limit in force.

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::wire::Limit;
use loom::sync::Arc;
use loom::thread;

use crate::maps::{Maps, burst, every_order, fails_without_fences, owing, passes, resolved};

/// Two packets and a commit of `generation` at once, in every order. Then the rest of the bucket:
/// what passed in all.
fn under_a_change(maps: Maps, generation: u64) -> usize {
    let maps = Arc::new(maps);
    let other = thread::spawn({
        let maps = Arc::clone(&maps);
        move || maps.packet()
    });
    let daemon = thread::spawn({
        let maps = Arc::clone(&maps);
        move || maps.commit(generation)
    });
    let mut passed = usize::from(passes(maps.packet()));
    passed += usize::from(passes(other.join().unwrap()));
    daemon.join().unwrap();
    passed + maps.pass_of(10)
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
        let maps =
            Maps::new(generation - 1, &limits, slots(&limits, generation)).with_bucket(owed, at);
        let passed = under_a_change(maps, generation);
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

/// On processors that change the places of loads, a fence keeps the second look at `resolved`
/// behind the look at the slots, and at the word.
#[test]
fn without_fences_a_full_bucket_gives_less() {
    assert!(fails_without_fences(a_full_bucket_gives_no_more_than_the_larger_limit));
}

/// A waiting conversion is done once, also when the next change arrives: what was available stays
/// so.
#[test]
fn a_waiting_conversion_is_done_once() {
    let limits = [burst(8, 1), burst(4, 2), burst(4, 3)];
    for (owed, left) in [(8, 0), (6, 2), (4, 4), (2, 4)] {
        let bucket = (owing(owed, false), resolved(2, 1, Slot::new(0), true));
        check(&limits, bucket, 3, move |passed| passed == left);
    }
}

/// Time goes on while packets on two CPUs, one of which may be held up between the rule set and the
/// clock, meet a change whose time is noted after it. However they meet, the time counts once: a
/// bucket that was empty passes no more than what came back since, under limits of one rate.
#[test]
fn the_time_around_a_change_counts_once() {
    for (old, new) in [(4, 2), (2, 4), (1, 4)] {
        every_order(move || {
            let limits = [burst(old, 1), burst(new, 2)];
            let maps = Maps::new(1, &limits, [1, 0])
                .with_bucket(owing(old, false), resolved(1, 0, Slot::NONE, false));
            let maps = Arc::new(maps);
            let other = thread::spawn({
                let maps = Arc::clone(&maps);
                move || maps.packet_now()
            });
            let daemon = thread::spawn({
                let maps = Arc::clone(&maps);
                move || maps.commit_and_note(2)
            });
            let mut passed = u64::from(passes(maps.packet_now()));
            passed += u64::from(passes(other.join().unwrap()));
            daemon.join().unwrap();
            // All that is left now, at one look at the clock.
            passed += maps.pass_of_now(10);
            let gone = maps.gone();
            assert!(passed <= gone, "{passed} packets passed in the time of {gone}");
        });
    }
}
