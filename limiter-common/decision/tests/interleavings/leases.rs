//! Packets of a budget that nodes share, while the daemon lowers its lease, ends it, and hands it
//! out again.

use std::sync::atomic::{AtomicBool, Ordering};

use limiter_common::time::Ticks;
use limiter_common::wire::Algorithm::{FixedWindow, TokenBucket};
use limiter_common::wire::Record;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use crate::maps::{every_order_within, fails_without_fences};
use crate::tables_maps::{Maps, limit_of, passes, rule};

/// The end of a lease that lives.
const LATER: Ticks = Ticks::new(u64::MAX);

/// The end of one that does not.
const ENDED: Ticks = Ticks::ZERO;

/// The budget, which passes nothing without a lease.
fn shared(record: Record) -> Record {
    Record { budget: 1, leased: 1, closed: 1, ..record }
}

/// A budget whose lease has `granted` units, until `expires`.
fn budget(granted: u64, expires: Ticks) -> Maps {
    let maps = Maps::new(&[shared(rule(&[limit_of(TokenBucket, 8)], 1))], &[[0, 0]]);
    maps.lease().grant(granted, expires);
    maps
}

/// Packets, one after the other, on another CPU: which of them passed.
fn elsewhere<const N: usize>(maps: &Arc<Maps>) -> JoinHandle<[bool; N]> {
    let maps = Arc::clone(maps);
    thread::spawn(move || [(); N].map(|()| passes(maps.packet())))
}

/// The daemon grants more or less while two packets charge: no more passes than the largest grant,
/// each packet is counted once, and who comes later keeps to the new one.
#[test]
fn no_more_passes_than_was_granted() {
    for (before, after) in [(1, 2), (2, 1), (1, 1), (2, 0)] {
        every_order_within(2, move || {
            let maps = Arc::new(budget(before, LATER));
            let packets = [elsewhere::<1>(&maps), elsewhere::<1>(&maps)];
            let first = maps.lease().used();
            maps.lease().grant(after, LATER);
            let second = maps.lease().used();
            let passed = packets.map(|packet| packet.join().unwrap()[0]);
            let passed = passed.into_iter().filter(|passed| *passed).count();
            let used = maps.lease().used();
            assert_eq!(used, u64::try_from(passed).unwrap(), "{before} {after}");
            assert!(used <= before.max(after), "{used}: {before} {after}");
            assert!(first <= second && second <= used, "{first} {second} {used}");
            let rest = u64::try_from(maps.rest()).unwrap();
            assert_eq!(rest, after.saturating_sub(used), "{before} {after}");
        });
    }
}

/// The daemon ends the lease: a packet after it is refused, and so is every packet after one that
/// saw the end.
#[test]
fn nothing_passes_after_the_end() {
    every_order_within(3, || {
        let maps = Arc::new(budget(9, LATER));
        let others = elsewhere::<2>(&maps);
        maps.lease().grant(9, ENDED);
        let here = passes(maps.packet());
        let [first, second] = others.join().unwrap();
        assert!(!here, "a packet passed after the end");
        assert!(first || !second, "an ended lease passed a packet");
        let used = u64::from(first) + u64::from(second);
        assert_eq!(maps.rest(), 0);
        assert_eq!(maps.lease().used(), used);
    });
}

/// A lease that begins to live has the units of its new grant, and none of those before.
#[test]
fn a_lease_begins_with_its_new_grant() {
    for granted in [0, 1] {
        every_order_within(2, move || {
            let maps = Arc::new(budget(3, ENDED));
            let others = elsewhere::<2>(&maps);
            maps.lease().grant(granted, LATER);
            let here = passes(maps.packet());
            let [first, second] = others.join().unwrap();
            let passed = [here, first, second].into_iter().filter(|passed| *passed).count();
            assert_eq!(u64::try_from(passed).unwrap(), granted);
            assert_eq!((maps.rest(), maps.lease().used()), (0, granted));
        });
    }
}

/// On processors that change the places of loads, a fence keeps what is granted behind its end.
#[test]
fn without_fences_a_lease_begins_with_an_old_grant() {
    assert!(fails_without_fences(a_lease_begins_with_its_new_grant));
}

/// The daemon ends a lease, reads what was used, and hands the lease out again with one more unit.
/// A packet of before that is late charges it all the same: the new holder has that much less.
#[test]
fn a_lease_that_is_handed_out_again_begins_at_what_was_used() {
    every_order_within(2, || {
        let maps = budget(2, LATER);
        assert!(passes(maps.packet()));
        let maps = Arc::new(maps);
        let packets = [elsewhere::<1>(&maps), elsewhere::<1>(&maps)];
        maps.lease().grant(2, ENDED);
        let base = maps.lease().used();
        maps.lease().grant(base + 1, LATER);
        let passed = packets.map(|packet| packet.join().unwrap()[0]);
        let passed = passed.into_iter().filter(|passed| *passed).count();
        let used = maps.lease().used();
        assert_eq!(used, 1 + u64::try_from(passed).unwrap());
        assert!(used - base <= 1, "{used} of {base} and one more");
        assert_eq!(u64::try_from(maps.rest()).unwrap(), base + 1 - used);
    });
}

/// Another limit has room for one of two packets: the other one takes its units back, or they stay
/// used, the safe side. Both happen.
#[test]
fn a_charge_is_taken_back_or_stays() {
    let own = limit_of(TokenBucket, 8);
    let of_one = limit_of(FixedWindow, 1);
    let one_rule = (vec![shared(rule(&[own, of_one], 1))], vec![[0, 0]]);
    let two_tables = (vec![shared(rule(&[own], 1)), rule(&[of_one], 1)], vec![[0, 0], [1, 1]]);
    for (records, rules) in [one_rule, two_tables] {
        let seen: [std::sync::Arc<AtomicBool>; 2] = Default::default();
        let (here, tables) = (seen.clone(), rules.len());
        every_order_within(2, move || {
            let maps = Maps::new(&records, &rules);
            maps.lease().grant(3, LATER);
            let maps = Arc::new(maps);
            let packets = [elsewhere::<1>(&maps), elsewhere::<1>(&maps)];
            let read = maps.lease().used();
            maps.lease().grant(2, LATER);
            let passed = packets.map(|packet| packet.join().unwrap()[0]);
            let used = maps.lease().used();
            assert!(passed[0] ^ passed[1], "the other limit has room for one");
            assert!((1..=2).contains(&used) && read <= 2, "{used}, {read} before");
            here[usize::try_from(used - 1).unwrap()].store(true, Ordering::Relaxed);
            // Nothing is charged for what the other limit refuses at the look.
            assert_eq!((maps.rest(), maps.lease().used()), (0, used));
        });
        assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed)), "{seen:?}: {tables} tables");
    }
}
