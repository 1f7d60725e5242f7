//! The offset of the wall clock.

use limiter_common::algorithm::window::{WEEK_NANOS, WallOffset, WindowLimit};
use limiter_common::time::Ticks;
use limiter_userspace::rules::Unit;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn width(unit: Unit) -> WindowLimit {
    let width = unit.seconds() * SECOND;
    WindowLimit { width, count_bits: WindowLimit::count_bits_of(width), ..WindowLimit::default() }
}

/// 2026-11-20 was a Friday; 19:30:05 UTC is 1,795,203,005 s after 1970.
#[test]
fn windows_start_on_the_wall_clock() {
    let uptime = 5_000 * SECOND + 7;
    let offset = WallOffset::of_clocks(1_795_203_005 * SECOND, uptime);
    let since_start = |unit| width(unit).at(Ticks::from_nanos(uptime), offset).elapsed / SECOND;
    assert_eq!(since_start(Unit::Second), 0);
    assert_eq!(since_start(Unit::Minute), 5);
    assert_eq!(since_start(Unit::Hour), 30 * 60 + 5);
    assert_eq!(since_start(Unit::Day), (19 * 60 + 30) * 60 + 5);
    assert_eq!(since_start(Unit::Week), 4 * 86_400 + (19 * 60 + 30) * 60 + 5);
}

/// A clock that was never set: 1970, and less than the uptime.
#[test]
fn a_clock_that_was_never_set() {
    let uptime = 30 * 86_400 * SECOND;
    let offset = WallOffset::of_clocks(60 * SECOND, uptime);
    let day = width(Unit::Day).at(Ticks::from_nanos(uptime), offset);
    assert_eq!(day.elapsed, 60 * SECOND);
    assert!(offset.nanos() < WEEK_NANOS);
}

proptest! {
    /// Borders are where u128 arithmetic on the wall clock puts them, for every unit.
    #[test]
    fn agrees_with_the_wall_clock(
        realtime in 0u64..4_000_000_000_000_000_000, uptime in 0u64..1 << 58, later in 0u64..1 << 50,
    ) {
        let offset = WallOffset::of_clocks(realtime, uptime);
        let now = (uptime + later).min((1 << 58) - 1);
        let later = now - uptime;
        for unit in Unit::ALL {
            let limit = width(unit);
            let since = u128::from(realtime) + u128::from(later) + 3 * 86_400 * u128::from(SECOND);
            let position = limit.at(Ticks::from_nanos(now), offset);
            prop_assert_eq!(u128::from(position.elapsed), since % u128::from(limit.width));
            prop_assert!(position.number < 1 << (63 - limit.count_bits));
        }
    }
}
