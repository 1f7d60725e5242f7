//! The bound on the memory for sources of a capture.

/// Most megabytes that `explain`, `simulate` and `tune` use, whatever the capture contains:
/// including the program itself, and the extra memory while a table grows.
pub const MAX_MEGABYTES: usize = 300;

/// Most bytes of sources, keys, flows and bans that all rule sets together keep. A capture that
/// needs more is rejected at that packet: a plain answer cannot tell what the program would do with
/// full maps.
pub(crate) const MAX_BYTES: usize = 255_000_000;

/// Packets between two checks of the memory.
pub(crate) const LOOK: u64 = 64;

/// Combinations of source, rule and reason that a summary distinguishes: a table of 2^21 places
/// holds so many, in 86 MB.
pub const MAX_REPORTED: usize = 7 << 18;
