//! The committed corpora: one file a target, so that thousands of small files are not in the
//! checkout.
//!
//! A file has its inputs one behind the other, each with its length before it in two bytes, the
//! higher first.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::Target;

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry.
    pub name: String,
    /// Bytes of the entry.
    pub bytes: Vec<u8>,
}

/// The longest input that is committed: long enough to reach what there is, short enough for a
/// small file.
const fn longest(target: Target) -> usize {
    match target {
        Target::Packet => 256,
        Target::Rules => 160,
        Target::Decision => 301,
        Target::Import => 400,
    }
}

/// File with the corpus of a target.
pub fn file(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target.name()).join("packed")
}

/// The whole corpus of a target.
///
/// # Errors
///
/// When it cannot be read, or is not whole.
pub fn read(target: Target) -> io::Result<Vec<Entry>> {
    let path = file(target);
    let packed = fs::read(&path)?;
    let mut entries = Vec::new();
    let mut rest = packed.as_slice();
    while !rest.is_empty() {
        let taken = rest.split_first_chunk().and_then(|(length, rest)| {
            rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
        });
        let Some((bytes, behind)) = taken else {
            return Err(io::Error::other(format!("{}: it is not whole", path.display())));
        };
        let name = format!("corpus-{}", entries.len());
        entries.push(Entry { name, bytes: bytes.to_vec() });
        rest = behind;
    }
    Ok(entries)
}

/// Replaces the corpus of a target; says how many inputs are short enough for it.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(target: Target, mut inputs: Vec<Vec<u8>>) -> io::Result<usize> {
    inputs.retain(|input| input.len() <= longest(target));
    inputs.sort();
    inputs.dedup();
    let mut packed = Vec::new();
    for input in &inputs {
        let length = u16::try_from(input.len()).map_err(io::Error::other)?;
        packed.extend(length.to_be_bytes());
        packed.extend(input);
    }
    let path = file(target);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(&path, packed)?;
    Ok(inputs.len())
}
