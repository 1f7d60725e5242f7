//! The key of a packet in a table, full or compact, and the rule that holds for it.

pub(crate) mod compact;
pub(crate) mod key;
pub(crate) mod key_cell;
pub(crate) mod lookup;
