//! The archive that a kernel unpacks as its first file system: cpio in the format "newc", as
//! Documentation/driver-api/early-userspace/buffer-format.rst of Linux has it.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const END: &str = "TRAILER!!!";

/// Writes an archive. Everything in it is root's and as old as the epoch, so that the same content
/// is the same archive.
#[derive(Debug)]
pub(super) struct Archive<W> {
    out: W,
    length: usize,
    entries: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// An empty one.
    pub(super) fn new(out: W) -> Self {
        Self { out, length: 0, entries: 0, directories: BTreeSet::new() }
    }

    /// Adds a directory, and those above it. `path` has no slash at its begin or end, here and
    /// below.
    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        self.parents_of(path)?;
        if self.directories.insert(path.to_owned()) {
            self.entry(path, DIRECTORY | 0o755, &[])?;
        }
        Ok(())
    }

    /// Adds a file that everybody may read and execute, and the directories above it.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.parents_of(path)?;
        self.entry(path, FILE | 0o755, content)
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.header(END, 0, 0, 1, 0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parents_of(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.directory(parent),
            None => Ok(()),
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len()).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{path}: {error}"))
        })?;
        // Two entries of one number would be hard links.
        self.entries += 1;
        self.header(path, self.entries, mode, 1, size)?;
        self.put(content)?;
        self.pad()
    }

    fn header(&mut self, name: &str, ino: u32, mode: u32, links: u32, size: u32) -> io::Result<()> {
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        // ino, mode, uid, gid, links, mtime, size, the two devices, the name's size, check.
        let fields = [ino, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.put(b"070701")?;
        for field in fields {
            self.put(format!("{field:08X}").as_bytes())?;
        }
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len();
        self.out.write_all(bytes)
    }

    /// Header with name, and content, each end at a multiple of four.
    fn pad(&mut self) -> io::Result<()> {
        let missing = self.length.next_multiple_of(4) - self.length;
        self.put([0; 3].get(..missing).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive as the kernel does: path, mode and content of every entry.
    fn entries(mut archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            assert_eq!(&archive[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&archive[6 + 8 * index..][..8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name) = (field(1), field(6) as usize, field(11) as usize);
            assert_eq!(archive[110 + name - 1], 0, "the name ends with a zero");
            let path = String::from_utf8(archive[110..110 + name - 1].to_vec()).unwrap();
            let begin = (110 + name).next_multiple_of(4);
            if path == END {
                assert_eq!(archive.len(), begin);
                return found;
            }
            found.push((path, mode, archive[begin..begin + size].to_vec()));
            archive = &archive[(begin + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn what_is_written_is_read() {
        // Names and contents of every length modulo four.
        let mut archive = Archive::new(Vec::new());
        let mut expected = Vec::new();
        for length in 0..9 {
            let (path, content) = ("n".repeat(length + 1), vec![b'c'; length]);
            archive.file(&path, &content).unwrap();
            expected.push((path, FILE | 0o755, content));
        }
        assert_eq!(entries(&archive.finish().unwrap()), expected);
    }

    #[test]
    fn directories_come_once_and_before_what_is_in_them() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b/c", b"1").unwrap();
        archive.file("a/b/d", b"2").unwrap();
        archive.directory("a/e").unwrap();
        let entries = entries(&archive.finish().unwrap());
        let paths: Vec<&str> = entries.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d", "a/e"]);
        assert_eq!(entries[0].1, DIRECTORY | 0o755);
    }

    #[test]
    fn the_format_is_newc() {
        let mut archive = Archive::new(Vec::new());
        archive.file("ab", b"xyz").unwrap();
        let bytes = archive.finish().unwrap();
        let header = concat!(
            "070701", "00000001", "000081ED", "00000000", "00000000", "00000001", "00000000",
            "00000003", "00000000", "00000000", "00000000", "00000000", "00000003", "00000000",
            "ab\0", "\0\0\0", "xyz\0"
        );
        assert_eq!(&bytes[..header.len()], header.as_bytes());
    }
}
