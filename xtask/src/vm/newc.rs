//! The archive that a kernel unpacks as its first file system: cpio in the format "newc".

use std::collections::BTreeSet;
use std::io::{self, Write};

use cpio::newc::{Builder, ModeFileType, trailer};

/// Writes an archive. Everything in it is root's and as old as the epoch, so that the same content
/// is the same archive.
#[derive(Debug)]
pub(super) struct Archive<W> {
    out: W,
    entries: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, entries: 0, directories: BTreeSet::new() }
    }

    /// Adds a directory, and those above it. `path` has no slash at its begin or end, here and
    /// below.
    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        self.parents_of(path)?;
        if self.directories.insert(path.to_owned()) {
            self.entry(path, ModeFileType::Directory, &[])?;
        }
        Ok(())
    }

    /// Adds a file that everybody may read and execute, and the directories above it.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.parents_of(path)?;
        self.entry(path, ModeFileType::Regular, content)
    }

    pub(super) fn finish(self) -> io::Result<W> {
        let mut out = trailer(self.out)?;
        out.flush()?;
        Ok(out)
    }

    fn parents_of(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.directory(parent),
            None => Ok(()),
        }
    }

    fn entry(&mut self, path: &str, kind: ModeFileType, content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len()).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{path}: {error}"))
        })?;
        // Two entries of one number would be hard links.
        self.entries += 1;
        let entry = Builder::new(path).ino(self.entries).mode(0o755).set_mode_file_type(kind);
        let mut entry = entry.write(&mut self.out, size);
        entry.write_all(content)?;
        entry.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_once_and_before_what_is_in_them() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b/c", b"1").unwrap();
        archive.file("a/b/d", b"2").unwrap();
        archive.directory("a/e").unwrap();
        let archive = archive.finish().unwrap();
        let mut rest = archive.as_slice();
        let mut entries = Vec::new();
        loop {
            let reader = cpio::NewcReader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let (path, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut content = Vec::new();
            rest = reader.to_writer(&mut content).unwrap();
            entries.push((path, mode, String::from_utf8(content).unwrap()));
        }
        let entry = |path: &str, mode, content: &str| (path.to_owned(), mode, content.to_owned());
        let expected = [
            entry("a", 0o040_755, ""),
            entry("a/b", 0o040_755, ""),
            entry("a/b/c", 0o100_755, "1"),
            entry("a/b/d", 0o100_755, "2"),
            entry("a/e", 0o040_755, ""),
        ];
        assert_eq!(entries, expected);
    }

    /// By the letter: what the kernel reads, with the root as owner and the epoch as time.
    #[test]
    fn the_format_is_newc() {
        let mut archive = Archive::new(Vec::new());
        archive.file("ab", b"xyz").unwrap();
        let bytes = archive.finish().unwrap();
        let header = concat!(
            "070701", "00000001", "000081ed", "00000000", "00000000", "00000001", "00000000",
            "00000003", "00000000", "00000000", "00000000", "00000000", "00000003", "00000000",
            "ab\0", "\0\0\0", "xyz\0"
        );
        assert_eq!(&bytes[..header.len()], header.as_bytes());
    }
}
