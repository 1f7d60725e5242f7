//! Packets at one limit of a keyed bucket on several CPUs, for every algorithm, and charges that
//! are taken back meanwhile.

use limiter_common::time::Ticks;
use limiter_common::window::{LogLimit, WallOffset, WindowLimit};
use limiter_common::wire::{Algorithm, Count, Limit, LimitSpec, Role};
use limiter_decision::meter::{self, Arrival, Charged, Undo};
use loom::sync::Arc;
use loom::thread;

use crate::maps::{LoomWord, every_order};

/// A second in nanoseconds: the width of every window and slot here.
const WIDTH: u64 = 1_000_000_000;

/// In the middle of the hundredth window, whose number is even.
const NOW: u64 = 100 * WIDTH + WIDTH / 2;

/// The words of one bucket: more than any limit here has.
type Bucket = Arc<[LoomWord; 5]>;

/// Every algorithm, each with a limit of so many packets.
fn specs(packets: u8) -> [LimitSpec; 7] {
    let rate = |at_once: u64| {
        let increment = 1 << 20;
        let tolerance = at_once * increment;
        Limit { increment, tolerance, ..Limit::default() }
    };
    let window = |slots| WindowLimit {
        width: WIDTH,
        limit: u64::from(packets),
        count_bits: WindowLimit::count_bits_of(WIDTH),
        slots,
        ..WindowLimit::default()
    };
    let log = LogLimit { window: WIDTH, size: packets, ..LogLimit::default() };
    let at_once = u64::from(packets);
    [
        LimitSpec::of_rate(Algorithm::TokenBucket, &rate(at_once), Role::Hard),
        LimitSpec::of_rate(Algorithm::LeakyBucket, &rate(at_once - 1), Role::Hard),
        LimitSpec::of_window(Algorithm::FixedWindow, &window(1), Role::Hard),
        LimitSpec::of_window(Algorithm::SlidingCounter, &window(1), Role::Hard),
        LimitSpec::of_window(Algorithm::SlidingSlots, &window(2), Role::Hard),
        LimitSpec::of_window(Algorithm::SlidingSlots, &window(4), Role::Hard),
        LimitSpec::of_log(&log, Count::Packets, Role::Hard),
    ]
}

fn bucket() -> Bucket {
    Arc::new(std::array::from_fn(|_| LoomWord::new(0)))
}

fn charge_at(spec: &LimitSpec, bucket: &Bucket, at: u64) -> Option<Undo> {
    let now = Ticks::from_nanos(at);
    let arrival = Arrival { now, offset: WallOffset::BOOT, units: 1, is_super_frame: false };
    let mut undo = Undo::default();
    let charged = meter::charge(spec, &&**bucket, false, &arrival, &mut undo);
    assert!(matches!(charged, Charged::Conforming | Charged::Over), "{charged:?}");
    (charged == Charged::Conforming).then_some(undo)
}

fn passes(spec: &LimitSpec, bucket: &Bucket) -> bool {
    charge_at(spec, bucket, NOW).is_some()
}

/// The packets that still pass, one after the other.
fn rest(spec: &LimitSpec, bucket: &Bucket) -> u8 {
    let mut passed = 0;
    while passes(spec, bucket) {
        passed += 1;
        assert!(passed < 32, "no limit here has room for so many");
    }
    passed
}

/// Two packets at once and a third after: what is there passes, and not one packet more or less.
#[test]
fn packets_at_once_get_what_there_is() {
    for limit in 1..=3 {
        for spec in specs(limit) {
            every_order(move || {
                let bucket = bucket();
                let other = thread::spawn({
                    let bucket = Arc::clone(&bucket);
                    move || passes(&spec, &bucket)
                });
                let mut passed = u8::from(passes(&spec, &bucket));
                passed += u8::from(other.join().unwrap());
                assert_eq!(passed, limit.min(2), "{spec:?}");
                assert_eq!(passed + rest(&spec, &bucket), limit, "{spec:?}");
            });
        }
    }
}

/// Packets that wait depart as if one CPU had charged them one after the other, an interval apart.
#[test]
fn packets_that_wait_depart_one_after_the_other() {
    const INTERVAL: u64 = 1 << 20;
    let now = Ticks::from_nanos(NOW);
    for spec in specs(1).into_iter().filter(LimitSpec::is_rate) {
        let spec = spec.with_longest_wait(Ticks::new(4 * INTERVAL));
        let departure = move |bucket: &Bucket| {
            let charge = charge_at(&spec, bucket, NOW).unwrap();
            meter::departure(&spec, &charge, now).since(now).get() / INTERVAL
        };
        every_order(move || {
            let bucket = bucket();
            let other = thread::spawn({
                let bucket = Arc::clone(&bucket);
                move || departure(&bucket)
            });
            let own = [departure(&bucket), departure(&bucket)];
            assert!(own[0] < own[1], "{spec:?}");
            let mut all = [own[0], own[1], other.join().unwrap()];
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2], "{spec:?}");
        });
    }
}

/// Three at once, of which two find room.
#[test]
fn three_packets_get_what_there_is() {
    for spec in specs(2) {
        every_order(move || {
            let bucket = bucket();
            let others = [(); 2].map(|()| {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || passes(&spec, &bucket))
            });
            let mut passed = u8::from(passes(&spec, &bucket));
            for other in others {
                passed += u8::from(other.join().unwrap());
            }
            assert_eq!(passed, 2, "{spec:?}");
        });
    }
}

/// Two packets with clocks on both sides of a border. Where windows slide the one that is late may
/// be missing in what the other one judged: one packet too many, no more. Fixed windows have their
/// limit each; the others know no borders.
#[test]
fn a_border_between_two_packets_costs_one() {
    const BORDER: u64 = 101 * WIDTH;
    for spec in specs(2) {
        every_order(move || {
            let bucket = bucket();
            assert!(charge_at(&spec, &bucket, BORDER - 2).is_some());
            let other = thread::spawn({
                let bucket = Arc::clone(&bucket);
                move || charge_at(&spec, &bucket, BORDER).is_some()
            });
            let mut passed = 1 + u8::from(charge_at(&spec, &bucket, BORDER - 1).is_some());
            passed += u8::from(other.join().unwrap());
            while passed <= 4 && charge_at(&spec, &bucket, BORDER).is_some() {
                passed += 1;
            }
            let most = match spec.algorithm() {
                Algorithm::FixedWindow => 4,
                Algorithm::SlidingCounter | Algorithm::SlidingSlots => 3,
                _ => 2,
            };
            assert!((2..=most).contains(&passed), "{passed} of {spec:?}");
        });
    }
}

/// A packet that another limit refuses takes its charge back while another one is charged: all that
/// stays charged is within the limit, and nothing but the skipped entry of a log is lost.
#[test]
fn a_charge_that_is_taken_back_grants_nothing() {
    for limit in 1..=2 {
        for spec in specs(limit) {
            every_order(move || {
                let bucket = bucket();
                let other = thread::spawn({
                    let bucket = Arc::clone(&bucket);
                    move || passes(&spec, &bucket)
                });
                let kept = match charge_at(&spec, &bucket, NOW) {
                    Some(undo) => !meter::undo(&&*bucket, &undo),
                    None => false,
                };
                let mut passed = u8::from(kept);
                passed += u8::from(other.join().unwrap());
                passed += rest(&spec, &bucket);
                let least = match spec.algorithm() {
                    Algorithm::SlidingLog => limit - 1,
                    _ => limit,
                };
                assert!((least..=limit).contains(&passed), "{passed} of {spec:?}");
            });
        }
    }
}

/// Both are taken back, in any order: the limit is as it was, or one charge stays.
#[test]
fn two_charges_that_are_taken_back_leave_at_most_one() {
    for spec in specs(2) {
        every_order(move || {
            let bucket = bucket();
            let back = move |bucket: &Bucket| match charge_at(&spec, bucket, NOW) {
                Some(undo) => !meter::undo(&&**bucket, &undo),
                None => false,
            };
            let other = thread::spawn({
                let bucket = Arc::clone(&bucket);
                move || back(&bucket)
            });
            let mut kept = u8::from(back(&bucket));
            kept += u8::from(other.join().unwrap());
            assert!(kept <= 1, "{spec:?}");
            let rest = rest(&spec, &bucket);
            match spec.algorithm() {
                // Entries that were skipped come round in a window.
                Algorithm::SlidingLog => assert!(kept + rest <= 2, "{spec:?}"),
                _ => assert_eq!(kept + rest, 2, "{spec:?}"),
            }
        });
    }
}

/// The log's skipped entry is there again when the head comes round.
#[test]
fn a_skipped_entry_comes_back() {
    let [.., spec] = specs(3);
    loom::model(move || {
        let bucket = bucket();
        let undo = charge_at(&spec, &bucket, NOW).unwrap();
        assert!(meter::undo(&&*bucket, &undo));
        assert_eq!(rest(&spec, &bucket), 3, "the head goes round while there is room");
        let later = NOW + WIDTH;
        let again = (0..4).filter(|_| charge_at(&spec, &bucket, later).is_some()).count();
        assert_eq!(again, 3);
    });
}
