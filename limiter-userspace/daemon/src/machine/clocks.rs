//! The program's clock and the wall clock at the same moment, to show times of packets to people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limiter_common::time::Ticks;
use limiter_datapath::Observed;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) now: Ticks,
    pub(crate) wall: SystemTime,
}

impl Clocks {
    pub(crate) fn of(datapath: &dyn Observed) -> Self {
        let wall = UNIX_EPOCH.checked_add(datapath.wall().min(LAST)).unwrap_or(UNIX_EPOCH);
        Self { now: datapath.now(), wall: representable(wall) }
    }

    /// Wall-clock time of a tick, to the millisecond.
    pub(crate) fn at(&self, time: Ticks) -> SystemTime {
        let ago = Duration::from_nanos(self.now.since(time).as_nanos());
        let ahead = Duration::from_nanos(time.since(self.now).as_nanos());
        let moment = self.wall.checked_sub(ago).and_then(|wall| wall.checked_add(ahead));
        representable(moment.unwrap_or(UNIX_EPOCH))
    }
}

/// Last moment of the year 9999: RFC 3339 has no later times, but a clock may.
const LAST: Duration = Duration::from_millis(253_402_300_799_999);

/// Clamps a moment to what RFC 3339 can express and cuts it to milliseconds.
pub(crate) fn representable(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST);
    let parts = Duration::from_nanos(u64::from(since.subsec_nanos()) % 1_000_000);
    UNIX_EPOCH.checked_add(since.saturating_sub(parts)).unwrap_or(UNIX_EPOCH)
}

/// Formats a moment in RFC 3339, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(representable(time)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_can_be_reported() {
        let reported = |time| humantime::format_rfc3339_millis(representable(time)).to_string();
        assert_eq!(reported(UNIX_EPOCH - Duration::from_secs(5)), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            reported(UNIX_EPOCH + Duration::from_nanos(1_999_999)),
            "1970-01-01T00:00:00.001Z"
        );
        assert_eq!(reported(UNIX_EPOCH + 2 * LAST), "9999-12-31T23:59:59.999Z");
    }
}
