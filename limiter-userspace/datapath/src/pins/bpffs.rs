//! The BPF file system that pins live on, and the layout under the pin directory:
//! `maps/NAME` and `links/INTERFACE`. While maps of another layout are replaced, their successors
//! are in `maps-next/NAME`.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use limiter_common::header::Direction;
use limiter_common::wire::map;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, mount};

use crate::{DatapathError, Hook};

/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Mount point of most distributions.
pub const USUAL_MOUNT: &str = "/sys/fs/bpf";

/// Directory of the maps in force.
const MAPS: &str = "maps";

/// Directory of the maps that will replace them.
const NEXT: &str = "maps-next";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinDir {
    path: PathBuf,
    /// Name of the directory of maps: [`MAPS`] or [`NEXT`].
    maps: &'static str,
}

impl PinDir {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), maps: MAPS }
    }

    /// This directory, with [`NEXT`] as the directory of maps.
    pub(crate) fn next(&self) -> Self {
        Self { path: self.path.clone(), maps: NEXT }
    }

    /// Exchanges [`NEXT`] and [`MAPS`] in one step.
    pub(crate) fn exchange(&self) -> Result<(), DatapathError> {
        let [now, next] = [MAPS, NEXT].map(|name| self.path.join(name));
        renameat_with(CWD, &next, CWD, &now, RenameFlags::EXCHANGE)
            .map_err(|error| DatapathError::path("exchanging with maps-next", now)(error.into()))
    }

    /// Removes the directory of next maps and everything in it.
    pub(crate) fn remove_next(&self) -> Result<(), DatapathError> {
        let next = self.path.join(NEXT);
        remove_files(&next)?;
        remove_directory(&next)
    }

    /// Creates the directory itself. Mounts the BPF file system at its usual place if it is missing
    /// there.
    pub(crate) fn create(&self) -> Result<(), DatapathError> {
        if !self.is_on_bpffs() {
            let failed = |source| DatapathError::NoBpffs { path: self.path.clone(), source };
            if !self.is_usual() {
                return Err(failed(io::Error::other("it is on another file system")));
            }
            mount("bpf", USUAL_MOUNT, "bpf", MountFlags::empty(), None)
                .map_err(|errno| failed(errno.into()))?;
        }
        if self.has_dot() {
            return Err(DatapathError::DottedPin(self.path.clone()));
        }
        make(&self.path)
    }

    /// The directory itself, or its nearest ancestor that exists.
    pub(crate) fn existing(&self) -> &Path {
        self.path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
    }

    /// True if it is on a BPF file system, or would be made on one.
    pub(crate) fn is_on_bpffs(&self) -> bool {
        is_bpffs(self.existing())
    }

    /// True if it is below the usual mount point, where a start mounts the file system.
    pub(crate) fn is_usual(&self) -> bool {
        self.path.starts_with(USUAL_MOUNT)
    }

    /// True if a directory that must still be created has a dot in its name.
    pub(crate) fn has_dot(&self) -> bool {
        let rest = self.path.strip_prefix(self.existing());
        rest.is_ok_and(|rest| rest.to_string_lossy().contains('.'))
    }

    /// Creates the subdirectories. The caller holds the lock.
    pub(crate) fn create_parts(&self) -> Result<(), DatapathError> {
        make(&self.maps())?;
        Hook::ALL.iter().try_for_each(|hook| make(&self.links(*hook)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where to look for other pin directories: the usual mount point, and the root of this one's
    /// file system.
    pub(crate) fn roots(&self) -> Vec<PathBuf> {
        let absolute =
            fs::canonicalize(self.existing()).unwrap_or_else(|_| self.existing().to_owned());
        let own = absolute.ancestors().take_while(|path| is_bpffs(path)).last();
        let usual = Path::new(USUAL_MOUNT);
        let own = own.filter(|root| !root.starts_with(usual));
        [Some(usual), own].into_iter().flatten().map(Path::to_owned).collect()
    }

    pub(crate) fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// Path of a link's pin. Names on this file system have no dot, and interface names have no
    /// colon (`dev_valid_name` in net/core/dev.c), so `eth0.100` is pinned as `eth0:100`.
    pub(crate) fn link(&self, hook: Hook, interface: &str) -> PathBuf {
        self.links(hook).join(interface.replace('.', ":"))
    }

    /// True if anything visible is pinned there.
    pub(crate) fn has_parts(&self) -> bool {
        let has_any =
            |path: PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        has_any(self.maps()) || Hook::ALL.iter().any(|hook| has_any(self.links(*hook)))
    }

    pub(crate) fn has_links(&self) -> Result<bool, DatapathError> {
        Ok(!self.link_pins()?.is_empty())
    }

    /// The pinned links, each with its hook and the interface name that the pin has.
    pub(crate) fn link_pins(&self) -> Result<Vec<(Hook, String, PathBuf)>, DatapathError> {
        let mut pins = Vec::new();
        for hook in Hook::ALL {
            let links = self.links(hook);
            let entries = match fs::read_dir(&links) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(DatapathError::path("reading", links)(error)),
            };
            for entry in entries {
                let entry = entry.map_err(DatapathError::path("reading", links.clone()))?;
                let name = entry.file_name().to_string_lossy().replace(':', ".");
                pins.push((hook, name, entry.path()));
            }
        }
        pins.sort();
        Ok(pins)
    }

    /// True if the path is a directory of pins: on a BPF file system, with our subdirectories.
    /// limiter removes nothing from other directories.
    pub(crate) fn has_pins(&self) -> bool {
        is_bpffs(&self.path) && (self.maps().is_dir() || self.links(Hook::Xdp).is_dir())
    }

    /// Removes every pin and the directories, after [`crate::interfaces::own_links::end_filters`].
    /// Links go first: from then on packets pass. `CONTROL` goes next: without it, an interrupted
    /// removal leaves no rule set that could be adopted.
    pub(crate) fn remove(&self) -> Result<(), DatapathError> {
        let links = || Hook::ALL.into_iter().map(|hook| self.links(hook));
        links().try_for_each(|links| remove_files(&links))?;
        let control = self.map(map::CONTROL);
        match fs::remove_file(&control) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DatapathError::path("removing", control)(error));
            }
            _ => {}
        }
        for directory in links().chain([self.path.join(MAPS), self.path.join(NEXT)]) {
            remove_files(&directory)?;
            remove_directory(&directory)?;
        }
        match remove_directory(&self.path) {
            // Whoever created the empty directory for an unprivileged user, as a systemd unit does,
            // may also leave it.
            Err(_) if is_empty(&self.path) => Ok(()),
            done => done,
        }
    }

    /// Removes the directories that are empty.
    pub(crate) fn remove_if_empty(&self) {
        let maps = [NEXT, MAPS].map(|name| self.path.join(name));
        let links = Hook::ALL.into_iter().map(|hook| self.links(hook));
        for directory in links.chain(maps).chain([self.path.clone()]) {
            if let Err(error) = remove_directory(&directory) {
                tracing::debug!(%error, "kept");
            }
        }
    }

    /// Removes the directory itself if it is empty.
    pub(crate) fn remove_own(&self) {
        if let Err(error) = remove_directory(&self.path) {
            tracing::debug!(%error, "kept");
        }
    }

    /// Removes a new pin after a later step failed.
    pub(crate) fn drop_pin(path: &Path) {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "a pin is left: remove it");
        }
    }

    /// Removes the maps of an unfinished start.
    pub(crate) fn remove_maps(&self) -> Result<(), DatapathError> {
        remove_files(&self.maps())
    }

    /// Lets only the owner and the group read a pin.
    pub(crate) fn restrict(path: &Path) -> Result<(), DatapathError> {
        fs::set_permissions(path, fs::Permissions::from_mode(0o640))
            .map_err(DatapathError::path("restricting", path))
    }

    fn maps(&self) -> PathBuf {
        self.path.join(self.maps)
    }

    fn links(&self, hook: Hook) -> PathBuf {
        self.path.join(match hook {
            Hook::Xdp => "links",
            Hook::Tc(Direction::In) => "links-in",
            Hook::Tc(Direction::Out) => "links-out",
        })
    }
}

fn make(path: &Path) -> Result<(), DatapathError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o750).create(path).map_err(DatapathError::path("creating", path))
}

pub(crate) fn is_bpffs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(BPF_FS_MAGIC))
}

fn remove_files(directory: &Path) -> Result<(), DatapathError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DatapathError::path("reading", directory)(error)),
    };
    // A failure does not stop the other removals.
    let mut all = Ok(());
    for entry in entries {
        let path = entry.map_err(DatapathError::path("reading", directory))?.path();
        let removed = fs::remove_file(&path).map_err(DatapathError::path("removing", path));
        all = all.and(removed);
    }
    all
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

fn remove_directory(directory: &Path) -> Result<(), DatapathError> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DatapathError::path("removing", directory)(error))
        }
        _ => Ok(()),
    }
}
