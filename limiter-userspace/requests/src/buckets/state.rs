//! The directory in which buckets are kept across restarts.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::buckets::snapshot::{Snapshot, Unusable};
use crate::clock::{self, Moment};
use crate::limiter::Limiter;

/// The current snapshot.
const SNAPSHOT: &str = "snapshot";

/// A snapshot that is being written.
const NEW: &str = "snapshot.new";

/// A snapshot that could not be used.
const ASIDE: &str = "snapshot.broken";

/// Where buckets are kept, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateOptions {
    /// The directory, which is made if it is missing.
    pub directory: PathBuf,
    /// Time from one snapshot to the next: a killed process may forget this much.
    pub every: Duration,
}

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has it.
    #[error(
        "{}: another `limiter serve` uses this directory: stop that one, or give another \
         --state-dir", .0.display()
    )]
    Locked(PathBuf),
    /// The system refused.
    #[error(
        "{}: cannot {what}: {source}: check the directory, or give another --state-dir",
        path.display()
    )]
    System {
        /// What failed.
        what: &'static str,
        /// What it failed on.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
}

/// The directory, locked as long as this lives.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    directory: PathBuf,
    /// Closing it releases the lock.
    _lock: File,
}

impl StateDirectory {
    pub(crate) fn open(directory: &Path) -> Result<Self, StateError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|source| system("make the directory", directory, source))?;
        let path = directory.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK));
        let lock = options.open(&path).map_err(|source| system("open the lock", &path, source))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { directory: directory.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateError::Locked(directory.to_owned())),
            Err(TryLockError::Error(source)) => Err(system("lock", &path, source)),
        }
    }

    /// The snapshot; `None` if there is none or it cannot be used. An unusable one is reported and
    /// set aside.
    pub(crate) fn read(&self) -> Option<Snapshot<BufReader<File>>> {
        let opened = match open(&self.directory.join(SNAPSHOT)) {
            Ok(file) => file.map(|file| Snapshot::open(BufReader::new(file))).transpose(),
            Err(why) => Err(why),
        };
        opened.unwrap_or_else(|why| {
            self.set_aside(&why, "buckets begin full");
            None
        })
    }

    /// Sets aside a snapshot that cannot be used. It is better to serve requests without their
    /// buckets than not at all.
    pub(crate) fn set_aside(&self, why: &Unusable, so: &str) {
        let (path, aside) = (self.directory.join(SNAPSHOT), self.directory.join(ASIDE));
        let path_shown = path.display();
        match fs::rename(&path, &aside) {
            Ok(()) => tracing::error!(
                "{path_shown}: {why}: {so}; the file is kept as {}: remove it once you have looked \
                 at it",
                aside.display()
            ),
            Err(error) => tracing::error!(
                "{path_shown}: {why}: {so}; it cannot be kept as {}: {error}: save it elsewhere \
                 before the next snapshot takes its place",
                aside.display()
            ),
        }
    }

    /// Writes a snapshot in the place of the one before; returns how many keys it has. If that
    /// fails, the one before stays.
    pub(crate) fn save(&self, limiter: &Limiter) -> io::Result<u64> {
        let (path, new) = (self.directory.join(SNAPSHOT), self.directory.join(NEW));
        remove(&new)?;
        let save = || -> io::Result<u64> {
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(&new)?;
            let mut file = BufWriter::new(file);
            let clock = clock::boot();
            let keys = limiter.save(&mut file, &Moment::now(), clock.as_deref())?;
            file.flush()?;
            file.get_ref().sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.directory)?.sync_all()?;
            Ok(keys)
        };
        save().inspect_err(|_| {
            // The error of the writing is the one that matters.
            drop(remove(&new));
        })
    }
}

/// Opens a snapshot for reading; `None` if there is no such file.
fn open(path: &Path) -> Result<Option<File>, Unusable> {
    let flags = flags(OFlags::NOFOLLOW | OFlags::NONBLOCK);
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A symbolic link.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(Unusable::Foreign);
        }
        opened => opened?,
    };
    let of = file.metadata()?;
    if of.is_file() && is_trusted(of.uid(), of.mode(), geteuid().as_raw()) {
        Ok(Some(file))
    } else {
        Err(Unusable::Foreign)
    }
}

/// True if nobody but this user and root could write to a file.
const fn is_trusted(owner: u32, mode: u32, own: u32) -> bool {
    (owner == own || owner == 0) && mode & 0o022 == 0
}

const fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn system(what: &'static str, path: &Path, source: io::Error) -> StateError {
    StateError::System { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(10).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let all = fs::read_dir(directory).unwrap();
        let mut all: Vec<String> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn a_snapshot_is_written_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("of").join("serve");
        let state = StateDirectory::open(&path).unwrap();
        assert!(state.read().is_none());
        state.save(&limiter()).unwrap();
        assert_eq!(names(&path), ["lock", "snapshot"]);
        assert_eq!(fs::metadata(path.join(SNAPSHOT)).unwrap().mode() & 0o777, 0o600);
        let before = fs::read(path.join(SNAPSHOT)).unwrap();
        // What a process left that was killed while it wrote is no obstacle, but a directory is.
        fs::write(path.join(NEW), "half").unwrap();
        state.save(&limiter()).unwrap();
        assert!(fs::read(path.join(SNAPSHOT)).unwrap() != before, "another secret");
        let before = fs::read(path.join(SNAPSHOT)).unwrap();
        fs::create_dir(path.join(NEW)).unwrap();
        state.save(&limiter()).unwrap_err();
        assert_eq!(fs::read(path.join(SNAPSHOT)).unwrap(), before);
        assert!(state.read().is_some());
    }

    #[test]
    fn a_directory_is_for_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(directory.path()).unwrap();
        let error = StateDirectory::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("another `limiter serve`"), "{error}");
        drop(first);
        StateDirectory::open(directory.path()).unwrap();
    }

    #[test]
    fn what_is_no_snapshot_of_ours_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(directory.path()).unwrap();
        let path = directory.path().join(SNAPSHOT);
        let aside = || {
            assert!(state.read().is_none());
            assert_eq!(names(directory.path()), ["lock", "snapshot.broken"]);
        };
        fs::write(&path, "something else").unwrap();
        aside();
        // Others may have written it.
        state.save(&limiter()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        aside();
        state.save(&limiter()).unwrap();
        fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(state.read().is_none());
        assert_eq!(names(directory.path()), ["elsewhere", "lock", "snapshot.broken"]);
        assert!(fs::symlink_metadata(directory.path().join(ASIDE)).unwrap().is_symlink());
    }

    #[test]
    fn files_of_others_are_not_trusted() {
        assert!(is_trusted(7, 0o100_600, 7) && is_trusted(0, 0o100_644, 7));
        for (owner, mode) in [(8, 0o100_600), (7, 0o100_620), (7, 0o100_602)] {
            assert!(!is_trusted(owner, mode, 7), "{owner} {mode:o}");
        }
    }
}
