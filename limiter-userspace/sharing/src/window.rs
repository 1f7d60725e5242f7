//! Windows of minutes to weeks in the store: what `window.lua` does with a key, in integers. It
//! counts granted units. A unit ends with the window in which it was counted, so packets never use
//! more than the algorithm allows, whenever they use it.

use std::collections::VecDeque;

use super::account::Answer;

/// Largest quota of a counting window, in units: more than one byte per nanosecond for a day.
pub const QUOTA_MAX: u64 = 1 << 40;
/// Largest quota of a sliding log, in units, because each unit has an entry in the store.
pub const LOG_MAX: u64 = 10_000;
/// Longest window in microseconds: 2^42 are seven weeks and two days, less about an hour.
pub const LENGTH_MAX: u64 = 1 << 42;
/// Number of parts in which a sliding counter weighs the previous window, each rounded up.
const PARTS: u64 = 1 << 10;

/// How a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// From one multiple of the length to the next: at most the quota in each.
    Fixed,
    /// Like [`WindowKind::Fixed`], but adds the rest of the previous window as if it had been even.
    SlidingCounter,
    /// At most the quota in any window of the length, wherever it begins.
    SlidingLog,
}

/// Numbers of a window that the store needs; each call includes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How it counts.
    pub kind: WindowKind,
    /// Length in microseconds, 1 to [`LENGTH_MAX`].
    pub length: u64,
    /// Units in a window: 1 to [`QUOTA_MAX`]; for a log, 1 to [`LOG_MAX`].
    pub quota: u64,
    /// Units of the largest packet.
    pub largest: u64,
    /// Time in microseconds for which a node may use a unit: [`super::SharedLimit::life`].
    pub life: u64,
    /// Largest part of the quota that one node holds, in thousandths: 0 to 1000. The store does not
    /// know it.
    pub lease_cap: u64,
}

/// Units returned unused from the grants of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// Epoch of the answers that granted them: the number of the window, or the time of a log's
    /// grant.
    pub epoch: u64,
    /// Number of units.
    pub units: u64,
}

/// Units of one window that a node returns and wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowDemand {
    /// Returned units.
    pub backs: Vec<Back>,
    /// Units wanted in addition to those held.
    pub want: u64,
}

/// State of a key of a window in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// State of counting windows.
    Counts {
        /// Number of the window since 1970, in multiples of its length.
        epoch: u64,
        /// Units granted in it.
        count: u64,
        /// Units granted in the previous one.
        before: u64,
    },
    /// State of a sliding log: when each unit was granted, in order.
    Log(VecDeque<u64>),
}

impl WindowState {
    /// State of a new key.
    pub fn new(window: &Window, now: u64) -> Self {
        match window.kind {
            WindowKind::SlidingLog => Self::Log(VecDeque::new()),
            _ => Self::Counts { epoch: now / window.length, count: 0, before: 0 },
        }
    }

    /// True if nothing is counted: such a key does not exist.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Counts { count, before, .. } => *count == 0 && *before == 0,
            Self::Log(log) => log.is_empty(),
        }
    }

    /// Handles one call of a node at `now` microseconds of the store's clock.
    pub fn exchange(&mut self, window: &Window, now: u64, demand: &WindowDemand) -> Answer {
        match self {
            Self::Counts { epoch, count, before } => {
                let current = now / window.length;
                if *epoch > current + 1 {
                    // The clock was set back: what was granted counts as granted now.
                    *epoch = current;
                }
                if *epoch < current {
                    *before = if *epoch + 1 == current { *count } else { 0 };
                    *count = 0;
                    *epoch = current;
                }
                for back in demand.backs.iter().filter(|back| back.epoch == *epoch) {
                    *count -= back.units.min(*count);
                }
                let end = (*epoch + 1) * window.length;
                let carried = match window.kind {
                    WindowKind::SlidingCounter => {
                        let left = (end - now).min(window.length);
                        let parts = (left * PARTS).div_ceil(window.length);
                        (*before * parts).div_ceil(PARTS)
                    }
                    _ => 0,
                };
                let grant = grant(window, *count + carried, demand.want);
                *count += grant;
                let until = end - now;
                let wait = if grant < demand.want { until } else { 0 };
                Answer { grant, wait, epoch: *epoch, rest: until, until }
            }
            Self::Log(log) => {
                let kept = window.length + window.life;
                // Removes entries that left the window, and for each returned unit, one entry of
                // its grant's time. Entries of the same time are interchangeable, and no packet
                // uses the unit any more.
                while log.pop_front_if(|granted| *granted + kept <= now).is_some() {}
                for back in &demand.backs {
                    let first = log.partition_point(|granted| *granted < back.epoch);
                    let end = log.partition_point(|granted| *granted <= back.epoch);
                    let units = usize::try_from(back.units).unwrap_or(usize::MAX);
                    log.drain(first..first.saturating_add(units).min(end));
                }
                let grant = grant(window, log.len() as u64, demand.want);
                for _ in 0..grant {
                    let at = log.partition_point(|granted| *granted <= now);
                    log.insert(at, now);
                }
                let next =
                    log.front().map_or(0, |granted| granted + kept - now.min(granted + kept));
                let wait = if grant < demand.want { next } else { 0 };
                Answer { grant, wait, epoch: now, rest: kept, until: u64::MAX }
            }
        }
    }
}

/// Grants what is wanted, but at most half of what is left, so that other nodes also get some, and
/// no part of a packet.
fn grant(window: &Window, taken: u64, want: u64) -> u64 {
    let free = window.quota.saturating_sub(taken);
    if free < want.min(window.largest) {
        return 0;
    }
    want.min(free.div_ceil(2).max(window.largest).min(free))
}
