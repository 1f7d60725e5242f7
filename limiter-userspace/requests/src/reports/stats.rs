//! What the server did: refusals, connections, readings of rules, and snapshots.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::reports::unmet::Tally;

/// Why a request was refused undecided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    Request,
    Path,
    Method,
    TooLong,
    TooSlow,
    /// There is no room for a key of a command.
    Room,
}

const WHYS: [(Why, &str); 6] = [
    (Why::Request, "request"),
    (Why::Path, "path"),
    (Why::Method, "method"),
    (Why::TooLong, "too_long"),
    (Why::TooSlow, "too_slow"),
    (Why::Room, "no_room"),
];

#[derive(Debug, Default)]
pub(crate) struct Stats {
    refused: [AtomicU64; WHYS.len()],
    /// Checks, and those that were refused undecided.
    pub(crate) checks: Tally,
    /// Checks, and those of which no descriptor could be made.
    pub(crate) empty_checks: Tally,
    /// Checks that asked to wait, and cannot.
    pub(crate) no_waits: Tally,
    pub(crate) connections: AtomicUsize,
    pub(crate) evicted: AtomicU64,
    /// Connections that were ended because requests held too much memory.
    pub(crate) crowded: AtomicU64,
    reloads: [AtomicU64; 2],
    saves: [AtomicU64; 2],
}

impl Stats {
    pub(crate) fn refuse(&self, why: Why) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |why: Why| self.refused[why as usize].load(Ordering::Relaxed);
        WHYS.into_iter().map(move |(why, name)| (name, count(why)))
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that were ended for newer ones, and for the memory of their requests.
    pub(crate) fn evicted(&self) -> [u64; 2] {
        [&self.evicted, &self.crowded].map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn reload(&self, good: bool) {
        self.reloads[usize::from(!good)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn save(&self, good: bool) {
        self.saves[usize::from(!good)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn saves(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.saves[index].load(Ordering::Relaxed))
    }

    pub(crate) fn reloads(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.reloads[index].load(Ordering::Relaxed))
    }
}
