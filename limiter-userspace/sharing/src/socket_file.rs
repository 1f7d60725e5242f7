//! A socket in the file system that this process made.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Which file a socket is: no other one is it as long as somebody listens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFile {
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// The file that is at a path now.
    ///
    /// # Errors
    ///
    /// That of looking at it.
    pub fn at(path: &Path) -> io::Result<Self> {
        let of = fs::symlink_metadata(path)?;
        Ok(Self { device: of.dev(), inode: of.ino() })
    }

    /// Removes it from its path; false if another process has made one there since, which stays.
    ///
    /// # Errors
    ///
    /// That of looking at it, or of removing it.
    pub fn remove(self, path: &Path) -> io::Result<bool> {
        let is_own = Self::at(path)? == self;
        if is_own {
            fs::remove_file(path)?;
        }
        Ok(is_own)
    }
}
