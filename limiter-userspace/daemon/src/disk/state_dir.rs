//! The daemon's own directory: a lock, the edits of the command line, and the lists.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use limiter_api::rules::Document;
use limiter_rules::RuleFiles;
use limiter_text::plain::clean;
use limiter_text::second_daemon::SECOND_DAEMON;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::own_files;
use super::sealed;
use crate::rule_sets::rule_files;

/// Reason why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another daemon uses the directory.
    #[error(
        "{}: another daemon{} uses this state directory: {SECOND_DAEMON}",
        directory.display(), pid_text(pid)
    )]
    Locked {
        /// State directory that another daemon uses.
        directory: PathBuf,
        /// The other daemon's process id, as it wrote it down.
        pid: String,
    },
    /// The system refused.
    #[error("{}: cannot {what}: {source}: check the directory, or give --state-dir", path.display())]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Path that it failed on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl StateError {
    pub(crate) fn reading(path: &Path, source: io::Error) -> Self {
        system("read the lists", path, source)
    }

    pub(crate) fn writing(path: &Path, source: io::Error) -> Self {
        system("write the state", path, source)
    }
}

fn pid_text(pid: &str) -> String {
    if pid.is_empty() { String::new() } else { format!(" (pid {pid})") }
}

/// The directory, locked as long as this value lives.
#[derive(Debug)]
pub(crate) struct StateDir {
    directory: PathBuf,
    /// Closing it releases the lock.
    _lock: File,
}

/// The edits of the command line.
pub(crate) const EDITS: &str = "edits.json";

/// The allow and deny lists.
pub(crate) const LISTS: &str = "lists.json";

/// Changes of the lists since `lists.json` was written.
pub(crate) const JOURNAL: &str = "lists.journal";

/// The rule set of `limiter apply`.
pub(crate) const APPLIED: &str = "applied.json";

/// Consequence of unusable applied rules.
pub(crate) const NOT_APPLIED: &str =
    "the rules of `limiter apply` are not in force, and the rule files are";

/// The file of the applied rules.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Applied {
    /// Digest of the rule files that they replace, and no others.
    pub(crate) replaces: String,
    pub(crate) documents: Vec<Document>,
}

/// A file that cannot be used, and the consequences.
#[derive(Debug)]
pub(crate) struct Damage {
    /// Line for people: the file, the problem, what is not in force, and the remedy.
    pub(crate) warning: String,
    /// Copies of the file. The administrator removes them after looking at them.
    pub(crate) copies: Vec<PathBuf>,
}

impl Damage {
    /// Returns true until the administrator has dealt with it.
    pub(crate) fn stands(&self) -> bool {
        self.copies.is_empty() || self.copies.iter().any(|copy| !own_files::is_absent(copy))
    }
}

/// A new version of a file under another name, or the removal of a file. If dropped, it changes
/// nothing and leaves nothing.
#[derive(Debug)]
#[must_use]
pub(crate) struct Prepared {
    /// Path of the new version; `None` to remove the file.
    path: Option<PathBuf>,
    target: PathBuf,
    /// True if the new version has its final name.
    done: bool,
}

/// The version of a file that a new one replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// The old version has a second name.
    Kept,
    /// No version was there.
    Nothing,
    /// The old version cannot have a second name.
    Lost,
}

impl StateDir {
    pub(crate) fn open(directory: &Path) -> Result<Self, StateError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(directory)
            .map_err(|source| system("make the directory", directory, source))?;
        let path = directory.join("lock");
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut lock =
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(flags)
                .open(&path)
                .and_then(|lock| {
                    if lock.metadata()?.is_file() { Ok(lock) } else { Err(own_files::no_file()) }
                })
                .map_err(|source| system("open the lock", &path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The holder's pid is useful, but not needed to refuse.
                if let Err(error) = lock.read_to_string(&mut pid) {
                    tracing::debug!(%error, "the lock cannot be read");
                }
                let (directory, pid) = (directory.to_owned(), pid.trim().to_owned());
                return Err(StateError::Locked { directory, pid });
            }
            Err(TryLockError::Error(source)) => return Err(system("lock", &path, source)),
        }
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        // The pid only helps another daemon's message: a full disk is no reason to leave a machine
        // without limits.
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "the lock does not say who holds it");
        }
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// Reads a file unchecked; returns `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.directory.join(name);
        let read = || {
            let Some(mut file) = own_files::open(&path)? else { return Ok(None) };
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        };
        read().map_err(|source| system("read the state", &path, source))
    }

    /// Reads a file and checks its checksum; returns `None` if it does not exist. `of` parses the
    /// text, and `lost` describes what is not in force without the file.
    pub(crate) fn read_whole<T>(
        &self,
        name: &str,
        of: impl FnOnce(String) -> Result<T, String>,
        lost: &str,
        damages: &mut Vec<Damage>,
    ) -> Result<Option<T>, StateError> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        let text = sealed::unsealed(&bytes).and_then(|content| {
            String::from_utf8(content.to_vec()).map_err(|error| error.utf8_error().to_string())
        });
        match text.and_then(of) {
            Ok(whole) => Ok(Some(whole)),
            Err(reason) => {
                damages.push(self.damaged(name, &reason, lost));
                Ok(None)
            }
        }
    }

    /// Keeps a copy of a file that cannot be used. A machine without limits is worse than one with
    /// only its rule files.
    pub(crate) fn damaged(&self, name: &str, reason: &str, lost: &str) -> Damage {
        let path = self.directory.join(name);
        let (kept, copies) = match self.keep_copy(name) {
            Ok(Some(copy)) => {
                let kept = format!(
                    "what was saved is kept as {}: make again what is missing, and remove that \
                     copy",
                    copy.display()
                );
                (kept, vec![copy])
            }
            Ok(None) => ("make again what is missing".to_owned(), Vec::new()),
            Err(error) => {
                let kept = format!("no copy of it can be kept ({error}): save it elsewhere");
                (kept, Vec::new())
            }
        };
        let warning = format!("{}: {reason}: {lost}; {kept}", path.display());
        Damage { warning: clean(&warning), copies }
    }

    /// Reads the edits; returns `None` if the file does not exist or is damaged. `max_frame` as in
    /// [`rule_files::parse`].
    pub(crate) fn read_edits(
        &self,
        max_frame: u64,
        damages: &mut Vec<Damage>,
    ) -> Result<RuleFiles, StateError> {
        let name = self.directory.join(EDITS).display().to_string();
        let parsed = |text| {
            let document = Document { name, text };
            rule_files::parse(&[document], max_frame).map_err(|error| error.to_string())
        };
        let lost = "the limits of `limiter set` are not in force";
        Ok(self.read_whole(EDITS, parsed, lost, damages)?.unwrap_or_default())
    }

    /// Copies a file that will be rewritten although it could not be read completely. Returns the
    /// path of the copy, if the file existed.
    pub(crate) fn keep_copy(&self, name: &str) -> io::Result<Option<PathBuf>> {
        let path = self.directory.join(name);
        let copy = with_suffix(&path, "broken");
        let Some(mut from) = own_files::open(&path)? else { return Ok(None) };
        io::copy(&mut from, &mut own_files::create(&copy)?)?;
        Ok(Some(copy))
    }

    /// Removes a file that nothing depends on.
    pub(crate) fn remove(&self, name: &str) {
        let path = self.directory.join(name);
        if let Err(error) = absent(fs::remove_file(&path)) {
            tracing::warn!(%error, path = %path.display(), "a file that is not used is left");
        }
    }

    /// Waits until the names in the directory are on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    /// Writes a file beside the present one; [`Prepared::publish`] replaces that.
    pub(crate) fn prepare(&self, name: &str, text: &str) -> Result<Prepared, StateError> {
        self.prepare_with(name, |file| sealed::seal(file, |to| to.write_all(text.as_bytes())))
    }

    /// As [`StateDir::prepare`], with the bytes that `text` writes.
    pub(crate) fn prepare_with(
        &self,
        name: &str,
        text: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<Prepared, StateError> {
        let path = self.directory.join(format!("{name}.new"));
        let write = || {
            let mut buffer = BufWriter::new(own_files::create_anew(&path)?);
            text(&mut buffer)?;
            buffer.flush()?;
            buffer.get_ref().sync_all()
        };
        // Made before the file is written: half a file would only waste the missing space.
        let prepared =
            Prepared { path: Some(path.clone()), target: self.directory.join(name), done: false };
        write().map_err(|source| StateError::writing(&path, source))?;
        Ok(prepared)
    }

    /// Prepares the removal of a file, which need not exist; [`Prepared::publish`] carries it out.
    pub(crate) fn removal(&self, name: &str) -> Prepared {
        Prepared { path: None, target: self.directory.join(name), done: false }
    }

    /// Reads the applied rules; returns `None` if there are none or they are damaged.
    pub(crate) fn read_applied(
        &self,
        damages: &mut Vec<Damage>,
    ) -> Result<Option<Applied>, StateError> {
        let parsed = |text: String| serde_json::from_str(&text).map_err(|error| error.to_string());
        self.read_whole(APPLIED, parsed, NOT_APPLIED, damages)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Prepared {
    /// Replaces the file in one step that survives a power cut. On an error the file is unchanged.
    pub(crate) fn publish(mut self) -> Result<(), StateError> {
        self.replace().map_err(|source| system("save the state", &self.target, source))
    }

    fn replace(&mut self) -> io::Result<()> {
        let target = self.target.as_path();
        // Opened before anything changes, so that running out of descriptors changes nothing.
        let directory = File::open(target.parent().unwrap_or(Path::new(".")))?;
        // The old version keeps a second name until the new one is on disk.
        let old = with_suffix(target, "old");
        absent(fs::remove_file(&old))?;
        // A removed file is only renamed, because a full disk has no room for a second name.
        let named = match self.path {
            Some(_) => fs::hard_link(target, &old),
            None if target.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            None => fs::rename(target, &old),
        };
        let before = match named {
            Ok(()) => Before::Kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Before::Nothing,
            // The file system has no hard links, such as VFAT.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS | libc::EMLINK)
                ) =>
            {
                Before::Lost
            }
            Err(error) => return Err(error),
        };
        let changed = match &self.path {
            Some(path) => fs::rename(path, target),
            None => absent(fs::remove_file(target)),
        };
        self.done = changed.is_ok();
        let safe = changed.and_then(|()| directory.sync_all());
        if safe.is_err() && self.done {
            // The rules that come back at the next start must be those in force.
            match before {
                Before::Kept => fs::rename(&old, target)?,
                Before::Nothing => absent(fs::remove_file(target))?,
                Before::Lost => {}
            }
        } else if before == Before::Kept
            && let Err(error) = fs::remove_file(&old)
        {
            tracing::warn!(%error, path = %old.display(), "the version before is left");
        }
        safe
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|_| !self.done)
            && let Err(error) = absent(fs::remove_file(path))
        {
            tracing::warn!(%error, path = %path.display(), "a version that is not used is left");
        }
    }
}

/// Treats a missing file as a removed one.
fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn system(what: &'static str, path: &Path, source: io::Error) -> StateError {
    StateError::System { what, path: path.to_owned(), source }
}
