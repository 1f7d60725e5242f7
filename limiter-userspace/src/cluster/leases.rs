//! Leases of the data path, as the node sees them: counts that it reads, and words that it writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use super::key::Words;

/// Totals of a lease that the data path counts. They may begin at any number, and `used` may fall
/// a little where a charge is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units that passed by the lease.
    pub used: u64,
    /// Units that were refused, by the lease or by the share.
    pub denied: u64,
}

/// Leases of a data path. Nobody else writes their words.
pub trait Leases: Send + 'static {
    /// Microseconds of the clock by which the data path judges: `CLOCK_MONOTONIC`.
    fn now(&self) -> u64;

    /// Counts of a lease; zeros of one that there is not.
    fn seen(&self, lease: u32) -> Counts;

    /// Sets the words of a lease: `granted` is a total as `used` is, `expires` a time as
    /// [`Leases::now`] is, or 0: the lease decides nothing.
    fn write(&mut self, lease: u32, words: Words);
}

impl Leases for Box<dyn Leases> {
    fn now(&self) -> u64 {
        (**self).now()
    }

    fn seen(&self, lease: u32) -> Counts {
        (**self).seen(lease)
    }

    fn write(&mut self, lease: u32, words: Words) {
        (**self).write(lease, words);
    }
}

/// Microseconds of `CLOCK_MONOTONIC`.
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}

#[derive(Debug, Default)]
struct Line {
    granted: AtomicU64,
    expires: AtomicU64,
    used: AtomicU64,
    denied: AtomicU64,
}

/// Leases in memory, with a data path that charges them: for tests.
#[derive(Clone, Debug)]
pub struct MemoryLeases {
    lines: Arc<[Line]>,
}

impl MemoryLeases {
    /// `count` leases that decide nothing yet; `begin` are their totals.
    pub fn new(count: usize, begin: Counts) -> Self {
        let line = |_| Line {
            used: AtomicU64::new(begin.used),
            denied: AtomicU64::new(begin.denied),
            ..Line::default()
        };
        Self { lines: (0..count).map(line).collect() }
    }

    /// A packet of `units`: true if the lease passes it. Without a lease in force, none passes.
    pub fn packet(&self, lease: u32, units: u64) -> bool {
        let Some(line) = self.line(lease) else { return false };
        // Orders as those of the map's atomics: each word alone.
        let (granted, expires) =
            (line.granted.load(Ordering::Relaxed), line.expires.load(Ordering::Relaxed));
        let charge = |used: u64| {
            let after = used.checked_add(units)?;
            (after <= granted).then_some(after)
        };
        let passes = monotonic() < expires
            && line.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).is_ok();
        if !passes {
            line.denied.fetch_add(units, Ordering::Relaxed);
        }
        passes
    }

    /// Words of a lease.
    pub fn words(&self, lease: u32) -> Words {
        self.line(lease).map_or_else(Words::default, |line| Words {
            granted: line.granted.load(Ordering::Relaxed),
            expires: line.expires.load(Ordering::Relaxed),
        })
    }

    fn line(&self, lease: u32) -> Option<&Line> {
        self.lines.get(usize::try_from(lease).ok()?)
    }
}

impl Leases for MemoryLeases {
    fn now(&self) -> u64 {
        monotonic()
    }

    fn seen(&self, lease: u32) -> Counts {
        self.line(lease).map_or_else(Counts::default, |line| Counts {
            used: line.used.load(Ordering::Relaxed),
            denied: line.denied.load(Ordering::Relaxed),
        })
    }

    fn write(&mut self, lease: u32, words: Words) {
        if let Some(line) = self.line(lease) {
            line.granted.store(words.granted, Ordering::Relaxed);
            line.expires.store(words.expires, Ordering::Relaxed);
        }
    }
}
