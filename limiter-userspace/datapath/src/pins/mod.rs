//! The pins: the directory and its lock, other pins, and a start over maps of another version.

pub(crate) mod bpffs;
pub(crate) mod other_pins;
pub(crate) mod pin_lock;
pub mod pinned;
pub(crate) mod predecessor;
pub(crate) mod succession;
