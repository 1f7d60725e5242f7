//! The lock of a pin directory: one daemon has it, whatever path it uses. The lock is on the
//! directory itself, so it ends with its process.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{major, minor};

use crate::{DatapathError, PinDir};

/// Attempts to make a directory that is removed while it is being locked.
const TRIES: u32 = 16;

#[derive(Debug)]
pub(crate) struct PinLock {
    pins: PinDir,
    /// Closing the file releases the lock.
    directory: File,
}

impl PinLock {
    /// Makes the directory if it is missing, and locks it.
    pub(crate) fn take(pins: &PinDir) -> Result<Self, DatapathError> {
        for _ in 0..TRIES {
            pins.create()?;
            let failed = |source| {
                pins.remove_own();
                DatapathError::path("locking", pins.path())(source)
            };
            let directory = match File::open(pins.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match directory.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let (path, pid) = (pins.path().to_owned(), holder(&directory));
                    return Err(DatapathError::PinsInUse { path, pid });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            let lock = Self { pins: pins.clone(), directory };
            // Otherwise the path holds another directory now, which this lock does not protect.
            if lock.holds() {
                return Ok(lock);
            }
        }
        let gone = io::Error::other("somebody removes it again and again");
        Err(DatapathError::path("locking", pins.path())(gone))
    }

    /// True if the path still holds the locked directory.
    pub(crate) fn holds(&self) -> bool {
        let Ok(locked) = self.directory.metadata() else { return true };
        match fs::metadata(self.pins.path()) {
            Ok(found) => (found.dev(), found.ino()) == (locked.dev(), locked.ino()),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// The process that holds the lock, if it can be seen. It only improves the error message.
fn holder(directory: &File) -> Option<u32> {
    let file = directory.metadata().ok()?;
    let device = file.dev();
    let key = format!("{:02x}:{:02x}:{}", major(device), minor(device), file.ino());
    held_by(&fs::read_to_string("/proc/locks").ok()?, &key)
}

/// Process that holds the lock of a file by flock(2), from the lines of `/proc/locks`.
fn held_by(locks: &str, key: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
        // A process of another PID namespace has no number here.
        (file == key).then(|| pid.parse().ok()).flatten().filter(|pid| *pid > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_the_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1c:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 0 00:1c:78 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 12 00:1c:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 13 00:1c:77 0 EOF\n";
        assert_eq!(held_by(locks, "00:1c:77"), Some(13));
        assert_eq!(held_by(locks, "00:1c:78"), None);
        assert_eq!(held_by(locks, "00:1c:7"), None);
        assert_eq!(held_by("", "00:1c:77"), None);
    }
}
