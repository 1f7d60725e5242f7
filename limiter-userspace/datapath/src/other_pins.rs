//! The limiter that an interface is under, if that is not this one: found by its pins.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::interface::Interface;
use super::{PinDir, own_links};

/// How deep pin directories are looked for, below the root of a BPF file system.
const DEPTH: usize = 4;

/// How many directories are looked at.
const DIRECTORIES: usize = 4096;

/// The pins of another limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPins {
    /// Pin directory of the other instance.
    pub directory: PathBuf,
    /// Interfaces that the other instance limits.
    pub interfaces: Vec<String>,
}

impl fmt::Display for OtherPins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, names) = (self.directory.display(), self.interfaces.join(", "));
        write!(f, "`limiter detach --pin-dir {directory}`, which takes the limits off {names}")
    }
}

impl OtherPins {
    /// Looks for the link of an interface on the usual BPF file system and on the one of our pins.
    pub(super) fn of(interface: &Interface, ours: &PinDir) -> Option<Self> {
        let mut left = DIRECTORIES;
        let of = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
        let own = of(ours.path());
        let is_ours = |path: &Path| own.is_some() && of(path) == own;
        ours.roots().iter().find_map(|root| search(root, DEPTH, &mut left, interface, &is_ours))
    }
}

fn search(
    directory: &Path,
    depth: usize,
    left: &mut usize,
    interface: &Interface,
    is_ours: &dyn Fn(&Path) -> bool,
) -> Option<OtherPins> {
    *left = left.checked_sub(1)?;
    if is_ours(directory) {
        return None;
    }
    let pins = PinDir::new(directory);
    if own_links::behind(&pins, interface).ok().flatten().is_some() {
        let interfaces = own_links::names(&pins).ok()?;
        return Some(OtherPins { directory: directory.to_owned(), interfaces });
    }
    if depth == 0 {
        return None;
    }
    let mut below: Vec<_> = fs::read_dir(directory).ok()?.filter_map(Result::ok).collect();
    below.sort_by_key(fs::DirEntry::file_name);
    let directories =
        below.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .map(fs::DirEntry::path)
        .find_map(|path| search(&path, depth - 1, left, interface, is_ours))
}
