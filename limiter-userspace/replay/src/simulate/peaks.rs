//! The most packets of one source that pass within a length of time, wherever that begins.

use std::collections::VecDeque;

/// Lengths of time other than the window of the limits, in nanoseconds: 10 ms and 1 s.
const SHORT: u64 = 10_000_000;
const SECOND: u64 = 1_000_000_000;

/// Parts of a window of more than a second. Packets within a part are counted together.
const PARTS: u64 = 1024;

/// The most packets in 10 ms, in 1 s, and in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) short: u64,
    pub(super) second: u64,
    pub(super) window: u64,
}

impl Most {
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            short: self.short.max(other.short),
            second: self.second.max(other.second),
            window: self.window.max(other.window),
        }
    }
}

/// Packets in each part of a window of more than a second.
#[derive(Clone, Debug, Default)]
struct Parts {
    /// Numbers of parts, and how many packets passed in each.
    counts: VecDeque<(u64, u64)>,
    /// Packets in `counts`.
    sum: u64,
}

/// Packets of one source that passed recently.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// Times within the last second.
    times: VecDeque<u64>,
    /// For a window of more than a second.
    parts: Option<Box<Parts>>,
}

impl Most {
    /// The maxima of a source whose first packet passes.
    pub(super) const fn first(window: u64) -> Self {
        Self { short: 1, second: 1, window: if window == 0 { 0 } else { 1 } }
    }
}

impl Recent {
    /// Adds a packet that passed at `now`, no earlier than previous packets. Returns the current
    /// numbers. `window` is the window of the limits in nanoseconds. Above 1 s it is exact to a
    /// 1,024th of its length, and never counts more than the window contains.
    pub(super) fn add(&mut self, now: u64, window: u64) -> Most {
        self.times.push_back(now);
        if window > SECOND {
            let part = now / (window / PARTS);
            let parts = self.parts.get_or_insert_default();
            match parts.counts.back_mut() {
                Some((last, count)) if *last == part => *count += 1,
                _ => parts.counts.push_back((part, 1)),
            }
            parts.sum += 1;
        }
        self.forget(now, window);
        let within = |length: u64| {
            let first = self.times.partition_point(|time| time.saturating_add(length) <= now);
            u64::try_from(self.times.len() - first).unwrap_or(u64::MAX)
        };
        let second = within(SECOND);
        let in_window = self.parts.as_ref().map_or_else(|| within(window), |parts| parts.sum);
        Most { short: within(SHORT), second, window: in_window }
    }

    pub(super) fn forget(&mut self, now: u64, window: u64) {
        while self.times.front().is_some_and(|time| time.saturating_add(SECOND) <= now) {
            self.times.pop_front();
        }
        if let Some(parts) = &mut self.parts {
            let part = now / (window / PARTS);
            while let Some((first, count)) = parts.counts.front()
                && first.saturating_add(PARTS) <= part
            {
                parts.sum -= count;
                parts.counts.pop_front();
            }
        }
    }

    /// Bytes allocated besides the struct.
    pub(super) fn bytes(&self) -> usize {
        let parts = self.parts.as_ref().map_or(0, |parts| {
            size_of::<Parts>() + parts.counts.capacity() * size_of::<(u64, u64)>()
        });
        self.times.capacity() * size_of::<u64>() + parts
    }

    /// Releases unneeded memory.
    pub(super) fn shrink(&mut self) {
        self.times.shrink_to_fit();
        if let Some(parts) = &mut self.parts {
            parts.counts.shrink_to_fit();
        }
    }
}
