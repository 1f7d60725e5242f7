//! Commands that change what is in force.

pub(crate) mod limits;
pub(crate) mod lists;
pub(crate) mod pinned;
pub(crate) mod rule_sets;
