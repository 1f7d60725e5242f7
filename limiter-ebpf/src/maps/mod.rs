//! The maps of the kernel as the decision sees them: look-ups and inserts, and all unsafe code for
//! them.

pub(crate) mod atomic;
mod bans;
pub(crate) mod definitions;
mod entries;
pub(crate) mod kernel;
pub(crate) mod members;
mod scratch;
pub(crate) mod words;

pub(crate) use self::definitions::Kernel;
pub(crate) use self::kernel::Clock;
pub(crate) use self::scratch::{facts, scratch};
