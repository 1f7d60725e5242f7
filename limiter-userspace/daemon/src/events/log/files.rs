//! Files of the log: `events-1.jsonl`, `events-2.jsonl` and so on; the newest is written. Together
//! they stay below a size: the oldest is removed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::disk::own_files;

/// Number of parts of the log: one part is removed at once.
pub(super) const PARTS: u64 = 8;

/// Bytes of the disk that the log leaves free for limits and lists.
const LEFT: u64 = 4 << 20;

/// The log as it is on disk.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    /// Most bytes of all files together.
    most: u64,
    open: Option<Open>,
    /// Names of the log that are not regular files, as of the last write.
    odd: Vec<PathBuf>,
}

/// The file that is written to.
#[derive(Debug)]
struct Open {
    file: File,
    number: u64,
    /// Bytes of complete lines.
    length: u64,
}

/// Files of the log in a directory.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Bytes of each file, by its number.
    pub(super) sizes: BTreeMap<u64, u64>,
    /// Names that are not regular files.
    pub(super) odd: Vec<PathBuf>,
    /// Highest number in any name.
    last: u64,
}

pub(super) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("events-{number}.jsonl"))
}

fn number(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix("events-")?.strip_suffix(".jsonl")?.parse().ok()?;
    // Another spelling of a number is another file.
    (format!("events-{number}.jsonl") == name).then_some(number)
}

pub(super) fn list(directory: &Path) -> io::Result<Listed> {
    let mut listed = Listed::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(number) else { continue };
        listed.last = listed.last.max(number);
        match fs::symlink_metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => {
                listed.sizes.insert(number, metadata.len());
            }
            Ok(_) => listed.odd.push(entry.path()),
            // The file was removed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    listed.odd.sort_unstable();
    Ok(listed)
}

impl Files {
    pub(super) const fn new(directory: PathBuf, most: u64) -> Self {
        Self { directory, most, open: None, odd: Vec::new() }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn odd(&self) -> &[PathBuf] {
        &self.odd
    }

    /// Appends whole lines; returns the size of the log after that. On an error none of the lines
    /// is written, or the last one is torn.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<u64> {
        let added = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let mut listed = list(&self.directory)?;
        self.odd.clone_from(&listed.odd);
        self.make_room(&mut listed, added)?;
        let disk = rustix::fs::statvfs(&self.directory)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < LEFT.saturating_add(added) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is all but full"));
        }
        let part = self.most / PARTS;
        let mut open = match self.open.take().filter(|open| open.is_there(&self.directory)) {
            Some(open) => open,
            None => match self.newest(&listed)? {
                Some(open) => open,
                None => self.begin(listed.last + 1)?,
            },
        };
        if open.length > 0 && open.length.saturating_add(added) > part {
            open = self.begin(listed.last.max(open.number) + 1)?;
        }
        if let Err(error) = open.add(lines) {
            open.cut();
            return Err(error);
        }
        let before = listed.sizes.get(&open.number).copied().unwrap_or(0);
        let total: u64 = listed.sizes.values().sum();
        let total = total.saturating_sub(before).saturating_add(open.length);
        self.open = Some(open);
        Ok(total)
    }

    /// Removes the oldest files until there is room for `added` bytes.
    fn make_room(&self, listed: &mut Listed, added: u64) -> io::Result<()> {
        while listed.sizes.values().sum::<u64>().saturating_add(added) > self.most {
            let Some((oldest, _)) = listed.sizes.pop_first() else { break };
            match fs::remove_file(path(&self.directory, oldest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens the newest file, if it is the daemon's own, after any incomplete line.
    fn newest(&self, listed: &Listed) -> io::Result<Option<Open>> {
        let Some(number) = listed.sizes.keys().next_back().copied() else { return Ok(None) };
        if number != listed.last {
            return Ok(None);
        }
        let Some(mut file) = own_files::open_own(&path(&self.directory, number))? else {
            return Ok(None);
        };
        let length = file.metadata()?.len();
        let mut open = Open { number, length, file: file.try_clone()? };
        if length > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(length - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                open.add(b"\n")?;
            }
        }
        Ok(Some(open))
    }

    fn begin(&self, number: u64) -> io::Result<Open> {
        let file = own_files::create_new(&path(&self.directory, number))?;
        Ok(Open { file, number, length: 0 })
    }
}

impl Open {
    /// Returns true if the file still has its name, because nothing may be written into a removed
    /// file.
    fn is_there(&self, directory: &Path) -> bool {
        let named = fs::symlink_metadata(path(directory, self.number));
        let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino(), metadata.len());
        match (named, self.file.metadata()) {
            (Ok(named), Ok(held)) => id(&named) == id(&held) && held.len() == self.length,
            _ => false,
        }
    }

    fn add(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(lines)?;
        self.length = self.length.saturating_add(u64::try_from(lines.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Cuts off an incomplete line, which would only waste the missing space.
    fn cut(&self) {
        if let Err(error) = self.file.set_len(self.length) {
            tracing::debug!(%error, "a line of the log of events is torn");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const MOST: u64 = 8000;

    fn names(directory: &Path) -> Vec<u64> {
        list(directory).unwrap().sizes.into_keys().collect()
    }

    fn line(number: u64) -> Vec<u8> {
        format!("{number:099}\n").into_bytes()
    }

    #[test]
    fn all_files_together_stay_below_the_size_and_the_oldest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::new(directory.path().to_owned(), MOST);
        for number in 0..1000 {
            let reported = files.append(&line(number)).unwrap();
            let sizes = list(directory.path()).unwrap().sizes;
            assert_eq!(sizes.values().sum::<u64>(), reported);
            assert!(
                reported <= MOST && sizes.len() <= 9,
                "{reported} bytes in {} files",
                sizes.len()
            );
            // No more than one part is missing.
            assert!(number < 80 || reported >= MOST * 7 / 8, "{reported}");
        }
        let last = names(directory.path()).pop().unwrap();
        let text = fs::read(path(directory.path(), last)).unwrap();
        assert!(text.ends_with(&line(999)));
        let mode = fs::metadata(path(directory.path(), last)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn a_start_goes_on_with_the_newest_file_behind_a_torn_line() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Files::new(directory.path().to_owned(), MOST);
        open().append(&line(1)).unwrap();
        let first = path(directory.path(), 1);
        let mut torn = fs::read(&first).unwrap();
        torn.extend(b"{\"torn");
        fs::write(&first, torn).unwrap();
        open().append(&line(2)).unwrap();
        assert_eq!(names(directory.path()), [1]);
        let text = fs::read(&first).unwrap();
        assert_eq!(text, [line(1), b"{\"torn\n".to_vec(), line(2)].concat());
    }

    /// A pipe, a link, a directory or a foreign file under a name of the log, or a log that
    /// somebody removed: nothing blocks, nothing is written elsewhere, and the log continues.
    #[test]
    fn what_is_in_the_place_of_the_log_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let at = |number| path(directory.path(), number);
        rustix::fs::mknodat(rustix::fs::CWD, at(1), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let spied = directory.path().join("spied");
        fs::write(&spied, "before").unwrap();
        symlink(&spied, at(2)).unwrap();
        fs::create_dir(at(3)).unwrap();
        let mut files = Files::new(directory.path().to_owned(), MOST);
        files.append(&line(1)).unwrap();
        assert_eq!(list(directory.path()).unwrap().odd, [at(1), at(2), at(3)]);
        assert_eq!((names(directory.path()), fs::read(at(4)).unwrap()), (vec![4], line(1)));
        fs::remove_file(at(4)).unwrap();
        files.append(&line(2)).unwrap();
        assert_eq!(names(directory.path()), [4]);
        fs::set_permissions(at(4), fs::Permissions::from_mode(0o644)).unwrap();
        Files::new(directory.path().to_owned(), MOST).append(&line(3)).unwrap();
        assert_eq!((names(directory.path()), fs::read(at(5)).unwrap()), (vec![4, 5], line(3)));
        assert_eq!(fs::read_to_string(spied).unwrap(), "before");
        assert_eq!(number("events-07.jsonl"), None);
    }
}
