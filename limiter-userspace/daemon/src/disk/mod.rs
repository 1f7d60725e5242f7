//! Files of the daemon: its own directory, private files, and checksums.

pub mod own_files;
pub(crate) mod sealed;
pub(crate) mod state_dir;
