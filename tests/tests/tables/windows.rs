//! Fixed windows stand on the wall clock.

use limiter_common::algorithm::window::WallOffset;
use limiter_tests::program::Program;

use super::{SECOND, START, at, passed, program, v4};

/// 2026-07-22 13:14:15 UTC, when the monotonic clock shows [`START`].
const WALL: u64 = 1_784_726_055 * SECOND;

fn windows(unit: &str, packets: u32) -> Program {
    let mut program = program(&format!(
        "descriptors: [{{key: vlan, rate_limit: {{unit: {unit}, requests_per_unit: {packets}, \
         algorithm: fixed_window}}}}]"
    ));
    program.set_wall_offset(WallOffset::of_clocks(WALL, START)).unwrap();
    program
}

fn send(program: &Program) -> usize {
    passed(program, &v4(1).vlan(7).build(), 9)
}

#[test]
fn windows_begin_with_the_minutes_hours_and_days_of_utc() {
    for (unit, seconds) in [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)] {
        let program = windows(unit, 3);
        assert_eq!(send(&program), 3, "{unit}");
        let width = seconds * SECOND;
        let border = START + width - WALL % width;
        at(&program, border - 1);
        // A window that began just now is used up; a second that is whole began one before.
        assert_eq!(send(&program), 0, "{unit}: a nanosecond before the border");
        at(&program, border);
        assert_eq!(send(&program), 3, "{unit}: at the border");
        at(&program, border + width - 1);
        assert_eq!(send(&program), 0, "{unit}: the end of the next one");
    }
}

/// The wall clock's zero was a Thursday.
#[test]
fn a_week_begins_on_monday() {
    let program = windows("week", 3);
    assert_eq!(send(&program), 3);
    let width = 604_800 * SECOND;
    let monday = (WALL + 3 * 86_400 * SECOND) % width;
    let border = START + width - monday;
    at(&program, border - 1);
    assert_eq!(send(&program), 0);
    at(&program, border);
    assert_eq!(send(&program), 3);
}

/// The case of fixed windows in docs/algorithms.md: twice the limit, in two nanoseconds, and never
/// more than that in less than a window.
#[test]
fn a_fixed_window_passes_twice_its_limit_around_a_border_and_not_one_more() {
    let program = windows("minute", 4);
    let border = START + 60 * SECOND - WALL % (60 * SECOND);
    at(&program, border - 1);
    assert_eq!(send(&program), 4);
    at(&program, border);
    assert_eq!(send(&program), 4);
    for second in 1..60 {
        at(&program, border + second * SECOND);
        assert_eq!(send(&program), 0);
    }
}

/// The wall clock is set back by an hour: the windows go back with it, and grant at most one more.
#[test]
fn a_wall_clock_that_is_set_back_grants_at_most_a_window() {
    let mut program = windows("minute", 3);
    assert_eq!(send(&program), 3);
    let back = WallOffset::of_clocks(WALL - 3_600 * SECOND, START);
    program.set_wall_offset(back).unwrap();
    let mut more = 0;
    for _ in 0..5 {
        more += send(&program);
    }
    assert!(more <= 3, "{more}");
}
