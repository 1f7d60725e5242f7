//! Names and numbers that daemon and program agree on.

/// Changed whenever a layout, a map or the meaning of a value changes. A daemon adopts pinned maps
/// only when theirs is the same.
pub const ABI_VERSION: u64 = 1;

/// Upper bound of limit slots: what [`crate::bucket::Resolved`] has bits for.
pub const MAX_SLOTS: u32 = 1 << 19;

/// Indices into the `CONTROL` array of `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Control {
    /// [`ABI_VERSION`] of whoever made the maps.
    Abi = 0,
    /// The rule set in force. Its lowest bit chooses the trie; storing it is the commit.
    Generation = 1,
    /// Non-zero: `limiter off`, every packet passes.
    Brake = 2,
    /// Which lists have entries: [`LISTS_EXACT`] and [`LISTS_PREFIXES`]. The program asks no other.
    Lists = 3,
}

/// Bit of [`Control::Lists`]: there are single sources.
pub const LISTS_EXACT: u64 = 1;

/// Bit of [`Control::Lists`]: there are prefixes.
pub const LISTS_PREFIXES: u64 = 2;

impl Control {
    /// Number of entries.
    pub const COUNT: u32 = 4;

    /// The array index.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self as u32
    }
}

/// Map names, as they stand in the object file and under the pin directory.
pub mod map {
    /// `u64` by [`super::Control`]: written by the daemon.
    pub const CONTROL: &str = "CONTROL";
    /// [`super::super::Limit`] by slot: written by the daemon, never while a slot is in force.
    pub const LIMITS: &str = "LIMITS";
    /// Two tries from prefix (IPv4 as IPv4-mapped IPv6) to slot, chosen by generation.
    pub const RULES: &str = "RULES";
    /// [`super::super::ListEntry`] by source, as the trie knows it.
    pub const LISTED: &str = "LISTED";
    /// [`super::super::ListEntry`] by prefix, in a trie.
    pub const LISTED_PREFIXES: &str = "LISTED_PREFIXES";
    /// [`super::super::Bucket`] by IPv4 address.
    pub const SOURCES_V4: &str = "SOURCES_V4";
    /// [`super::super::Bucket`] by IPv6 /64.
    pub const SOURCES_V6: &str = "SOURCES_V6";
    /// Per-CPU [`super::super::Tally`] by [`crate::verdict::Reason`].
    pub const REASONS: &str = "REASONS";
    /// Per-CPU [`super::super::RuleCounters`] by rule number.
    pub const RULE_STATS: &str = "RULE_STATS";
    /// All of them, in the order in which they are pinned.
    pub const ALL: [&str; 9] = [
        CONTROL,
        LIMITS,
        RULES,
        LISTED,
        LISTED_PREFIXES,
        SOURCES_V4,
        SOURCES_V6,
        REASONS,
        RULE_STATS,
    ];
}
