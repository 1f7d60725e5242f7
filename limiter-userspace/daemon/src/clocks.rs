//! The program's clock and the wall clock at one moment: times of packets for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limiter_common::time::Ticks;
use limiter_datapath::Observed;

/// The two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) now: Ticks,
    pub(crate) wall: SystemTime,
}

impl Clocks {
    pub(crate) fn of(datapath: &dyn Observed) -> Self {
        Self { now: datapath.now(), wall: millis(UNIX_EPOCH + datapath.wall()) }
    }

    /// The moment of a tick that is over, to the millisecond.
    pub(crate) fn at(&self, time: Ticks) -> SystemTime {
        let ago = Duration::from_nanos(self.now.since(time).as_nanos());
        millis(self.wall.checked_sub(ago).unwrap_or(UNIX_EPOCH))
    }
}

/// A moment without parts of a millisecond.
fn millis(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
