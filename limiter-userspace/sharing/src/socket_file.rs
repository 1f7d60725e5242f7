//! A socket file that this process made.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Identifies a socket file: no other file has this identity while somebody listens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFile {
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// The file at a path now.
    ///
    /// # Errors
    ///
    /// If its metadata cannot be read.
    pub fn at(path: &Path) -> io::Result<Self> {
        let of = fs::symlink_metadata(path)?;
        Ok(Self { device: of.dev(), inode: of.ino() })
    }

    /// Removes it from its path. Returns false if another process has made a socket there since,
    /// which stays.
    ///
    /// # Errors
    ///
    /// If its metadata cannot be read, or it cannot be removed.
    pub fn remove(self, path: &Path) -> io::Result<bool> {
        let is_own = Self::at(path)? == self;
        if is_own {
            fs::remove_file(path)?;
        }
        Ok(is_own)
    }
}
