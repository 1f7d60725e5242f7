//! Fixed windows stand on the wall clock.

use limiter_common::window::WallOffset;
use limiter_tests::program::Program;

use super::{SECOND, START, at, passed, program, v4};

/// 2026-07-22 13:14:15 UTC, when the monotonic clock shows [`START`].
const WALL: u64 = 1_784_726_055 * SECOND;

/// `unit` is one with whatever belongs to it, as `day, unit_multiplier: 5`.
fn windows(unit: &str, packets: u32) -> Program {
    let mut program = program("descriptors: []");
    windows_anew(&mut program, unit, packets);
    program
}

/// The same in a program that had other windows: back at [`START`], and with a new table, for one
/// that was taken away begins new.
fn windows_anew(program: &mut Program, unit: &str, packets: u32) {
    program.apply_file("descriptors: []").unwrap();
    at(program, START);
    let rules = format!(
        "descriptors: [{{key: vlan, rate_limit: {{unit: {unit}, requests_per_unit: {packets}, \
         algorithm: fixed_window}}}}]"
    );
    program.apply_file(&rules).unwrap();
    program.set_wall_offset(WallOffset::of_clocks(WALL, START)).unwrap();
}

fn send(program: &Program) -> usize {
    passed(program, &v4(1).vlan(7).build(), 9)
}

#[test]
fn windows_begin_with_the_minutes_hours_and_days_of_utc() {
    let mut program = program("descriptors: []");
    for (unit, seconds) in [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)] {
        windows_anew(&mut program, unit, 3);
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

/// Windows of several units begin at multiples of their length since Monday, 1 January 1900. One
/// that divides a day begins with the day. A boot, 5,000 s later here, moves none.
#[test]
fn windows_of_several_units_begin_with_their_multiples_since_1900() {
    let since_1900 = WALL + 2_208_988_800 * SECOND;
    let mut program = program("descriptors: []");
    for (unit, seconds) in [
        ("second, unit_multiplier: 30", 30),
        ("minute, unit_multiplier: 5", 300),
        ("hour, unit_multiplier: 7", 25_200),
        ("day, unit_multiplier: 5", 432_000),
        ("week, unit_multiplier: 2", 1_209_600),
        ("day, unit_multiplier: 366", 31_622_400),
    ] {
        windows_anew(&mut program, unit, 3);
        assert_eq!(send(&program), 3, "{unit}");
        let width = seconds * SECOND;
        let left = width - since_1900 % width;
        at(&program, START + left - 1);
        assert_eq!(send(&program), 0, "{unit}: a nanosecond before the border");
        at(&program, START + left);
        assert_eq!(send(&program), 3, "{unit}: at the border");
        at(&program, START + left + width - 1);
        assert_eq!(send(&program), 0, "{unit}: the end of the next one");
        at(&program, START + left + width);
        assert_eq!(send(&program), 3, "{unit}: at the border after that");
        // These instants of the wall clock on a machine that booted at another time.
        windows_anew(&mut program, unit, 3);
        let earlier = 5_000 * SECOND;
        program.set_wall_offset(WallOffset::of_clocks(WALL, START + earlier)).unwrap();
        at(&program, START + earlier + left - 1);
        assert_eq!(send(&program), 3, "{unit}");
        assert_eq!(send(&program), 0, "{unit}");
        at(&program, START + earlier + left);
        assert_eq!(send(&program), 3, "{unit}: at the border, after another boot");
    }
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
