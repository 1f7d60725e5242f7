//! Time: the monotonic clock for rates, the wall clock for windows and the calendar.

use std::fs;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_sharing::clock::{boot_ahead, boot_nanos};
use rustix::time::{ClockId, clock_gettime};

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since boot.
    pub now: Ticks,
    /// How far the wall clock is ahead; `None` until it is first needed, which only windows do.
    offset: Option<WallOffset>,
}

impl Moment {
    /// This moment. Time during which the machine is suspended counts.
    pub fn now() -> Self {
        Self { now: Ticks::from_nanos(boot_nanos()), offset: None }
    }

    /// A moment in nanoseconds since boot, and since 1970.
    pub const fn of_nanos(boot: u64, wall: u64) -> Self {
        let now = Ticks::from_nanos(boot);
        Self { now, offset: Some(WallOffset::of_clocks(wall, now.as_nanos())) }
    }

    /// So many nanoseconds later.
    #[must_use]
    pub const fn plus(&self, nanos: u64) -> Self {
        let Self { now, offset } = *self;
        Self { now: now.plus(Ticks::from_nanos(nanos)), offset }
    }

    /// The earlier of this moment and another, in nanoseconds since boot.
    #[must_use]
    pub(crate) fn not_after(&self, nanos: u64) -> Self {
        let Self { now, offset } = *self;
        Self { now: Ticks::from_nanos(now.as_nanos().min(nanos)), offset }
    }

    /// The windows of the wall clock.
    pub(crate) fn offset(&self) -> WallOffset {
        self.offset.unwrap_or_else(|| WallOffset::of_clocks(wall_nanos(), boot_nanos()))
    }

    /// This moment with the wall clock read, so that all windows of a request are of one reading.
    #[must_use]
    pub(crate) fn with_wall(&self) -> Self {
        Self { offset: Some(self.offset()), ..*self }
    }

    /// Nanoseconds since 1970, UTC.
    pub(crate) fn wall(&self) -> u64 {
        let since_1900 = self.now.as_nanos().saturating_add(self.offset().nanos());
        since_1900.saturating_sub(WallOffset::of_clocks(0, 0).nanos())
    }

    /// The window of the calendar that this moment is in, of so many months, which divide a year.
    pub(crate) fn calendar(&self, months: u8) -> CalendarWindow {
        let months = i16::from(months.clamp(1, 12));
        let wall = self.wall();
        let now = Timestamp::from_nanosecond(i128::from(wall)).unwrap_or(Timestamp::MAX);
        let date = Offset::UTC.to_datetime(now).date();
        let month = i16::from(date.month()) - 1;
        let (year, part) = (date.year(), month / months);
        let begin = |year, part: i16| {
            let month = i8::try_from(part * months + 1).unwrap_or(1);
            let first = Date::new(year, month, 1).unwrap_or(date);
            let at = Offset::UTC.to_timestamp(first.to_datetime(Time::midnight())).unwrap_or(now);
            u64::try_from(at.as_nanosecond()).unwrap_or_default()
        };
        let parts = 12 / months;
        let next = if part + 1 < parts { begin(year, part + 1) } else { begin(year + 1, 0) };
        let number = i64::from(year - 1900) * i64::from(parts) + i64::from(part);
        CalendarWindow {
            number: u64::try_from(number).unwrap_or_default(),
            elapsed: wall.saturating_sub(begin(year, part)),
            ends_in: next.saturating_sub(wall),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CalendarWindow {
    /// Its number since 1900.
    pub(crate) number: u64,
    /// Nanoseconds since it began.
    pub(crate) elapsed: u64,
    /// Nanoseconds until it ends.
    pub(crate) ends_in: u64,
}

impl CalendarWindow {
    /// The offset at which a window of `width` nanoseconds has this number, and is this old.
    pub(crate) fn offset(&self, now: Ticks, width: u64) -> WallOffset {
        let at = self.number.saturating_mul(width).saturating_add(self.elapsed.min(width - 1));
        WallOffset::from_raw(at.wrapping_sub(now.as_nanos()))
    }
}

/// The clock since boot of processes in the initial time namespace, by its inode.
const INITIAL: &str = "time:[4026531834]";

/// The name of the clock since boot: of this boot, and of the time namespace. `None` if the system
/// does not give it.
pub(crate) fn boot() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A kernel without such namespaces has one clock.
    let namespace = fs::read_link("/proc/self/ns/time");
    let namespace = namespace.map_or_else(
        |_| String::new(),
        |own| {
            if boot_ahead().is_ok() { INITIAL.to_owned() } else { own.display().to_string() }
        },
    );
    Some(format!("{} {namespace}", boot.trim()))
}

fn wall_nanos() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Moment {
        let wall: Timestamp = text.parse().unwrap();
        Moment::of_nanos(5_000_000_000, u64::try_from(wall.as_nanosecond()).unwrap())
    }

    /// What the test below has another process print.
    #[test]
    fn this_clock_is_printed() {
        println!("clock: {} {}", boot_nanos(), boot().unwrap());
    }

    /// A process in a time namespace has the kernel's clock, under the same name: its snapshots are
    /// of this boot.
    #[test]
    fn a_time_namespace_is_no_other_boot() {
        let before = boot_nanos();
        let own = std::env::current_exe().unwrap();
        let mut inside = std::process::Command::new("unshare");
        inside.args(["--time", "--boottime", "100000", "--monotonic", "7", "--fork", "--"]);
        inside.arg(own).args(["--exact", "clock::tests::this_clock_is_printed", "--nocapture"]);
        let output = inside.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let Some(line) = text.lines().find_map(|line| line.split_once("clock: ")) else {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(why.contains("unshare"), "{why}");
            eprintln!("NOT RUN: no time namespace can be made here: {why}");
            return;
        };
        let (nanos, name) = line.1.split_once(' ').unwrap();
        let nanos: u64 = nanos.parse().unwrap();
        assert!((before..=boot_nanos()).contains(&nanos), "{before} {nanos}");
        assert_eq!(name, boot().unwrap());
    }

    #[test]
    fn months_and_years_are_those_of_the_calendar() {
        let day = 86_400_000_000_000;
        let february = at("2028-02-10T00:00:00Z").calendar(1);
        assert_eq!((february.elapsed, february.ends_in), (9 * day, 20 * day), "a leap year");
        let march = at("2028-03-01T00:00:00Z").calendar(1);
        assert_eq!((march.number, march.elapsed), (february.number + 1, 0));
        let last = at("2027-12-31T23:59:59.999999999Z");
        for months in [1, 2, 3, 4, 6, 12] {
            let (old, new) = (last.calendar(months), last.plus(1).calendar(months));
            assert_eq!((old.ends_in, new.elapsed), (1, 0), "{months}");
            assert_eq!(new.number, old.number + 1, "{months}");
        }
        let quarter = at("2027-08-15T00:00:00Z").calendar(3);
        assert_eq!((quarter.elapsed, quarter.ends_in), (45 * day, 47 * day));
    }

    #[test]
    fn a_window_of_the_calendar_has_one_number_from_its_first_to_its_last_moment() {
        let width = 31 * 86_400_000_000_000;
        let limit = limiter_common::window::WindowLimit { width, ..Default::default() };
        let mut before = None;
        for day in 0..800 {
            let moment = at("2027-01-01T00:00:00Z").plus(day * 86_400_000_000_000);
            let window = moment.calendar(1);
            let position = limit.at(moment.now, window.offset(moment.now, width));
            assert_eq!(position.number, window.number);
            let first_of_month = window.elapsed == 0;
            assert!(before.is_none_or(|n| position.number == n + u64::from(first_of_month)));
            before = Some(position.number);
        }
    }
}
