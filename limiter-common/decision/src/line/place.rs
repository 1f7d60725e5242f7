//! The place of a source: the lines in which it may have its entry.

use limiter_common::hash::scatter;

/// One line in 2^5 is of the overflow.
const OVERFLOW_BITS: u32 = 5;

/// The lines of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Number of lines: those that sources have, and behind them the overflow.
    pub count: u32,
    /// The seed of the hash that chooses lines.
    pub seed: u64,
}

impl Lines {
    /// Number of lines of the overflow: none of fewer than 32.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn overflow(&self) -> u32 {
        self.count >> OVERFLOW_BITS
    }

    /// Number of lines before the overflow.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn own(&self) -> u32 {
        self.count - self.overflow()
    }
}

/// The lines of a source: two of its own, and one of the overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    hash: u64,
    lines: Lines,
}

impl Place {
    /// The place of a name ([`limiter_common::bucket_key::BucketKey::name`]).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of(name: u64, lines: Lines) -> Self {
        Self { hash: scatter(name ^ lines.seed), lines }
    }

    /// Index of the first line. Its lock is the one under which the source gets an entry.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn first(&self) -> u32 {
        part(self.hash >> 32, self.lines.own())
    }

    /// Index of the second line: another one, unless there is only one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn second(&self) -> u32 {
        let (first, second) = (self.first(), part(self.hash, self.lines.own()));
        if first != second {
            second
        } else if second + 1 < self.lines.own() {
            second + 1
        } else {
            0
        }
    }

    /// True if the second line is the first one: the only one of its table.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_one(&self) -> bool {
        self.lines.own() == 1
    }

    /// Index of the line of the overflow; `None` in a table that has none.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn overflow(&self) -> Option<u32> {
        if self.lines.overflow() == 0 {
            return None;
        }
        Some(self.lines.own() + part(self.hash >> 16, self.lines.overflow()))
    }

    /// The number by which the ways of a line are taken in turn.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn start(&self) -> u32 {
        (self.hash & 0xffff_ffff) as u32
    }

    /// The lines that a source may stand in, in the order in which they are looked at.
    #[cfg(not(target_arch = "bpf"))]
    pub fn all(&self) -> impl Iterator<Item = u32> + use<> {
        let second = Some(self.second()).filter(|_| !self.is_one());
        [Some(self.first()), second, self.overflow()].into_iter().flatten()
    }
}

/// A number below `count`, of the lower half of a hash: each as often.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn part(hash: u64, count: u32) -> u32 {
    ((hash & 0xffff_ffff).wrapping_mul(count as u64) >> 32) as u32
}

/// The way that is looked at in a step.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn way(start: u32, step: u32, last: u32) -> u32 {
    (start ^ step) & last
}
