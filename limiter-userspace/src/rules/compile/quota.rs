//! A rate without a burst: what the algorithms other than the token bucket are compiled from.

use limiter_common::wire::Count;

use super::{CompileError, display_rate, what};
use crate::rules::model::{RateLimit, Unit};

/// So many units in a unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// What is counted.
    pub count: Count,
    /// That many per [`Quota::unit`], at least 1.
    pub requests_per_unit: u64,
    /// The unit of time, and the length of the window where there is one.
    pub unit: Unit,
}

impl Quota {
    /// The same rate with a burst.
    pub const fn with_burst(self, burst: u64) -> RateLimit {
        let Self { count, requests_per_unit, unit } = self;
        RateLimit { count, requests_per_unit, unit, burst }
    }

    /// The length of the unit in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.unit.seconds() * 1_000_000_000
    }

    pub(super) fn display(self) -> String {
        display_rate(&self.with_burst(1))
    }
}

/// Why a limit of another algorithm cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlgorithmError {
    /// As for the token bucket.
    #[error(transparent)]
    Rate(#[from] CompileError),
    /// Less than one frame in a window.
    #[error(
        "{rate} lets no frame pass in its window: give at least {least} {what}, or a token bucket",
        what = what(*.count)
    )]
    WindowTooSmall {
        /// The rate asked for.
        rate: String,
        /// The least that works.
        least: u64,
        /// What is counted.
        count: Count,
    },
    /// The count does not fit its word.
    #[error("{rate} is more than a window can count, {most}: use a token bucket or a shorter unit")]
    WindowTooLarge {
        /// The rate asked for.
        rate: String,
        /// The largest limit of this window.
        most: u64,
    },
    /// Not a number of slots that there is.
    #[error("a sliding window of {0} slots: give 2, 4 or 8")]
    Slots(u8),
    /// A log of bytes.
    #[error("{0}: a log keeps packets, not bytes: use sliding slots or a token bucket")]
    LogOfBytes(String),
    /// More stamps than a key may have.
    #[error(
        "{rate} needs more than the {most} stamps of a log: use sliding slots or a token bucket"
    )]
    LogTooLarge {
        /// The rate asked for.
        rate: String,
        /// The most that a log holds.
        most: u8,
    },
    /// Longer than the state can hold.
    #[error("a backlog of {0:?} is more than 2 years: lower it")]
    BacklogTooLong(std::time::Duration),
    /// Two limits of one marker that count different things.
    #[error("{lower} and {upper} count different things: give both in packets or both in bytes")]
    DifferentCounts {
        /// The committed limit.
        lower: String,
        /// The one above it.
        upper: String,
    },
    /// A peak or ceiling below what it is over.
    #[error("the upper rate {upper} is below the lower one, {lower}: raise it or swap the two")]
    UpperBelowLower {
        /// The committed limit.
        lower: String,
        /// The one above it.
        upper: String,
    },
}
