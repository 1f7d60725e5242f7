//! The bound of what an explanation keeps.

/// Sources, keys, flows and bans that are kept at most, together: about 250 bytes each. A capture
/// that needs more is refused, because what the program would do with full maps is not what a plain
/// answer says.
pub const MAX_TRACKED: usize = 2_000_000;
