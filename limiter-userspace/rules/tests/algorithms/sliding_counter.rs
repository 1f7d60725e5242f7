//! The counter weighted by the previous window.

use limiter_common::time::Ticks;
use limiter_common::window::{Tally, WindowLimit};
use limiter_common::wire::Count;
use limiter_decision::algorithm::sliding_counter::decide;
use limiter_rules::compile::{self, Quota};
use limiter_rules::{Period, Unit};
use proptest::prelude::*;

use crate::support::{
    END, FRAME, Packet, Window, admitted, config, in_every_window, packets, pattern, period, quota,
    whole,
};

fn compiled(quota: Quota) -> WindowLimit {
    compile::sliding_counter(quota, FRAME).unwrap()
}

fn run(limit: &WindowLimit, offered: &[Packet]) -> Vec<Packet> {
    let mut words = [0; 2];
    admitted(offered, |packet| {
        decide(limit, &words, Ticks::from_nanos(packet.at), packet.units).is_some_and(|change| {
            assert!(change.new < 1 << 63, "the highest bit is not ours");
            let word = &mut words[change.index as usize];
            assert_eq!(*word, change.old);
            *word = change.new;
            true
        })
    })
}

/// limit * (1 + t / width).
fn holds(limit: &WindowLimit) -> impl Fn(Window) -> bool {
    let (width, most) = (u128::from(limit.width), u128::from(limit.limit));
    move |window| window.sum * width <= most * (width + window.length)
}

/// The naive one: the packets that passed in a list, counted in both windows for every packet.
fn oracle(quota: Quota, list: &[Packet], packet: Packet) -> bool {
    let width = u128::from(quota.period.nanos());
    let at = u128::from(packet.at);
    let number = at / width;
    let sum = |wanted: u128| -> u128 {
        list.iter()
            .filter(|packet| u128::from(packet.at) / width == wanted)
            .map(|packet| u128::from(packet.units))
            .sum()
    };
    let previous = if number == 0 { 0 } else { sum(number - 1) };
    let left = width - at % width;
    previous * left + (sum(number) + u128::from(packet.units)) * width
        <= u128::from(quota.requests_per_unit) * width
}

proptest! {
    #![proptest_config(config())]

    /// In every window of any length, and in every aligned one.
    #[test]
    fn never_over_in_any_window(quota in quota(), pattern in pattern()) {
        let limit = compiled(quota);
        let passed = run(&limit, &pattern.offered(limit.width, quota.count));
        in_every_window(&passed, holds(&limit));
        in_every_window(&passed, |window| {
            let end = u128::from(window.start) + window.length;
            let width = u128::from(limit.width);
            u128::from(window.start) / width != end / width || window.sum <= u128::from(limit.limit)
        });
        let late = pattern.with_late_clocks(limit.width, quota.count);
        prop_assert!(whole(&run(&limit, &late)).is_none_or(holds(&limit)));
    }

    /// The naive one agrees, packet by packet.
    #[test]
    fn agrees_with_a_list(quota in quota(), pattern in pattern()) {
        let limit = compiled(quota);
        // Cut where the products ask for it, and only there.
        let exact = u128::from(quota.requests_per_unit) * u128::from(quota.period.nanos()) < 1 << 62;
        prop_assert_eq!(limit.shift == 0, exact);
        prop_assume!(exact);
        let offered = pattern.offered(limit.width, quota.count);
        let mut list = Vec::new();
        let expected = admitted(&offered, |packet| {
            let passes = oracle(quota, &list, packet);
            if passes {
                list.push(packet);
            }
            passes
        });
        prop_assert_eq!(run(&limit, &offered), expected);
    }

    /// Even packets at up to one less than the limit all pass.
    #[test]
    fn conforming_source_loses_nothing(
        quota in packets(), start in 0u64..1 << 56, slower in 1000u64..3000, count in 1u64..300,
    ) {
        prop_assume!(quota.requests_per_unit > 1);
        let limit = compiled(quota);
        let gap = limit.width.div_ceil(limit.limit - 1) / 1000 * slower + 1000;
        let offered: Vec<_> = (0..count)
            .map(|index| Packet { at: start.saturating_add(index.saturating_mul(gap)), units: 1 })
            .filter(|packet| packet.at < END)
            .collect();
        prop_assert_eq!(run(&limit, &offered).len(), offered.len());
    }

    /// The weight of a limit so large that the width is cut: the last unit that passes is never
    /// behind the exact one, and before it by no more than the documented share.
    #[test]
    fn a_cut_weight_errs_by_its_formula(
        period in period(),
        bits in 20u32..=54, previous in 0u64..=1000, share in prop_oneof![Just(0u64), 0u64..1000], nanos in 0u64..1000,
    ) {
        let count_bits = WindowLimit::count_bits_of(period.nanos());
        let most = (1u64 << bits.min(u32::from(count_bits))) - 1;
        let limit = compiled(Quota::new(Count::Bytes, most, period));
        let cut = u128::from(limit.width >> limit.shift);
        prop_assert!(cut >= 128, "7 bits remain");
        prop_assert!(u128::from(most) * cut < 1 << 62);
        let previous = if previous == 1000 { most } else { most / 1000 * previous };
        let elapsed = limit.width / 1000 * share + nanos * u64::from(share != 0);
        let now = Ticks::from_nanos(5 * limit.width + elapsed);
        let passes = |count: u128| {
            let current = u64::try_from(count - 1).unwrap();
            let words = [
                limit.pack(Tally { number: 4, count: previous }),
                limit.pack(Tally { number: 5, count: current }),
            ];
            decide(&limit, &words, now, 1).is_some()
        };
        let (left, width) = (u128::from(limit.width - elapsed), u128::from(limit.width));
        let (most, previous) = (u128::from(most), u128::from(previous));
        // The largest count under a weight of left / width.
        let largest = |left: u128, width: u128| (most * width - previous * left) / width;
        let exact = largest(left, width);
        prop_assert!(exact == most || !passes(exact + 1), "too light");
        // 2 / cut more weight, but nothing weighs more than all of it.
        let strict = largest((left * cut + 2 * width).min(width * cut), width * cut);
        prop_assert!(strict == 0 || passes(strict), "too heavy");
        if elapsed == 0 || limit.shift == 0 {
            prop_assert!(exact == 0 || passes(exact), "nothing is cut here");
        }
    }

    /// A larger limit never admits fewer of the same packets.
    #[test]
    fn monotone(quota in packets(), more in 1u64..10, pattern in pattern()) {
        let limit = compiled(quota);
        let offered = pattern.offered(limit.width, Count::Packets);
        let larger = compiled(Quota { requests_per_unit: quota.requests_per_unit + more, ..quota });
        prop_assert!(run(&larger, &offered).len() >= run(&limit, &offered).len());
    }

    /// After any idle time no more than the limit, and the whole of it after two windows.
    #[test]
    fn idle_never_overfills(quota in packets(), idle in 0u64..1 << 57) {
        let limit = compiled(quota);
        let after = |again| {
            let mut offered = vec![Packet { at: 1, units: 1 }; 3];
            offered.extend(vec![Packet { at: again, units: 1 }; 70]);
            let passed = run(&limit, &offered);
            passed.iter().filter(|packet| packet.at == again).count() as u64
        };
        prop_assert!(after(2 + idle) <= limit.limit);
        prop_assert_eq!(after(2 + idle + 2 * limit.width), limit.limit);
    }

    /// A clock that ran backwards reaches no other window, and no lighter weight.
    #[test]
    fn backwards_clock_grants_nothing(quota in packets(), into in 0u64..1000, back in 0u64..1 << 57) {
        let limit = compiled(quota);
        let now = (1 << 57) / limit.width * limit.width + limit.width / 1000 * into;
        let mut offered = vec![Packet { at: now, units: 1 }; 64];
        offered.extend(vec![Packet { at: now - back.min(now), units: 1 }; 3]);
        prop_assert_eq!(run(&limit, &offered).len() as u64, limit.limit.min(64));
    }
}

/// A clock that is late by a window does not read the weight that its own window would end with.
#[test]
fn a_late_clock_counts_as_the_start_of_the_newest_window() {
    let quota = Quota::new(Count::Packets, 50, Period::one(Unit::Second));
    let limit = compiled(quota);
    let border = 7 * limit.width;
    let burst = |at| vec![Packet { at, units: 1 }; 100];
    let offered = [burst(border - 1), burst(border + limit.width / 2), burst(border - 1)].concat();
    let passed = run(&limit, &offered);
    assert_eq!(passed.len(), 75);
    // An equal instant by a clock that is not late.
    let offered =
        [burst(border - 1), burst(border + limit.width / 2), burst(border + limit.width - 1)];
    assert_eq!(run(&limit, &offered.concat()).len(), 99);
}

/// A border at which a fixed window passes twice the limit: this one passes it once; the
/// first packet after the border comes as soon as the weight allows.
#[test]
fn no_double_burst_at_the_border() {
    let quota = Quota::new(Count::Packets, 50, Period::one(Unit::Second));
    let limit = compiled(quota);
    let border = 7 * limit.width;
    let mut offered = vec![Packet { at: border - 1, units: 1 }; 200];
    offered.extend(vec![Packet { at: border, units: 1 }; 200]);
    let share = limit.width / 50;
    offered.extend(vec![Packet { at: border + share - 1, units: 1 }; 200]);
    offered.extend(vec![Packet { at: border + share, units: 1 }; 200]);
    let passed = run(&limit, &offered);
    assert_eq!(passed.len(), 51);
    assert_eq!(passed[50].at, border + share);
}

/// Greatest error above the exact log: N, and N - 1 more within a window's length.
#[test]
fn the_error_above_the_log_is_reached() {
    let quota = Quota::new(Count::Packets, 50, Period::one(Unit::Second));
    let limit = compiled(quota);
    let border = 7 * limit.width;
    let mut offered = vec![Packet { at: border - 1, units: 1 }; 50];
    let thousandth = limit.width / 1000;
    offered.extend((0..999).map(|step| Packet { at: border + step * thousandth, units: 1 }));
    let passed = run(&limit, &offered);
    assert_eq!(passed.len(), 50 + 49);
    assert!(passed[98].at - passed[0].at < limit.width);
}
