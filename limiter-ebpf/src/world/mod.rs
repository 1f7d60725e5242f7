//! The maps of the kernel, as the decision sees them: look-ups and inserts, and all that is unsafe.

pub(crate) mod atomic;
mod bans;
pub(crate) mod frame;
pub(crate) mod kernel;
pub(crate) mod lists;
mod maps;
pub(crate) mod room;
pub(crate) mod room_keyed;
pub(crate) mod socket;
pub(crate) mod sources;
mod tables;
pub(crate) mod uncounted;
pub(crate) mod words;

pub(crate) use self::kernel::{Clock, Home, Kernel, apart, control, facts, scratch};
