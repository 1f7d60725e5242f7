//! A directory for one run: rule files, socket, state and mount points.

use std::fs;
use std::path::{Path, PathBuf};
use std::{env, io};

use anyhow::{Context as _, Result};

use crate::names;

/// A fresh directory, mode 0700, removed with its contents on drop.
#[derive(Debug)]
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// Makes the directory under the system's directory for temporary files.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn create(tag: &str) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = env::temp_dir().join(names::unique(tag));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Self(path))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and returns its path.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("cannot remove {}: {error}: remove it by hand", self.0.display());
        }
    }
}
