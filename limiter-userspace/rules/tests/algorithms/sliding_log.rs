//! The exact log.

use std::sync::atomic::AtomicU64;

use limiter_common::time::Ticks;
use limiter_common::window::{LogLimit, MAX_SIZE};
use limiter_common::wire::Count;
use limiter_decision::algorithm::Charged;
use limiter_decision::algorithm::sliding_log::{Head, LogDecision, charge, decide};
use limiter_rules::compile::{self, Quota};
use limiter_rules::{Period, Unit};
use proptest::prelude::*;

use crate::support::{
    END, Packet, Window, admitted, config, in_every_window, packets_up_to, pattern, whole,
};

fn compiled(quota: Quota) -> LogLimit {
    compile::sliding_log(quota).unwrap()
}

fn run(limit: &LogLimit, offered: &[Packet]) -> Vec<Packet> {
    let head = AtomicU64::new(0);
    let ring = [const { AtomicU64::new(0) }; 31];
    admitted(offered, |packet| {
        let charged = charge(limit, &head, &&ring, Ticks::from_nanos(packet.at));
        assert_ne!(charged, Charged::Contended, "there is one CPU");
        charged == Charged::Conforming
    })
}

fn holds(limit: &LogLimit) -> impl Fn(Window) -> bool {
    let (length, most) = (u128::from(limit.window), u128::from(limit.size));
    move |window| window.sum <= most * (window.length / length + 1)
}

/// As many packets as a log may hold.
fn logged() -> impl Strategy<Value = Quota> {
    packets_up_to(u64::from(MAX_SIZE))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn never_over_in_any_window(quota in logged(), pattern in pattern()) {
        let limit = compiled(quota);
        in_every_window(&run(&limit, &pattern.offered(limit.window, Count::Packets)), holds(&limit));
        let late = pattern.with_late_clocks(limit.window, Count::Packets);
        prop_assert!(whole(&run(&limit, &late)).is_none_or(holds(&limit)));
    }

    /// The naive one: all times in a list, those of the last window counted for every packet. It
    /// passes what it can, so this is the lower bound too.
    #[test]
    fn agrees_with_a_list(quota in logged(), pattern in pattern()) {
        let limit = compiled(quota);
        let offered = pattern.offered(limit.window, Count::Packets);
        let mut list: Vec<u64> = Vec::new();
        let expected = admitted(&offered, |packet| {
            let recent = list.iter().filter(|at| packet.at - **at < quota.period.nanos()).count();
            let passes = (recent as u64) < quota.requests_per_unit;
            if passes {
                list.push(packet.at);
            }
            passes
        });
        prop_assert_eq!(run(&limit, &offered), expected);
    }

    /// A source that sends no more than the limit in any window, however bunched, loses nothing.
    #[test]
    fn conforming_source_loses_nothing(quota in logged(), windows in 1u64..80, start in 0u64..END / 2) {
        let limit = compiled(quota);
        let offered: Vec<_> = (0..windows)
            .map(|window| start + window * limit.window)
            .take_while(|at| *at < END)
            .flat_map(|at| vec![Packet { at, units: 1 }; usize::from(limit.size)])
            .collect();
        prop_assert_eq!(run(&limit, &offered).len(), offered.len());
    }

    /// A larger limit or a shorter window never admits fewer of the same packets.
    #[test]
    fn monotone(quota in logged(), more in 1u64..10, pattern in pattern()) {
        let limit = compiled(quota);
        let offered = pattern.offered(limit.window, Count::Packets);
        let least = run(&limit, &offered).len();
        let larger = LogLimit { size: limit.size.saturating_add(u8::try_from(more).unwrap()).min(MAX_SIZE), ..limit };
        let shorter = LogLimit { window: limit.window / more, ..limit };
        prop_assert!(run(&larger, &offered).len() >= least);
        prop_assert!(run(&shorter, &offered).len() >= least);
    }

    /// After any idle time exactly the limit.
    #[test]
    fn idle_never_overfills(quota in logged(), idle in 0u64..1 << 57) {
        let limit = compiled(quota);
        let mut offered = vec![Packet { at: 1, units: 1 }; 3];
        let again = 1 + limit.window + idle;
        offered.extend(vec![Packet { at: again, units: 1 }; 70]);
        let passed = run(&limit, &offered);
        let after = passed.iter().filter(|packet| packet.at == again).count();
        prop_assert_eq!(after, usize::from(limit.size));
    }

    /// A clock that ran backwards counts as no time.
    #[test]
    fn backwards_clock_grants_nothing(quota in logged(), back in 0u64..1 << 57) {
        let limit = compiled(quota);
        let mut offered = vec![Packet { at: 1 << 57, units: 1 }; usize::from(limit.size)];
        offered.extend(vec![Packet { at: (1 << 57) - back, units: 1 }; 3]);
        prop_assert_eq!(run(&limit, &offered).len(), usize::from(limit.size));
    }
}

/// The first nanosecond at which the oldest packet is out of the window, and the one before it.
#[test]
fn the_edge_of_the_window() {
    let quota = Quota::new(Count::Packets, 3, Period::one(Unit::Second));
    let limit = compiled(quota);
    let second = 1_000_000_000;
    let at = |times: &[u64]| {
        let offered: Vec<_> = times.iter().map(|at| Packet { at: *at, units: 1 }).collect();
        run(&limit, &offered).len()
    };
    assert_eq!(at(&[10, 20, 30, second + 9]), 3);
    assert_eq!(at(&[10, 20, 30, second + 10]), 4);
    assert_eq!(at(&[10, 20, 30, second + 10, second + 19]), 4);
    assert_eq!(at(&[10, 20, 30, second + 10, second + 20]), 5);
    // Time zero is an instant like any other, but for a nanosecond.
    assert_eq!(at(&[0, 0, 0, 0, second]), 3);
    assert_eq!(at(&[0, 0, 0, 0, second + 1]), 4);
}

/// Words stay below their highest bit, and a head that lags is reported so.
#[test]
fn words_at_the_end_of_the_range() {
    let limit = LogLimit { window: 1, size: MAX_SIZE, ..LogLimit::default() };
    let head = Head::from_raw(u64::MAX >> 1);
    let LogDecision::Pass { entry, head: next } = decide(&limit, head, 31, Ticks::from_nanos(END))
    else {
        panic!("an entry of the lap before, without a stamp, conforms");
    };
    assert!(entry < 1 << 63 && next < 1 << 63);
    assert_eq!(decide(&limit, head, entry, Ticks::from_nanos(END)), LogDecision::Behind(next));
}
