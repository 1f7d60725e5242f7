//! The disk of a machine: Debian, the packages to install, and the steps that the machine does.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::{NamedTempFile, TempDir};

use super::BOOTS;
use crate::process;

/// The script of the steps.
pub(super) const STEPS: &str = include_str!("steps.sh");

/// Release of Debian that the packages are promised for, the oldest one.
const RELEASE: &str = "bookworm";

/// Packages beside the smallest system.
const INCLUDED: &str = "--include=systemd,systemd-sysv,dbus,udev,iproute2,iputils-ping";

/// Size of the disk: sparse, so that only what is written takes room.
const SIZE: &str = "1200M";

/// Units of the machine: their names, their texts, and the target that wants each.
const UNITS: [(&str, &str, &str); 4] = [
    // An interface that the kernel finds, with somebody behind it who sends from the beginning.
    ("cable", "DefaultDependencies=no\nBefore=systemd-udev-trigger.service", "sysinit.target"),
    ("sender", "DefaultDependencies=no\nAfter=cable.service", "sysinit.target"),
    (
        "at-network-pre",
        "DefaultDependencies=no\nAfter=network-pre.target\nBefore=network.target",
        "multi-user.target",
    ),
    ("steps", "After=limiter.service network.target at-network-pre.service", "multi-user.target"),
];

/// A disk to copy for each machine. The directory is removed on drop.
pub(super) struct Disk {
    directory: TempDir,
    image: PathBuf,
}

impl Disk {
    /// Makes one, in the cache, of the system that is kept there.
    pub(super) fn make(cache: &Path, packages: &[PathBuf]) -> Result<Self> {
        let system = system(cache)?;
        let directory = tempfile::tempdir_in(cache).context("no directory for a disk")?;
        let root = directory.path().join("root");
        process::run(process::command("cp").args(["-a", "--"]).arg(&system).arg(&root))?;
        for (number, package) in (1..).zip(packages) {
            fs::copy(package, root.join(format!("limiter-{number}.deb")))
                .with_context(|| package.display().to_string())?;
        }
        let steps = root.join("steps");
        fs::write(&steps, STEPS)?;
        fs::set_permissions(&steps, fs::Permissions::from_mode(0o755))?;
        for (boot, names) in (1..).zip(BOOTS) {
            fs::write(root.join(format!("plan-{boot}")), names.join("\n") + "\n")?;
        }
        units(&root)?;
        let image = directory.path().join("disk");
        let mut mke2fs = process::command("mke2fs");
        mke2fs.args(["-q", "-t", "ext4", "-d"]).arg(&root).arg(&image).arg(SIZE);
        process::run(&mut mke2fs)?;
        fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
        Ok(Self { directory, image })
    }

    /// A copy that a machine may write to.
    pub(super) fn copy(&self) -> Result<NamedTempFile> {
        let copy = NamedTempFile::new_in(self.directory.path()).context("no file for a disk")?;
        let mut cp = process::command("cp");
        cp.args(["--sparse=always", "--"]).arg(&self.image).arg(copy.path());
        process::run(&mut cp)?;
        Ok(copy)
    }
}

/// The system as debootstrap makes it, kept for the next time.
fn system(cache: &Path) -> Result<PathBuf> {
    let system = cache.join(format!("system-{RELEASE}"));
    if system.exists() {
        return Ok(system);
    }
    eprintln!("xtask: debootstrap makes Debian {RELEASE} in {}", system.display());
    let work = tempfile::tempdir_in(cache).context("no directory for a system")?;
    let root = work.path().join("root");
    let mut debootstrap = process::command("debootstrap");
    debootstrap.args(["--variant=minbase", INCLUDED, RELEASE]).arg(&root);
    // Talk of a tool is no result.
    process::output(&mut debootstrap)?;
    fs::rename(&root, &system).with_context(|| system.display().to_string())?;
    Ok(system)
}

fn units(root: &Path) -> Result<()> {
    let directory = root.join("etc/systemd/system");
    for (name, unit, target) in UNITS {
        let kind = if name == "sender" { "exec" } else { "oneshot\nRemainAfterExit=yes" };
        let text = format!(
            "[Unit]\n{unit}\n[Service]\nType={kind}\nTimeoutStartSec=infinity\n\
             ExecStart=/steps {name}\n"
        );
        let path = directory.join(format!("{name}.service"));
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        let wants = directory.join(format!("{target}.wants"));
        fs::create_dir_all(&wants)?;
        let link = wants.join(format!("{name}.service"));
        std::os::unix::fs::symlink(format!("../{name}.service"), &link)
            .with_context(|| link.display().to_string())?;
    }
    Ok(())
}
