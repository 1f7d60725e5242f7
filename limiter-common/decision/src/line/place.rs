//! The place of a source: the lines that may hold its entry.

use limiter_common::hash::scatter;

/// One line in 2^5 belongs to the overflow.
const OVERFLOW_BITS: u32 = 5;

/// The lines of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Number of lines: first those of sources, then the overflow.
    pub count: u32,
    /// The seed of the hash that chooses lines.
    pub seed: u64,
}

impl Lines {
    /// Number of overflow lines: none if there are fewer than 32 lines.
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

    /// Index of the first line. The source gets an entry only under its lock.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn first(&self) -> u32 {
        part(self.hash >> 32, self.lines.own())
    }

    /// Index of the second line: a different one, unless there is only one.
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

    /// True if the second line equals the first: the table has only one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_one(&self) -> bool {
        self.lines.own() == 1
    }

    /// Index of the overflow line; `None` in a table without overflow.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn overflow(&self) -> Option<u32> {
        if self.lines.overflow() == 0 {
            return None;
        }
        Some(self.lines.own() + part(self.hash >> 16, self.lines.overflow()))
    }

    /// The number that permutes the ways of a line.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn start(&self) -> u32 {
        (self.hash & 0xffff_ffff) as u32
    }

    /// The lines that may hold a source, in search order.
    #[cfg(not(target_arch = "bpf"))]
    pub fn all(&self) -> impl Iterator<Item = u32> + use<> {
        let second = Some(self.second()).filter(|_| !self.is_one());
        [Some(self.first()), second, self.overflow()].into_iter().flatten()
    }
}

/// A uniformly distributed number below `count`, from the lower half of a hash.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn part(hash: u64, count: u32) -> u32 {
    ((hash & 0xffff_ffff).wrapping_mul(count as u64) >> 32) as u32
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn way(start: u32, step: u32, last: u32) -> u32 {
    (start ^ step) & last
}
