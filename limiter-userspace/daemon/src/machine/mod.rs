//! What the daemon uses of the machine that it runs on.

pub(crate) mod attached;
pub(crate) mod clocks;
pub(crate) mod links;
pub(crate) mod memory;
pub(crate) mod notify;
pub(crate) mod readable;
pub mod ssh;
