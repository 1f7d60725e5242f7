//! The pin directory, and who limits an interface.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use limiter_common::header::Direction;
use limiter_common::wire::{ABI_VERSION, Control};
use rustix::fs::{Access, access, major, minor};

use crate::hooks::{foreign, neighbours};
use crate::interfaces::interface::Interface;
use crate::interfaces::own_links;
use crate::maps::PinnedControl;
use crate::{DatapathError, Hook, Mode, Neighbour, PinDir};

/// How usable a place for pins is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinPlace {
    /// File system on which it is, or would be created.
    pub file_system: FileSystem,
    /// True if a name that must be created has a dot, which that file system rejects.
    pub is_dotted: bool,
    /// True if this process may write there.
    pub is_writable: bool,
}

/// File system of a place for pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// A BPF file system.
    Bpf,
    /// Another one, at the place where a start by root mounts a BPF file system.
    ToMount,
    /// Another one.
    Other,
}

/// The pinned maps.
#[derive(Debug)]
pub enum Pinned {
    /// None.
    Nothing,
    /// Maps of this version.
    Maps {
        /// True if the bypass is on (`limiter off`), so that every packet passes.
        bypass: bool,
    },
    /// Maps of another version, with another layout: a start replaces them.
    OtherLayout {
        /// ABI number of the maps.
        found: u64,
        /// True if the bypass is on (`limiter off`), so that every packet passes.
        bypass: bool,
    },
    /// The maps cannot be inspected.
    Refused(DatapathError),
}

/// Whether the file system of a pin directory is mounted in this process's mount namespace but not
/// in that of process 1; `None` if that cannot be seen.
pub fn is_mounted_here_alone(pin_dir: &Path) -> Option<bool> {
    let device = fs::metadata(pin_dir).ok()?.dev();
    let device = format!("{}:{}", major(device), minor(device));
    let mounts = fs::read_to_string("/proc/1/mountinfo").ok()?;
    Some(!has_mount_of(&mounts, &device))
}

/// True if a mount list, as in `/proc/PID/mountinfo`, contains a device.
fn has_mount_of(mounts: &str, device: &str) -> bool {
    mounts.lines().any(|mount| mount.split(' ').nth(2) == Some(device))
}

/// Examines a pin directory, which may not exist.
pub fn pin_place(pin_dir: &Path) -> PinPlace {
    let pins = PinDir::new(pin_dir);
    let existing = pins.existing();
    PinPlace {
        file_system: match (pins.is_on_bpffs(), pins.is_usual()) {
            (true, _) => FileSystem::Bpf,
            (false, true) => FileSystem::ToMount,
            (false, false) => FileSystem::Other,
        },
        is_dotted: pins.has_dot(),
        is_writable: access(existing, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
    }
}

/// The maps under a pin directory.
pub fn pinned(pin_dir: &Path) -> Pinned {
    let pins = PinDir::new(pin_dir);
    match fs::read_dir(pin_dir) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Pinned::Nothing,
        Err(error) => return Pinned::Refused(DatapathError::path("reading", pin_dir)(error)),
    }
    if !pins.has_pins() {
        return Pinned::Nothing;
    }
    let words = PinnedControl::open(&pins)
        .and_then(|control| Ok((control.get(Control::Abi)?, control.get(Control::Bypass)?)));
    match words {
        Ok((ABI_VERSION, bypass)) => Pinned::Maps { bypass: bypass != 0 },
        // Remains of an interrupted start: the next one makes new maps.
        Ok((0, _)) | Err(_) if pins.has_links().is_ok_and(|any| !any) => Pinned::Nothing,
        Ok((found, bypass)) => Pinned::OtherLayout { found, bypass: bypass != 0 },
        Err(error) => Pinned::Refused(error),
    }
}

/// The mode in which an interface is limited by these pins; `None` if it has no XDP program. A
/// foreign program is an error, as for a start.
pub fn owner(interface: &Interface, pin_dir: &Path) -> Result<Option<Mode>, DatapathError> {
    let Some((mode, id)) = interface.program else { return Ok(None) };
    let pins = PinDir::new(pin_dir);
    match own_links::behind(&pins, Hook::Xdp, interface, None)? {
        Some(_) => Ok(Some(mode)),
        None => Err(foreign::foreign(interface, &pins, id)),
    }
}

/// True if an interface is known to be limited at tc in a direction, by these pins or by a program
/// whose id the daemon reports as its own.
pub fn is_at_tc(interface: &Interface, direction: Direction, own: &[u32], pin_dir: &Path) -> bool {
    let pins = PinDir::new(pin_dir);
    let by_pins = own_links::behind(&pins, Hook::Tc(direction), interface, None);
    by_pins.is_ok_and(|link| link.is_some())
        || neighbours::at_tc(interface, direction)
            .is_ok_and(|programs| programs.iter().any(|id| own.contains(id)))
}

/// Other programs at all hooks of an interface. Ours are those behind links of these pins, and
/// those whose ids the daemon reports as its own.
pub fn neighbours(
    interface: &Interface,
    own: &[u32],
    pin_dir: &Path,
) -> Result<Vec<Neighbour>, DatapathError> {
    let pins = PinDir::new(pin_dir);
    let mut own = own.to_vec();
    own.extend(own_links::all(&pins)?.iter().map(|link| link.program_id));
    let mut found = Vec::new();
    for direction in [Direction::In, Direction::Out] {
        found.extend(neighbours::neighbours(interface, direction, &own, &pins)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_known_by_its_device() {
        let mounts = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                      41 36 0:33 / /sys/fs/bpf rw - bpf bpf rw,mode=700\n";
        for (device, there) in [("0:33", true), ("98:0", true), ("0:3", false), ("0:36", false)] {
            assert_eq!(has_mount_of(mounts, device), there, "{device}");
        }
        // A missing directory has no file system.
        assert_eq!(is_mounted_here_alone(Path::new("/nowhere/at/all")), None);
    }
}
