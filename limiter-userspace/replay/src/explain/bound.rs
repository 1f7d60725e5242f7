//! The bound of what is kept of the sources of a capture.

/// Megabytes that `explain`, `simulate` and `tune` take at most, whatever is in the capture: with
/// what the program itself takes, and what a table takes besides while it grows.
pub const MAX_MEGABYTES: usize = 300;

/// Bytes of sources, keys, flows and bans that are kept at most, of all rule sets together. A
/// capture that needs more is refused there: what the program would do with full maps is not what a
/// plain answer says.
pub(crate) const MAX_BYTES: usize = 255_000_000;

/// Packets between two looks at how much is kept.
pub(crate) const LOOK: u64 = 64;

/// Sources with their rules and reasons that are distinguished in a summary: a table of 2^21 places
/// has room for so many, in 86 MB.
pub const MAX_REPORTED: usize = 7 << 18;
