//! A private BPF file system: no other program sees the pins in it, and unmounting it removes them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The kernel puts `maps.debug` and `progs.debug` into every BPF file system; they stay.
const KERNELS_OWN: &str = "debug";

/// A mounted bpffs, unmounted on drop.
#[derive(Debug)]
pub struct Bpffs(PathBuf);

impl Bpffs {
    /// Mounts a BPF file system on the new directory `path`.
    ///
    /// # Errors
    ///
    /// Without root, or when the kernel has no BPF file system.
    pub fn mount(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        mount(
            "bpf",
            &path,
            "bpf",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            c"mode=0700",
        )
        .with_context(|| format!("cannot mount a BPF file system on {}", path.display()))?;
        Ok(Self(path))
    }

    /// Mount point of the file system.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            eprintln!("{error:#}");
        }
    }
}

/// Unmounts a BPF file system and removes its directory.
///
/// # Errors
///
/// When either fails.
pub fn remove(path: &Path) -> Result<()> {
    // Pins keep programs attached for as long as any reference to the file system lives, and a
    // lazy unmount may leave one: the pins go first.
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        let entry = entry?.path();
        if entry.extension().is_some_and(|extension| extension == KERNELS_OWN) {
            continue;
        }
        let removed =
            if entry.is_dir() { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) };
        removed.with_context(|| format!("cannot remove the pin {}", entry.display()))?;
    }
    unmount(path, UnmountFlags::empty())
        .or_else(|_| unmount(path, UnmountFlags::DETACH))
        .with_context(|| format!("cannot unmount {0}: `umount {0}`", path.display()))?;
    fs::remove_dir(path).with_context(|| format!("cannot remove {}", path.display()))
}
