//! Files that only their owner may use, and names that must be regular files. Anybody who may write
//! to the directory can put a link, a pipe or a device under a name: the daemon writes through none
//! of these and waits for none.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Most names that are tried for a new file.
const TRIES: u64 = 16;

const fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Creates a file for its owner alone, in place of any file of this name, which is not written to,
/// whatever it was.
///
/// # Errors
///
/// When the directory cannot be written to, or a directory has the name.
pub fn create(path: &Path) -> io::Result<File> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    for attempt in 0..TRIES {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{:016x}.new", RandomState::new().hash_one(attempt)));
        let hidden = path.with_file_name(hidden);
        let file = match create_new(&hidden) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        };
        if let Err(error) = fs::rename(&hidden, path) {
            // The error of the rename is the one that matters.
            drop(fs::remove_file(&hidden));
            return Err(error);
        }
        return Ok(file);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// As [`create`], for the name of an unfinished file: an old remainder is removed first.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create_new(path),
    }
}

/// Opens a file for reading; returns `None` if nothing has the name.
///
/// # Errors
///
/// When it cannot be opened or is not a regular file: reading from a pipe or a device might never
/// end.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(flags(OFlags::NONBLOCK)).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_absent(path) => {
            return Ok(None);
        }
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(Some(file)) } else { Err(no_file()) }
}

/// Creates a file for its owner alone, under an unused name.
///
/// # Errors
///
/// When the name is in use.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.custom_flags(flags(OFlags::NOFOLLOW)).open(path)
}

/// Opens a file for reading and appending; returns `None` if another user could have written it or
/// could read it.
///
/// # Errors
///
/// When it cannot be opened or is not a regular file of this name: nothing is written through a
/// link, and nothing waits for a pipe.
pub(crate) fn open_own(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    let file = options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(no_file());
    }
    let own = rustix::process::geteuid().as_raw();
    Ok((metadata.uid() == own && matches!(metadata.mode() & 0o077, 0)).then_some(file))
}

/// Returns true if the name is unused, even by a dangling link.
pub(crate) fn is_absent(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Follows links from a name to a file. A link is followed only if it belongs to this user or to
/// root: in a shared directory, another user may have put it there for a writer to fall for.
///
/// # Errors
///
/// When a link belongs to another user, or links form a loop.
pub fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    let own = rustix::process::geteuid().as_raw();
    for _ in 0..40 {
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => metadata,
            _ => return Ok(path),
        };
        if ![0, own].contains(&metadata.uid()) {
            let what = format!("{} is a link of another user", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let target = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Error for a name that is not a regular file.
pub(crate) fn no_file() -> io::Error {
    io::Error::other("it is no regular file")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn make_pipe(at: &Path) {
        use rustix::fs::{CWD, FileType, mknodat};

        mknodat(CWD, at, FileType::Fifo, 0o666.into(), 0).unwrap();
    }

    /// A foreign link, an old file that others may read, or a pipe: none of these is written to,
    /// and the new file is for its owner alone.
    #[test]
    fn what_had_the_name_is_replaced_and_never_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("spy"), "before").unwrap();
        symlink("spy", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("loop", at("loop")).unwrap();
        fs::write(at("old"), "others may read").unwrap();
        fs::set_permissions(at("old"), fs::Permissions::from_mode(0o666)).unwrap();
        make_pipe(&at("pipe"));
        let mut held = File::open(at("old")).unwrap();
        for name in ["link", "dangling", "loop", "old", "pipe", "new"] {
            for make in [create, create_anew] {
                make(&at(name)).unwrap().write_all(b"secret").unwrap();
                assert_eq!(mode(&at(name)), 0o600, "{name}");
                assert_eq!(fs::read_to_string(at(name)).unwrap(), "secret", "{name}");
            }
        }
        assert_eq!(fs::read_to_string(at("spy")).unwrap(), "before");
        assert!(is_absent(&at("nowhere")));
        let mut old = String::new();
        io::Read::read_to_string(&mut held, &mut old).unwrap();
        assert_eq!(old, "others may read");
        fs::create_dir(at("directory")).unwrap();
        assert!(create(&at("directory")).is_err() && create_anew(&at("directory")).is_err());
        assert!(create(&at("none/such")).is_err());
        let left = fs::read_dir(directory.path()).unwrap();
        let hidden = |entry: io::Result<fs::DirEntry>| {
            entry.unwrap().file_name().to_string_lossy().starts_with('.')
        };
        assert!(!left.into_iter().any(hidden), "a file under another name is left");
    }

    /// A name that is not a regular file is an error at once; an unused name is `None`.
    #[test]
    fn only_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert!(open(&at("none")).unwrap().is_none());
        symlink("nowhere", at("dangling")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        make_pipe(&at("pipe"));
        for name in ["dangling", "loop", "device", "directory", "pipe"] {
            assert!(open(&at(name)).is_err(), "{name}");
        }
        fs::write(at("file"), "x").unwrap();
        symlink("file", at("link")).unwrap();
        assert!(open(&at("file")).unwrap().is_some() && open(&at("link")).unwrap().is_some());
        assert_eq!(behind_links(&at("link")).unwrap(), at("file"));
        assert_eq!(behind_links(&at("none")).unwrap(), at("none"));
        assert!(behind_links(&at("loop")).is_err());
    }

    /// Lines are appended only to the daemon's own file.
    #[test]
    fn only_own_files_are_written_on() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        drop(create_new(&at("own")).unwrap());
        symlink("own", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("/dev/null", at("device")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        make_pipe(&at("pipe"));
        for name in ["link", "dangling", "device", "directory", "pipe", "none"] {
            assert!(open_own(&at(name)).is_err(), "{name}");
        }
        for name in ["link", "dangling", "pipe", "own"] {
            assert!(create_new(&at(name)).is_err(), "{name}");
        }
        open_own(&at("own")).unwrap().unwrap().write_all(b"line").unwrap();
        open_own(&at("own")).unwrap().unwrap().write_all(b" two").unwrap();
        assert_eq!(fs::read_to_string(at("own")).unwrap(), "line two");
        fs::set_permissions(at("own"), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(open_own(&at("own")).unwrap().is_none());
    }
}
