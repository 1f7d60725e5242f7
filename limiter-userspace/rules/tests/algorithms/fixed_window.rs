//! A count in each window of the wall clock.

use std::collections::HashMap;

use limiter_common::time::Ticks;
use limiter_common::window::{LATE, WallOffset, WindowLimit};
use limiter_common::wire::Count;
use limiter_decision::algorithm::fixed_window::decide;
use limiter_rules::compile::{self, Quota};
use limiter_rules::{Period, Unit};
use proptest::prelude::*;

use crate::support::{
    END, FRAME, Packet, Window, admitted, boot, config, in_every_window, packets, pattern, quota,
    whole,
};

fn run(limit: &WindowLimit, offset: WallOffset, offered: &[Packet]) -> Vec<Packet> {
    let mut word = 0;
    admitted(offered, |packet| {
        decide(limit, offset, word, Ticks::from_nanos(packet.at), packet.units).is_some_and(
            |next| {
                assert!(next < 1 << 63, "the highest bit is not ours");
                word = next;
                true
            },
        )
    })
}

fn compiled(quota: Quota) -> WindowLimit {
    compile::fixed_window(quota, FRAME).unwrap()
}

fn holds(limit: &WindowLimit) -> impl Fn(Window) -> bool {
    let (width, most) = (u128::from(limit.width), u128::from(limit.limit));
    move |window| window.sum <= most * (window.length.div_ceil(width) + 1)
}

proptest! {
    #![proptest_config(config())]

    /// In every window of any length, and in every aligned one.
    #[test]
    fn never_over_in_any_window(quota in quota(), offset in boot(), pattern in pattern()) {
        let limit = compiled(quota);
        let offered = pattern.offered(limit.width, quota.count);
        let passed = run(&limit, WallOffset::new(offset), &offered);
        in_every_window(&passed, holds(&limit));
        let mut sums = HashMap::new();
        for packet in passed {
            let window = (u128::from(packet.at) + u128::from(offset)) / u128::from(limit.width);
            let sum = sums.entry(window).or_insert(0);
            *sum += packet.units;
            prop_assert!(*sum <= limit.limit);
        }
        let mut late = pattern.with_late_clocks(limit.width, quota.count);
        for (late, offered) in late.iter_mut().zip(&offered) {
            late.at = late.at.max(offered.at.saturating_sub(LATE));
        }
        let late = run(&limit, WallOffset::new(offset), &late);
        prop_assert!(whole(&late).is_none_or(holds(&limit)));
    }

    /// The naive one: a table of counts by window.
    #[test]
    fn agrees_with_a_table(quota in quota(), offset in boot(), pattern in pattern()) {
        let limit = compiled(quota);
        let offered = pattern.offered(limit.width, quota.count);
        let mut table: HashMap<u128, u64> = HashMap::new();
        let expected = admitted(&offered, |packet| {
            let wall = u128::from(packet.at) + u128::from(offset);
            let count = table.entry(wall / u128::from(quota.period.nanos())).or_default();
            let passes = *count + packet.units <= quota.requests_per_unit;
            if passes {
                *count += packet.units;
            }
            passes
        });
        prop_assert_eq!(run(&limit, WallOffset::new(offset), &offered), expected);
    }

    /// A source that sends the limit in each aligned window, however bunched, loses nothing,
    /// whatever numbers the windows have.
    #[test]
    fn conforming_source_loses_nothing(
        quota in packets(), boot in boot(), inside in 0u64..1000, windows in 1u64..6,
    ) {
        let limit = compiled(quota);
        let border = limit.width - boot % limit.width;
        let offered: Vec<_> = (0..windows)
            .flat_map(|window| {
                let at = border + window * limit.width + limit.width / 1000 * inside;
                vec![Packet { at, units: 1 }; usize::try_from(limit.limit).unwrap()]
            })
            .collect();
        let passed = run(&limit, WallOffset::new(boot), &offered);
        prop_assert_eq!(passed.len(), offered.len());
    }

    /// Nothing is lost either if the first window has the last of all numbers, from which the
    /// word that was never used, of number 0, is a window away.
    #[test]
    fn the_first_number_after_the_last_loses_nothing(quota in packets(), boots in 0u64..1000) {
        let limit = compiled(quota);
        let numbers = 1 << (63 - limit.count_bits);
        let first = (boots % 4 + 1) * numbers - 1;
        prop_assume!(first.checked_mul(limit.width).is_some_and(|at| at < 1 << 62));
        let offset = WallOffset::new(first * limit.width);
        let offered: Vec<_> = (0..3)
            .flat_map(|window| {
                let at = window * limit.width;
                vec![Packet { at, units: 1 }; usize::try_from(limit.limit).unwrap()]
            })
            .collect();
        prop_assert_eq!(run(&limit, offset, &offered).len(), offered.len());
    }

    /// A larger limit never admits fewer of the same packets.
    #[test]
    fn monotone(quota in packets(), more in 1u64..10, pattern in pattern()) {
        let limit = compiled(quota);
        let offered = pattern.offered(limit.width, Count::Packets);
        let larger = compiled(Quota { requests_per_unit: quota.requests_per_unit + more, ..quota });
        let count = |limit| run(limit, WallOffset::BOOT, &offered).len();
        prop_assert!(count(&larger) >= count(&limit));
    }

    /// After any idle time no more than the limit until the border.
    #[test]
    fn idle_never_overfills(quota in packets(), idle in 0u64..1 << 57) {
        let limit = compiled(quota);
        let mut offered = vec![Packet { at: 1, units: 1 }; 3];
        offered.extend(vec![Packet { at: 1 + idle, units: 1 }; 70]);
        let passed = run(&limit, WallOffset::BOOT, &offered);
        prop_assert!(passed.iter().filter(|packet| packet.at == 1 + idle).count() as u64 <= limit.limit);
        let same = run(&limit, WallOffset::BOOT, &offered[3..]);
        prop_assert_eq!(same.len() as u64, limit.limit);
    }

    /// A clock that is read late, of either kind, reaches no other window.
    #[test]
    fn late_clock_grants_nothing(quota in packets(), late in 0..=LATE, boot in boot()) {
        let limit = compiled(quota);
        let mut word = 0;
        let now = Ticks::from_nanos(1 << 57);
        for _ in 0..limit.limit {
            word = decide(&limit, WallOffset::new(boot), word, now, 1).expect("within the limit");
        }
        let earlier = Ticks::from_nanos((1 << 57) - late);
        prop_assert_eq!(decide(&limit, WallOffset::new(boot), word, earlier, 1), None);
        let set_back = WallOffset::new(boot.saturating_sub(late));
        prop_assert_eq!(decide(&limit, set_back, word, now, 1), None);
    }

    /// A wall clock that is set, by any time in either direction, keeps nobody out for longer than
    /// two windows and the time that a reading may be late.
    #[test]
    fn no_jump_locks_out(quota in packets(), before in boot(), after in boot(), now in 0u64..1 << 56) {
        let limit = compiled(quota);
        let mut word = 0;
        for _ in 0..limit.limit {
            let at = Ticks::from_nanos(now);
            word = decide(&limit, WallOffset::new(before), word, at, 1).expect("within the limit");
        }
        let passes = |time: u64| {
            decide(&limit, WallOffset::new(after), word, Ticks::from_nanos(time), 1).is_some()
        };
        prop_assert!(passes(now) || passes(now + 2 * limit.width + LATE));
    }
}

proptest! {
    #![proptest_config(config())]

    /// A wall clock that is set again and again, by any time in either direction: between two of
    /// its jumps, the limit in each window of the calendar that packets come in.
    #[test]
    fn jumps_grant_at_most_a_window_each(
        quota in quota(),
        boots in prop::collection::vec(boot(), 1..8),
        pattern in pattern(),
    ) {
        let limit = compiled(quota);
        let offered = pattern.offered(limit.width, quota.count);
        let (mut word, mut passed, mut most) = (0, 0u128, 0u128);
        for (packets, boot) in offered.chunks(offered.len().div_ceil(boots.len())).zip(&boots) {
            let window = |packet: &Packet| {
                (u128::from(packet.at) + u128::from(*boot)) / u128::from(quota.period.nanos())
            };
            let (first, last) = (window(&packets[0]), window(&packets[packets.len() - 1]));
            most += u128::from(limit.limit) * (last - first + 1);
            for packet in packets {
                let now = Ticks::from_nanos(packet.at);
                if let Some(next) = decide(&limit, WallOffset::new(*boot), word, now, packet.units) {
                    word = next;
                    passed += u128::from(packet.units);
                }
            }
        }
        prop_assert!(passed <= most, "{passed} passed, {most} may");
    }
}

/// Known weakness of the algorithm: twice the limit within a nanosecond, and never three times.
#[test]
fn the_double_burst_at_the_border() {
    for unit in Unit::ALL {
        let quota = Quota::new(Count::Packets, 50, Period::one(unit));
        let limit = compiled(quota);
        let border = 7 * limit.width;
        let mut offered = vec![Packet { at: border - 1, units: 1 }; 200];
        offered.extend(vec![Packet { at: border, units: 1 }; 200]);
        offered.extend(vec![Packet { at: border + limit.width - 1, units: 1 }; 200]);
        let passed = run(&limit, WallOffset::BOOT, &offered);
        assert_eq!(passed.iter().filter(|packet| packet.at == border - 1).count(), 50);
        assert_eq!(passed.iter().filter(|packet| packet.at == border).count(), 50);
        assert_eq!(passed.len(), 100);
    }
}

/// The edges of the word: the largest limit of each unit, charged to its last unit, in the last
/// window of the clock's range.
#[test]
fn the_largest_count_and_the_last_window() {
    let units = Unit::ALL.into_iter().map(Period::one).zip([34, 40, 46, 51, 54]);
    let period = |unit, multiplier| Period { unit, multiplier };
    let longer = [
        (period(Unit::Hour, 7), 49),
        (period(Unit::Day, 5), 53),
        (period(Unit::Week, 2), 55),
        (period(Unit::Day, 366), 59),
    ];
    for (period, bits) in units.chain(longer) {
        let most = (1u64 << bits) - 1;
        let quota = Quota::new(Count::Bytes, most, period);
        let limit = compiled(quota);
        let offset = WallOffset::new((1 << 50) - 1);
        let word = decide(&limit, offset, 0, Ticks::from_nanos(END), most).unwrap();
        assert!(word < 1 << 63);
        assert_eq!(decide(&limit, offset, word, Ticks::from_nanos(END), 1), None);
        assert_eq!(decide(&limit, offset, word, Ticks::from_nanos(END), u64::MAX), None);
        let more = Quota { requests_per_unit: most + 1, ..quota };
        assert!(compile::fixed_window(more, FRAME).is_err(), "{period}");
    }
}
