//! The committed corpora: one file an input.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Target;

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of its file.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Where the corpus of a target is.
pub fn directory(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target.name())
}

/// The whole corpus of a target, in the order of the names.
///
/// # Errors
///
/// When it cannot be read.
pub fn read(target: Target) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in fs::read_dir(directory(target))? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        entries.push(Entry { name, bytes: fs::read(file.path())? });
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
