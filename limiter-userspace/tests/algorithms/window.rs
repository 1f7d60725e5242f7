//! The offset of the wall clock, and the borders of windows on it.

use limiter_common::time::Ticks;
use limiter_common::window::{LATE, WallOffset, WindowLimit};
use limiter_userspace::rules::{Period, Unit};
use proptest::prelude::*;

use crate::support::{END, boot, config, period};

const SECOND: u64 = 1_000_000_000;

/// From Monday, 1 January 1900, to 1 January 1970, by the calendar: 17 leap years, as 1900 is none.
const TO_1970: i128 = (70 * 365 + 17) * 86_400 * SECOND as i128;

fn width(period: Period) -> WindowLimit {
    let width = period.nanos();
    WindowLimit { width, count_bits: WindowLimit::count_bits_of(width), ..WindowLimit::default() }
}

/// 2026-11-20 was a Friday; 19:30:05 UTC is 1,795,203,005 s after 1970.
#[test]
fn windows_start_on_the_wall_clock() {
    let uptime = 5_000 * SECOND + 7;
    let offset = WallOffset::of_clocks(1_795_203_005 * SECOND, uptime);
    let since_start = |period| width(period).at(Ticks::from_nanos(uptime), offset).elapsed / SECOND;
    assert_eq!(since_start(Period::one(Unit::Second)), 0);
    assert_eq!(since_start(Period::one(Unit::Minute)), 5);
    assert_eq!(since_start(Period::one(Unit::Hour)), 30 * 60 + 5);
    assert_eq!(since_start(Period::one(Unit::Day)), (19 * 60 + 30) * 60 + 5);
    assert_eq!(since_start(Period::one(Unit::Week)), 4 * 86_400 + (19 * 60 + 30) * 60 + 5);
    // A period that divides a day begins with the day.
    let times = |multiplier, unit| Period { unit, multiplier };
    assert_eq!(since_start(times(30, Unit::Second)), 5);
    assert_eq!(since_start(times(15, Unit::Minute)), 5);
    assert_eq!(since_start(times(12, Unit::Hour)), (7 * 60 + 30) * 60 + 5);
    // Others begin at their multiples since 1900: that day is the 46,345th.
    assert_eq!(since_start(times(2, Unit::Week)) / 86_400, 46_344 % 14);
    assert_eq!(since_start(times(5, Unit::Day)) / 86_400, 46_344 % 5);
    assert_eq!(since_start(times(7, Unit::Hour)) / 3_600, (46_344 * 24 + 19) % 7);
}

/// A clock that was never set: 1970, and less than the uptime.
#[test]
fn a_clock_that_was_never_set() {
    let uptime = 30 * 86_400 * SECOND;
    let offset = WallOffset::of_clocks(60 * SECOND, uptime);
    let day = width(Period::one(Unit::Day)).at(Ticks::from_nanos(uptime), offset);
    assert_eq!(day.elapsed, 60 * SECOND);
}

/// A wall clock past all that there is, and before it.
#[test]
fn offsets_have_an_end() {
    let last = Ticks::from_nanos(END);
    for offset in [WallOffset::of_clocks(u64::MAX, 0), WallOffset::new(u64::MAX)] {
        for unit in Unit::ALL {
            let limit = width(Period::one(unit));
            let position = limit.at(last, offset);
            assert!(limit.cut(position.number) < 1 << (63 - limit.count_bits));
            assert!(position.elapsed < limit.width);
        }
    }
    assert_eq!(WallOffset::of_clocks(0, u64::MAX), WallOffset::BOOT);
}

proptest! {
    #![proptest_config(config())]

    /// Borders are where the calendar has them, whenever the machine booted and however often the
    /// wall clock is set; and numbers fit what the count leaves of a word.
    #[test]
    fn agrees_with_the_wall_clock(
        period in period(),
        realtime in 0u64..6_000_000_000_000_000_000, uptime in 0u64..1 << 58, later in 0u64..1 << 50,
    ) {
        let offset = WallOffset::of_clocks(realtime, uptime);
        let now = (uptime + later).min(END);
        let limit = width(period);
        let wall = i128::from(realtime) + i128::from(now - uptime) + TO_1970;
        let position = limit.at(Ticks::from_nanos(now), offset);
        prop_assert_eq!(i128::from(position.elapsed), wall % i128::from(limit.width));
        prop_assert!(limit.cut(position.number) < 1 << (63 - limit.count_bits));
    }

    /// Two machines, or one before and after a boot: at one instant of the wall clock both are in
    /// the same window, and as far in it.
    #[test]
    fn all_machines_have_the_same_windows(
        period in period(), wall in 0u64..6_000_000_000_000_000_000,
        up in prop::array::uniform2(0u64..1 << 58), later in 0u64..1 << 50,
    ) {
        let limit = width(period);
        let [a, b] = up.map(|up| {
            let offset = WallOffset::of_clocks(wall, up);
            let at = |time: u64| limit.at(Ticks::from_nanos(time), offset);
            let (first, second) = (at(up), at((up + later).min(END)));
            let numbers = 1 << (63 - limit.count_bits);
            let moved = second.number.wrapping_sub(first.number) % numbers;
            (first.elapsed, second.elapsed, moved, up + later <= END)
        });
        prop_assert_eq!(a.0, b.0);
        if a.3 && b.3 {
            prop_assert_eq!((a.1, a.2), (b.1, b.2));
        }
    }

    /// A wall clock that is set: the number changes by as many windows as lie between the two times
    /// of the calendar, and begins anew only past all numbers.
    #[test]
    fn numbers_follow_the_wall_clock(
        period in period(), before in boot(), after in boot(), now in 0..END,
    ) {
        let limit = width(period);
        let numbers = 1 << (63 - limit.count_bits);
        let number = |boot| {
            i128::from(limit.at(Ticks::from_nanos(now), WallOffset::new(boot)).number)
        };
        let wall = |boot| (i128::from(boot) + i128::from(now)) / i128::from(limit.width);
        let (moved, expected) = (number(after) - number(before), wall(after) - wall(before));
        prop_assert_eq!(moved.rem_euclid(numbers), expected.rem_euclid(numbers));
    }

    /// No idle time brings a number back, nor one for which the clock may be late.
    #[test]
    fn no_number_comes_back(
        period in period(), boot in boot(), first in 0..END, later in 0..END,
    ) {
        let limit = width(period);
        let at = |time: u64| limit.at(Ticks::from_nanos(time), WallOffset::new(boot)).number;
        let (first, later) = (first.min(later), first.max(later));
        prop_assume!(later - first >= limit.width);
        let numbers = 1u64 << (63 - limit.count_bits);
        let ahead = at(first).wrapping_sub(at(later)) & (numbers - 1);
        prop_assert!(ahead > 1 + LATE / limit.width, "the first is {ahead} ahead of the later one");
    }
}
