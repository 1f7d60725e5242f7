//! Tables of entries that may become full: their settings, and counts of new entries.

use bytemuck::{Pod, Zeroable};

use crate::time::SECOND;

/// The kind of a table of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum EntryKind {
    /// IPv4 sources.
    V4 = 0,
    /// IPv6 sources.
    V6 = 1,
    /// Compact keys: [`crate::bucket_key::BucketKey::compact`].
    Compact = 2,
    /// All other keys of the tables besides the source table.
    Keyed = 3,
}

impl EntryKind {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::V4, Self::V6, Self::Compact, Self::Keyed];

    /// Number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// The kind with a number, of which only the lowest two bits count. All four numbers are valid,
    /// so no branch is needed.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of_number(number: u32) -> Self {
        match number & 3 {
            0 => Self::V4,
            1 => Self::V6,
            2 => Self::Compact,
            _ => Self::Keyed,
        }
    }

    /// The index of the settings of this kind.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn index(self) -> u32 {
        self as u32
    }
}

/// What happens to a packet that has no entry and gets none: the table is full of entries that may
/// not be removed, or there are more new ones than the budget allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Full {
    /// The packet is charged to a bucket that it shares with others:
    /// `limiter_decision::entries::aggregate`.
    #[default]
    Share = 0,
    /// The packet passes, uncharged.
    Pass = 1,
    /// The packet is dropped.
    Drop = 2,
}

impl Full {
    /// Converts the number in a map.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Pass,
            2 => Self::Drop,
            _ => Self::Share,
        }
    }

    /// The name in rule files and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Pass => "pass",
            Self::Drop => "drop",
        }
    }
}

/// Time for which a drained entry stays while there are too many new ones.
pub const KEEP: u64 = 8 * SECOND;

/// Time in which the budget of new entries allows as many as the table holds.
pub const TURNOVER: u64 = 16 * SECOND;

/// One table of entries: the value of `SPACES`, by [`EntryKind`].
///
/// The program changes `cursor`, `flood_until` and `total`; the rest is written once, by the daemon
/// that makes the maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EntryTable {
    /// Capacity of the table, and number of slots of its ring.
    pub entries: u64,
    /// Ticks for which a drained entry stays while there are too many new ones.
    pub keep: u64,
    /// Ticks per new entry on each CPU: the allowed rate.
    pub cost: u64,
    /// Ticks by which new entries may be ahead of that rate, per CPU.
    pub tolerance: u64,
    /// A random number, chosen when the maps are made, so that nobody can predict which prefixes
    /// share a bucket.
    pub seed: u64,
    /// The number of the next ring slot to examine; the slot is its remainder by the number of
    /// entries.
    pub cursor: u64,
    /// The time in ticks until which there count as too many new entries.
    pub flood_until: u64,
    /// Theoretical arrival time of the bucket of all packets without an entry.
    pub total: u64,
}

const _: () = assert!(size_of::<EntryTable>() == 64);

impl EntryTable {
    /// The settings of a table of `entries`. Each CPU may make half of them at once, and then a
    /// [`TURNOVER`]th of them per second.
    pub const fn new(entries: u32, seed: u64) -> Self {
        let entries = entries as u64;
        let cost = match TURNOVER.checked_div(entries) {
            Some(cost) => cost,
            None => TURNOVER,
        };
        Self {
            entries,
            keep: KEEP,
            cost,
            tolerance: TURNOVER >> 1,
            seed,
            cursor: 0,
            flood_until: 0,
            total: 0,
        }
    }

    /// New entries per second that a CPU may make in the long run.
    pub const fn rate(&self) -> u64 {
        match SECOND.checked_div(self.cost) {
            Some(rate) => rate,
            None => 0,
        }
    }
}

/// Counts of new entries on one CPU: the value of `ADMISSION`, by [`EntryKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Admission {
    /// Theoretical arrival time of the demand for new entries on this CPU.
    pub tat: u64,
    /// Theoretical arrival time of the budget for sources and keys that came back.
    pub returned: u64,
    /// Entries made.
    pub made: u64,
    /// Entries that were removed for others.
    pub evicted: u64,
    /// Packets without an entry because there were too many new ones, and they were the first of
    /// their source or key.
    pub first_seen: u64,
    /// Packets without an entry because there were too many new ones, and their source or key had
    /// not come back often enough.
    pub over_budget: u64,
    /// Packets without an entry because none of the examined entries could be removed.
    pub full: u64,
}

impl Admission {
    /// Adds another CPU's counts. The theoretical arrival times then belong to no CPU.
    pub fn merge(&mut self, other: Self) {
        (self.tat, self.returned) = (0, 0);
        self.made = self.made.wrapping_add(other.made);
        self.evicted = self.evicted.wrapping_add(other.evicted);
        self.first_seen = self.first_seen.wrapping_add(other.first_seen);
        self.over_budget = self.over_budget.wrapping_add(other.over_budget);
        self.full = self.full.wrapping_add(other.full);
    }
}

/// Number of buckets of `limiter_decision::entries::aggregate`. A power of two.
pub const AGGREGATES: u32 = 1 << 16;

/// Number of words of `limiter_decision::entries::fingerprint`, of two cells each. A power of two.
pub const FINGERPRINTS: u32 = 1 << 21;
