//! Rule files on disk.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

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

/// What is written in each file, by its domain: two files are the same if that is.
pub(crate) fn written(files: &[(String, RequestFile)]) -> Vec<(String, u64)> {
    files.iter().map(|(_, file)| (file.domain.clone(), file.digest())).collect()
}

/// Words about files on disk that are not those in force; none if they are.
pub(crate) fn changed(paths: &[PathBuf], in_force: &[(String, u64)]) -> Option<String> {
    let (files, errors) = read(paths);
    let remedy = "send SIGHUP to this process, as `systemctl reload limiter-serve` does";
    match errors.first() {
        Some(error) => Some(format!("the rule files changed on disk, and cannot be read: {error}")),
        None if written(&files) == in_force => None,
        None => Some(format!("the rule files changed on disk, and are not in force: {remedy}")),
    }
}

/// Rule files on disk, as they were seen last.
#[derive(Debug, Default)]
pub(crate) struct OnDisk {
    /// Names, sizes and times at the latest look, and those that were read.
    seen: Vec<Stamp>,
    read: Option<Vec<Stamp>>,
    /// Words about files that are not those in force.
    pub(crate) changed: Option<String>,
    /// Words about the latest reload, if it failed.
    pub(crate) failed: Option<String>,
}

/// What changes with a file.
type Stamp = (PathBuf, Option<[i64; 4]>);

impl OnDisk {
    /// After a reload, which failed if there are words about that.
    pub(crate) fn after(failed: Option<String>) -> Self {
        Self { failed, ..Self::default() }
    }

    /// True if the files are others than those that were read last, and stay so.
    pub(crate) fn is_new(&mut self, paths: &[PathBuf]) -> bool {
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
