//! The window of slots, on both sides of its error.

use limiter_common::time::Ticks;
use limiter_common::window::{MAX_SLOTS, Tally, WindowLimit};
use limiter_common::wire::Count;
use limiter_decision::algorithm::sliding_slots::decide;
use limiter_rules::compile::{self, Quota, SlotError};
use limiter_rules::{Period, Unit};
use proptest::prelude::*;

use crate::support::{
    END, FRAME, Packet, Window, admitted, config, in_every_window, packets, pattern, quota,
};

fn compiled(quota: Quota, slots: u8, error: SlotError) -> WindowLimit {
    compile::sliding_slots(quota, slots, error, FRAME).unwrap()
}

fn slots() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![2u8, 4, 8])
}

fn error() -> impl Strategy<Value = SlotError> {
    prop::sample::select(vec![SlotError::Lenient, SlotError::Strict])
}

fn run(limit: &WindowLimit, offered: &[Packet]) -> Vec<Packet> {
    let mut words = [0; MAX_SLOTS];
    admitted(offered, |packet| {
        decide(limit, &words, Ticks::from_nanos(packet.at), packet.units).is_some_and(|change| {
            assert!(change.new < 1 << 63, "the highest bit is not ours");
            assert!(change.index < u32::from(limit.slots));
            let word = &mut words[change.index as usize];
            assert_eq!(*word, change.old);
            *word = change.new;
            true
        })
    })
}

/// limit * ceil((ceil(t / width) + 1) / slots).
fn holds(limit: &WindowLimit) -> impl Fn(Window) -> bool {
    let (width, most) = (u128::from(limit.width), u128::from(limit.limit));
    let slots = u128::from(limit.slots);
    move |window| window.sum <= most * (window.length.div_ceil(width) + 1).div_ceil(slots)
}

proptest! {
    #![proptest_config(config())]

    /// In every window of any length.
    #[test]
    fn never_over_in_any_window(
        quota in quota(), slots in slots(), error in error(), pattern in pattern(),
    ) {
        let limit = compiled(quota, slots, error);
        in_every_window(&run(&limit, &pattern.offered(quota.period.nanos(), quota.count)), holds(&limit));
        // A late packet may be one too many, and takes nothing from the bound of the others.
        let offered = pattern.with_late_clocks(quota.period.nanos(), quota.count);
        let passed = run(&limit, &offered);
        let mut newest = 0;
        let in_time: Vec<Packet> = passed
            .into_iter()
            .filter(|packet| {
                newest = newest.max(packet.at);
                packet.at == newest
            })
            .collect();
        in_every_window(&in_time, holds(&limit));
    }

    /// Strict: the limit in every half-open window of the rule.
    #[test]
    fn strict_is_never_over(quota in quota(), slots in slots(), pattern in pattern()) {
        let limit = compiled(quota, slots, SlotError::Strict);
        let passed = run(&limit, &pattern.offered(quota.period.nanos(), quota.count));
        in_every_window(&passed, |window| {
            window.length >= u128::from(quota.period.nanos())
                || window.sum <= u128::from(quota.requests_per_unit)
        });
    }

    /// Lenient: anybody who keeps the exact log of the same window loses nothing.
    #[test]
    fn lenient_passes_what_a_log_passes(quota in packets(), slots in slots(), pattern in pattern()) {
        let limit = compiled(quota, slots, SlotError::Lenient);
        let mut list: Vec<u64> = Vec::new();
        let conforming = admitted(&pattern.offered(quota.period.nanos(), Count::Packets), |packet| {
            let recent = list.iter().filter(|at| packet.at - **at < quota.period.nanos()).count();
            let passes = (recent as u64) < quota.requests_per_unit;
            if passes {
                list.push(packet.at);
            }
            passes
        });
        prop_assert_eq!(run(&limit, &conforming).len(), conforming.len());
    }

    /// The naive one: the packets that passed in a list, those of the last slots counted.
    #[test]
    fn agrees_with_a_list(
        quota in quota(), slots in slots(), error in error(), pattern in pattern(),
    ) {
        let limit = compiled(quota, slots, error);
        let parts = u128::from(if error == SlotError::Strict { slots - 1 } else { slots });
        let width = u128::from(quota.period.nanos()).div_ceil(parts);
        let offered = pattern.offered(quota.period.nanos(), quota.count);
        let mut list: Vec<Packet> = Vec::new();
        let expected = admitted(&offered, |packet| {
            let slot = u128::from(packet.at) / width;
            let recent: u64 = list
                .iter()
                .filter(|packet| u128::from(packet.at) / width + u128::from(slots) > slot)
                .map(|packet| packet.units)
                .sum();
            let passes = recent + packet.units <= quota.requests_per_unit;
            if passes {
                list.push(packet);
            }
            passes
        });
        prop_assert_eq!(run(&limit, &offered), expected);
    }

    /// A larger limit never admits fewer of the same packets.
    #[test]
    fn monotone(
        quota in packets(), slots in slots(), error in error(), more in 1u64..10,
        pattern in pattern(),
    ) {
        let offered = pattern.offered(quota.period.nanos(), Count::Packets);
        let larger = Quota { requests_per_unit: quota.requests_per_unit + more, ..quota };
        let count = |quota| run(&compiled(quota, slots, error), &offered).len();
        prop_assert!(count(larger) >= count(quota));
    }

    /// After any idle time no more than the limit, and the whole of it after all slots.
    #[test]
    fn idle_never_overfills(quota in packets(), slots in slots(), idle in 0u64..1 << 57) {
        let limit = compiled(quota, slots, SlotError::Lenient);
        let after = |again| {
            let mut offered = vec![Packet { at: 1, units: 1 }; 3];
            offered.extend(vec![Packet { at: again, units: 1 }; 70]);
            let passed = run(&limit, &offered);
            passed.iter().filter(|packet| packet.at == again).count() as u64
        };
        prop_assert!(after(2 + idle) <= limit.limit);
        prop_assert_eq!(after(2 + idle + quota.period.nanos()), limit.limit);
    }

    /// A clock that ran backwards reaches no other slot.
    #[test]
    fn backwards_clock_grants_nothing(quota in packets(), slots in slots(), back in 0u64..1 << 57) {
        let limit = compiled(quota, slots, SlotError::Lenient);
        let mut offered = vec![Packet { at: 1 << 57, units: 1 }; 64];
        offered.extend(vec![Packet { at: (1 << 57) - back, units: 1 }; 3]);
        prop_assert_eq!(run(&limit, &offered).len() as u64, limit.limit);
    }
}

/// The error of a lenient window is real: twice the limit in less than a window, and the limit
/// alone in a slot less.
#[test]
fn the_error_of_one_slot_is_reached() {
    let quota = Quota::new(Count::Packets, 50, Period::one(Unit::Second));
    for slots in [2u8, 4, 8] {
        let limit = compiled(quota, slots, SlotError::Lenient);
        let late = 8 * quota.period.nanos() + limit.width - 1;
        let leaves = 8 * quota.period.nanos() + quota.period.nanos();
        let burst = |at| vec![Packet { at, units: 1 }; 100];
        let offered = [burst(late), burst(leaves - 1), burst(leaves)].concat();
        let passed = run(&limit, &offered);
        assert_eq!(passed.len(), 100);
        assert_eq!(passed[50].at, leaves);
        assert_eq!(passed[50].at - passed[0].at, quota.period.nanos() - limit.width + 1);
        // Strict makes it wait for the whole window.
        let limit = compiled(quota, slots, SlotError::Strict);
        assert!(limit.width * u64::from(slots - 1) >= quota.period.nanos());
    }
}

/// The edges of the words: the largest count, in the last slot of the clock's range.
#[test]
fn the_largest_count_and_the_last_slot() {
    let second = |most| Quota::new(Count::Bytes, most, Period::one(Unit::Second));
    let most = (1 << 31) - 1;
    let limit = compiled(second(most), 8, SlotError::Lenient);
    assert_eq!(limit.max_limit(), most);
    let mut words = [0; MAX_SLOTS];
    let end = Ticks::from_nanos(END);
    let change = decide(&limit, &words, end, most).unwrap();
    assert!(change.new < 1 << 63);
    words[change.index as usize] = change.new;
    assert_eq!(decide(&limit, &words, end, 1), None);
    assert_eq!(decide(&limit, &words, end, u64::MAX), None);
    // All slots full to the brim still add up.
    let last = limit.unpack(change.new).number;
    for back in 0..8 {
        let number = last - back;
        words[usize::try_from(number % 8).unwrap()] = limit.pack(Tally { number, count: most });
    }
    assert_eq!(decide(&limit, &words, end, most), None);
    assert!(compile::sliding_slots(second(most + 1), 8, SlotError::Lenient, FRAME).is_err());
}
