//! Rule files on disk.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use limiter_rules::RuleFileError;
use limiter_rules::file::requests::RequestFile;
use limiter_rules::file::{MAX_BYTES, Problem};

/// Files with their names, and all that is wrong with any of them.
pub type Files = (Vec<(String, RequestFile)>, Vec<RuleFileError>);

/// Reads rule files: each path is a file, or a directory whose files end in `.yaml` or `.yml`.
pub fn read(paths: &[PathBuf]) -> Files {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        match files(path) {
            Err(error) => errors.push(error),
            Ok(paths) => {
                for path in paths {
                    let name = path.display().to_string();
                    match bytes(&path) {
                        Err(error) => errors.push(failed(&path, &error)),
                        Ok(bytes) => {
                            let (file, wrong) = RequestFile::check(&name, &bytes);
                            errors.extend(wrong);
                            found.push((name, file));
                        }
                    }
                }
            }
        }
    }
    (found, errors)
}

/// A digest of each file, by its domain: files with equal digests are the same.
fn written(files: &[(String, RequestFile)]) -> Vec<(String, u64)> {
    files.iter().map(|(_, file)| (file.domain.clone(), file.digest())).collect()
}

/// A message about files on disk that differ from those in force; `None` if they do not.
fn changed(paths: &[PathBuf], in_force: &[(String, u64)]) -> Option<String> {
    let (files, errors) = read(paths);
    let remedy = "send SIGHUP to this process, as `systemctl reload limiter-serve` does";
    match errors.first() {
        Some(error) => Some(format!("the rule files changed on disk, and cannot be read: {error}")),
        None if written(&files) == in_force => None,
        None => Some(format!("the rule files changed on disk, and are not in force: {remedy}")),
    }
}

/// The rule files in force, and those on disk.
#[derive(Debug, Default)]
pub(crate) struct RuleFiles {
    in_force: Mutex<Vec<(String, RequestFile)>>,
    written: Mutex<Vec<(String, u64)>>,
    on_disk: Mutex<OnDisk>,
}

impl RuleFiles {
    /// The files in force; nobody else changes them while the guard lives.
    pub(crate) fn in_force(&self) -> MutexGuard<'_, Vec<(String, RequestFile)>> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the digests of the files in force.
    pub(crate) fn set_written(&self, files: &[(String, RequestFile)]) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written(files);
    }

    /// The digest of each file in force, by its domain.
    pub(crate) fn written(&self) -> Vec<(String, u64)> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn on_disk(&self) -> MutexGuard<'_, OnDisk> {
        self.on_disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the files on disk are those in force, and logs it if they are not.
    pub(crate) fn look(&self, paths: &[PathBuf]) {
        let mut on_disk = self.on_disk();
        if on_disk.is_new(paths) {
            let line = changed(paths, &self.written());
            if let Some(line) = line.as_ref().filter(|line| on_disk.changed.as_ref() != Some(line))
            {
                tracing::warn!("{line}");
            }
            on_disk.changed = line;
        }
    }

    /// Notes how a reload went.
    pub(crate) fn reloaded(&self, errors: Option<&[RuleFileError]>) {
        let failed = errors.and_then(|errors| errors.first()).map(|error| {
            format!("the rules from before stay in force, the latest reload failed: {error}")
        });
        *self.on_disk() = OnDisk { failed, ..OnDisk::default() };
    }

    /// Whether the latest reload took the files, and whether they have changed since.
    pub(crate) fn are_taken(&self) -> [bool; 2] {
        let on_disk = self.on_disk();
        [on_disk.failed.is_none(), on_disk.changed.is_some()]
    }

    /// Why the files on disk are not in force; none if they are, as far as is known.
    pub(crate) fn not_in_force(&self) -> Option<String> {
        let on_disk = self.on_disk();
        on_disk.failed.clone().or_else(|| on_disk.changed.clone())
    }
}

/// Rule files on disk, as they were seen last.
#[derive(Debug, Default)]
struct OnDisk {
    /// Names, sizes and times at the latest look, and those that were read.
    seen: Vec<Stamp>,
    read: Option<Vec<Stamp>>,
    /// A message about files that differ from those in force.
    changed: Option<String>,
    /// A message about the latest reload, if it failed.
    failed: Option<String>,
}

/// The path of a file, with the metadata that changes when it does.
type Stamp = (PathBuf, Option<[i64; 4]>);

impl OnDisk {
    /// True if the files differ from those that were read last, and have stopped changing.
    fn is_new(&mut self, paths: &[PathBuf]) -> bool {
        let all = paths.iter().flat_map(|path| files(path).unwrap_or_else(|_| vec![path.clone()]));
        let stamp = |path: PathBuf| {
            let of = fs::metadata(&path).ok().map(|of| {
                let size = of.size().cast_signed();
                [of.ino().cast_signed(), size, of.ctime(), of.ctime_nsec()]
            });
            (path, of)
        };
        let seen: Vec<Stamp> = all.map(stamp).collect();
        // Somebody may still be writing.
        let stays = seen == self.seen;
        self.seen = seen;
        let is_new = stays && self.read.as_ref() != Some(&self.seen);
        if is_new {
            self.read = Some(self.seen.clone());
        }
        is_new
    }
}

/// The files that a path stands for.
///
/// # Errors
///
/// Why there are none.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, RuleFileError> {
    let metadata = fs::metadata(path).map_err(|error| failed(path, &error))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| failed(path, &error))? {
        let name = entry.map_err(|error| failed(path, &error))?.file_name();
        let extension = Path::new(&name).extension().and_then(|extension| extension.to_str());
        if !name.to_string_lossy().starts_with('.') && matches!(extension, Some("yaml" | "yml")) {
            files.push(path.join(name));
        }
    }
    files.sort();
    if files.is_empty() {
        let file = path.display().to_string();
        return Err(RuleFileError { file, place: None, problem: Problem::NoFiles });
    }
    Ok(files)
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe could not be read again.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn failed(path: &Path, error: &io::Error) -> RuleFileError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "let the user of this process read it",
        _ => "check the file",
    };
    let problem = Problem::Read { reason: error.to_string(), remedy };
    RuleFileError { file: path.display().to_string(), place: None, problem }
}
