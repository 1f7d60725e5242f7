//! Parts of requests that cannot be taken as they are. Each is decided all the same, counted, and
//! reported in the log: an error would let the request pass all of its other limits, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::reports::unsaid::Unsaid;

/// A part of a request that cannot be taken as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    /// A limit that is faster than can be held.
    TooFast,
    /// A limit beyond those that there is room for.
    NoRoom,
    /// A limit without a known unit.
    NoUnit,
    /// Hits to be given back.
    NegativeHits,
    /// A text that is no UTF-8.
    NotUtf8,
    /// Two rules with queues.
    TwoQueues,
    /// A bucket of the quota service without an entry, or with too many bytes of them.
    Bucket,
    /// One bucket more than the quota service has room for.
    ManyBuckets,
}

impl Odd {
    /// All, with their names in metrics.
    const ALL: [(Self, &str); 8] = [
        (Self::TooFast, "limit_too_fast"),
        (Self::NoRoom, "limit_without_room"),
        (Self::NoUnit, "limit_without_unit"),
        (Self::NegativeHits, "negative_hits"),
        (Self::NotUtf8, "not_utf8"),
        (Self::TwoQueues, "two_queues"),
        (Self::Bucket, "quota_bucket"),
        (Self::ManyBuckets, "quota_bucket_without_room"),
    ];

    /// What the part is, and how it is treated.
    const fn what(self) -> &'static str {
        match self {
            Self::TooFast => {
                "requests bring limits that are faster than can be held, and pass: bring none, or \
                 a lower one"
            }
            Self::NoRoom => {
                "requests bring more different limits at once than there is room for: the limits \
                 of their rules hold, and those without one are rounded down to a power of two; \
                 bring \
                 fewer different numbers"
            }
            Self::NoUnit => {
                "requests bring limits without a known unit: the limits of their rules hold; bring \
                 SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR"
            }
            Self::NegativeHits => {
                "requests have is_negative_hits: hits cannot be given back, and they only look; \
                 leave it out"
            }
            Self::NotUtf8 => {
                "texts of requests are no UTF-8: each byte that belongs to no character counts as `?`"
            }
            Self::TwoQueues => {
                "requests fall under two rules with queues, and are refused: ask for one of them"
            }
            Self::Bucket => {
                "a bucket_id without entries or of more than 1,024 bytes gets no assignment: make \
                 it of fewer or shorter values"
            }
            Self::ManyBuckets => {
                "there are too many buckets, and new ones get no assignment: let fewer values of \
                 requests make buckets"
            }
        }
    }
}

/// Parts of requests that could not be taken as they were.
#[derive(Debug, Default)]
pub(crate) struct OddParts {
    counts: [AtomicU64; Odd::ALL.len()],
    unsaid: [Mutex<Unsaid>; Odd::ALL.len()],
}

impl OddParts {
    /// Counts an odd part; `latest` says where it is.
    pub(crate) fn count(&self, odd: Odd, latest: String) {
        self.counts[odd as usize].fetch_add(1, Ordering::Relaxed);
        self.unsaid[odd as usize].lock().unwrap_or_else(PoisonError::into_inner).note(latest);
    }

    /// Counts by the names that metrics have.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |odd: Odd| self.counts[odd as usize].load(Ordering::Relaxed);
        Odd::ALL.into_iter().map(move |(odd, name)| (name, count(odd)))
    }

    /// Logs what is not logged yet, at once and then from time to time.
    pub(crate) fn log(&self) {
        for (odd, _) in Odd::ALL {
            let mut unsaid =
                self.unsaid[odd as usize].lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((count, latest)) = unsaid.due() {
                tracing::warn!("{}; {count} of them, the latest: {latest}", odd.what());
            }
        }
    }
}
