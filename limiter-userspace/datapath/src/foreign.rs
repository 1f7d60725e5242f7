//! An interface with a program that is not ours. If that is another limiter's, it is found by its
//! pins.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::interface::Interface;
use super::other_pins::OtherPins;
use super::{DatapathError, Hook, PinDir, own_links, programs};

/// How deep pin directories are looked for, below the root of a BPF file system.
const DEPTH: usize = 4;

/// How many directories are looked at.
const DIRECTORIES: usize = 4096;

/// Error for an interface with a program that is not behind one of these pins.
pub(super) fn foreign(interface: &Interface, pins: &PinDir, id: u32) -> DatapathError {
    let (name, other) = (programs::name_of(id), other_pins(interface, pins));
    DatapathError::Foreign { interface: interface.name.clone(), name, id, other }
}

/// Looks for the link of an interface on the usual BPF file system and on the one of our pins.
fn other_pins(interface: &Interface, ours: &PinDir) -> Option<OtherPins> {
    let mut left = DIRECTORIES;
    let of = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    let own = of(ours.path());
    let is_ours = |path: &Path| own.is_some() && of(path) == own;
    ours.roots().iter().find_map(|root| search(root, DEPTH, &mut left, interface, &is_ours))
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
    if own_links::behind(&pins, Hook::Xdp, interface, None).ok().flatten().is_some() {
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
