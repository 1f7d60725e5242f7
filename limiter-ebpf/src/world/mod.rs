//! The maps of the kernel, as the decision sees them: look-ups and inserts, and all that is unsafe.

pub(crate) mod atomic;
mod bans;
mod entries;
pub(crate) mod frame;
pub(crate) mod kernel;
pub(crate) mod maps;
mod scratch;
pub(crate) mod socket;
pub(crate) mod words;

pub(crate) use self::kernel::Clock;
pub(crate) use self::maps::Kernel;
pub(crate) use self::scratch::{facts, scratch};
