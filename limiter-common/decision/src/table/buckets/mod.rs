//! The bucket of a key: found, made, and converted to the limit in force.

pub(crate) mod entry;
pub(crate) mod refresh;
pub(crate) mod target;
