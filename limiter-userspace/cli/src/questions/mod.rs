//! Commands that ask what is: the daemon, or the pinned maps where none answers.

pub(crate) mod events;
#[cfg(feature = "requests")]
pub(crate) mod refused;
pub(crate) mod sources;
pub(crate) mod way;
pub(crate) mod without_daemon;
