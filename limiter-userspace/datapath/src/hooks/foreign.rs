//! Interfaces with a program that is not ours. If it is another limiter's, its pins are looked for.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::programs;
use crate::interfaces::interface::Interface;
use crate::interfaces::own_links;
use crate::pins::other_pins::OtherPins;
use crate::{DatapathError, Hook, PinDir};

/// Depth of the search for pin directories below the root of a BPF file system.
const DEPTH: usize = 4;

/// Largest number of directories to search.
const DIRECTORIES: usize = 4096;

/// Error for an interface with a program that is not behind one of these pins.
pub(crate) fn foreign(interface: &Interface, pins: &PinDir, id: u32) -> DatapathError {
    let name = programs::name_of(id).unwrap_or_else(|| "unknown".to_owned());
    let other = other_pins(interface, Hook::Xdp, id, pins);
    DatapathError::Foreign { interface: interface.name.clone(), name, id, other }
}

/// Looks for the limiter whose program is at a hook of an interface, on the usual BPF file system
/// and on the one of our pins.
pub(crate) fn other_pins(
    interface: &Interface,
    hook: Hook,
    id: u32,
    ours: &PinDir,
) -> Option<OtherPins> {
    let mut left = DIRECTORIES;
    let of = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    let own = of(ours.path());
    let is_ours = |path: &Path| own.is_some() && of(path) == own;
    let is_theirs = |pins: &PinDir| {
        let link = own_links::behind(pins, hook, interface, None).ok().flatten();
        link.is_some_and(|link| link.program_id == id)
    };
    ours.roots().iter().find_map(|root| search(root, DEPTH, &mut left, &is_theirs, &is_ours))
}

fn search(
    directory: &Path,
    depth: usize,
    left: &mut usize,
    is_theirs: &dyn Fn(&PinDir) -> bool,
    is_ours: &dyn Fn(&Path) -> bool,
) -> Option<OtherPins> {
    *left = left.checked_sub(1)?;
    if is_ours(directory) {
        return None;
    }
    let pins = PinDir::new(directory);
    if is_theirs(&pins) {
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
        .find_map(|path| search(&path, depth - 1, left, is_theirs, is_ours))
}
