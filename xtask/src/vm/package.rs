//! Debian's packages, downloaded and unpacked but not installed: kernels, a busybox without
//! libraries, and the emulator. What is needed of them is kept in `target/vm`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::modules;
use crate::arch::Arch;
use crate::failure::Refused;
use crate::{process, setup};

/// The kernel's modules that a guest loads.
const MODULES: [&str; 13] = [
    "veth",
    "bonding",
    "8021q",
    "bridge",
    "sch_fq",
    "ifb",
    // Filters of clsact, where there is no TCX.
    "cls_bpf",
    // Of those that packets that wait are compared with.
    "sch_htb",
    "sch_tbf",
    "sch_ingress",
    "cls_matchall",
    "act_police",
    // A packet's class, by its code point.
    "cls_u32",
];
/// Modules of a machine with a disk.
const DISK_MODULES: [&str; 3] = ["veth", "virtio_pci", "virtio_blk"];
/// Modules of devices and of cards. Some kernels have not all of them.
pub const DEVICE_MODULES: [&str; 21] = [
    "veth",
    "bonding",
    "8021q",
    "bridge",
    "sch_fq",
    "netkit",
    "tun",
    "wireguard",
    "ipip",
    "ip_gre",
    "vxlan",
    "macvlan",
    "dummy",
    "sch_ingress",
    "cls_bpf",
    "virtio_pci",
    "virtio_net",
    "vmxnet3",
    "e1000e",
    "igb",
    "e1000",
];

/// Kernels that Debian builds of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// For machines that are emulated: small.
    Cloud,
    /// For all machines, with many kinds of devices.
    General,
}

impl Flavour {
    /// The end of the names of its packages.
    const fn suffix(self, arch: Arch) -> &'static str {
        match (self, arch) {
            (Self::Cloud, Arch::Amd64) => "-cloud-amd64",
            (Self::Cloud, Arch::Arm64) => "-cloud-arm64",
            (Self::General, Arch::Amd64) => "-amd64",
            (Self::General, Arch::Arm64) => "-arm64",
        }
    }

    /// True of the name of a package or of a directory with this end.
    fn is_of(self, arch: Arch, name: &str) -> bool {
        let is_cloud = name.contains("-cloud-");
        name.contains(self.suffix(arch)) && is_cloud == (self == Self::Cloud)
    }

    /// Modules that are kept of a kernel, by directory: those that a guest loads, and those of a
    /// machine with a disk.
    const fn kept(self) -> [(&'static str, &'static [&'static str]); 2] {
        match self {
            Self::Cloud => [("modules", &MODULES), ("disk-modules", &DISK_MODULES)],
            Self::General => [("modules", &DEVICE_MODULES), ("disk-modules", &[])],
        }
    }
}
/// The package and the program in it.
const BUSYBOX: (&str, &str) = ("busybox-static", "bin/busybox");

#[derive(Debug)]
pub(super) struct Kernel {
    /// As it was asked for: `6.1`.
    pub(super) version: String,
    pub(super) arch: Arch,
    pub(super) image: PathBuf,
    /// Modules of the tests, in the order to load them.
    pub(super) modules: Vec<PathBuf>,
    /// Modules of a machine with a disk, in the order to load them.
    pub(super) disk_modules: Vec<PathBuf>,
}

/// The path of busybox for an architecture.
pub(super) fn busybox(cache: &Path, arch: Arch) -> Result<PathBuf> {
    let (package, path) = BUSYBOX;
    let package = &arch.package(package);
    let name = directory_of(package);
    let directory = match offered(package) {
        Some(version) => cache.join(format!("{name}_{version}")),
        None => cached(cache, &format!("{name}_"))
            .ok_or_else(|| Refused::new(format!("no package {package}: apt has none"), SOURCES))?,
    };
    let program = directory.join("busybox");
    if !program.exists() {
        unpack(cache, package, &directory, download(package), |from, to| {
            fs::copy(from.join(path), to.join("busybox"))
                .with_context(|| format!("{package} has no {path}"))?;
            Ok(())
        })?;
    }
    Ok(program)
}

/// A kernel of Debian's. `version` is `6.1` or `6.12`; `busybox` runs here.
pub(super) fn kernel(
    cache: &Path,
    arch: Arch,
    (version, flavour): (&str, Flavour),
    busybox: &Path,
) -> Result<Kernel> {
    let found = found(arch, version, flavour);
    let directory = match &found {
        Some((package, number)) => cache.join(format!("{}_{number}", directory_of(package))),
        // Without apt, or without its lists, one of an earlier time.
        None => {
            newest(cache, &prefix(version), |name| flavour.is_of(arch, name)).ok_or_else(|| {
                Refused::new(
                    format!(
                        "no kernel {version}: apt has no package {}*{}",
                        prefix(version),
                        flavour.suffix(arch)
                    ),
                    SOURCES,
                )
            })?
        }
    };
    if let (Some((package, _)), false) = (&found, is_complete(&directory, flavour)) {
        // One of an earlier time, with other modules.
        if directory.exists() {
            fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        unpack(cache, package, &directory, download(package), |from, to| {
            let images = files(&from.join("boot"))?;
            let image = images.iter().find(|path| name(path).starts_with("vmlinuz-"));
            let image = image.with_context(|| format!("{package} has no /boot/vmlinuz-*"))?;
            fs::copy(image, to.join("vmlinuz"))?;
            flavour.kept().iter().try_for_each(|(name, wanted)| {
                let may_be_absent = flavour == Flavour::General;
                let tree = from.join("lib/modules");
                modules::copy(&tree, wanted, may_be_absent, &to.join(name), busybox)
            })
        })?;
    }
    let [modules, disk_modules] = flavour.kept().map(|(name, _)| {
        let mut modules = files(&directory.join(name))?;
        modules.retain(|path| path.extension().is_some_and(|end| end == "ko"));
        modules.sort();
        anyhow::Ok(modules)
    });
    Ok(Kernel {
        version: version.to_owned(),
        arch,
        image: directory.join("vmlinuz"),
        modules: modules?,
        disk_modules: disk_modules?,
    })
}

/// True if a kernel is kept there with all modules that a guest loads.
fn is_complete(directory: &Path, flavour: Flavour) -> bool {
    flavour.kept().iter().all(|(modules, wanted)| {
        let kept = files(&directory.join(modules)).unwrap_or_default();
        wanted.iter().all(|module| {
            let part = format!("-{module}.");
            kept.iter().any(|path| name(path).contains(&part))
        })
    })
}

pub(super) const SOURCES: &str = "add the main and security suites of a Debian that has it to \
    apt's sources, \
                       and run `apt-get update` as root";

fn prefix(version: &str) -> String {
    format!("linux-image-{version}.")
}

/// The name of a package without the colon before its architecture, for a directory.
fn directory_of(package: &str) -> String {
    package.replace(':', "-")
}

/// The newest package of a kernel, and its version, by the package that depends on it.
fn found(arch: Arch, version: &str, flavour: Flavour) -> Option<(String, String)> {
    let look = || {
        let suffix = flavour.suffix(arch);
        // The second is the stable Debian's own kernel, of whatever version that is.
        let meta = [format!("linux-image-{version}{suffix}"), format!("linux-image{suffix}")];
        let package = meta.iter().find_map(|meta| {
            let mut apt = process::command("apt-cache");
            apt.env("LC_ALL", "C").args(["depends", &arch.package(meta)]);
            let text = process::output(&mut apt).ok()?;
            depends(&text, &prefix(version)).map(str::to_owned)
        })?;
        let offered = offered(&package)?;
        Some((package, offered))
    };
    updated(look)
}

/// The version of a package that apt would install, after reading the lists if it knows of none.
pub(super) fn offered_or_updated(package: &str) -> Option<String> {
    updated(|| offered(package))
}

/// Asks apt, once more after reading the lists if it knows of nothing.
fn updated<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    look().or_else(|| {
        // Without lists apt knows nothing. Whether they can be had is not what was asked.
        process::find("apt-get")?;
        if let Err(error) = setup::update_package_lists() {
            eprintln!("xtask: {error:#}");
        }
        look()
    })
}

/// The package in the output of `apt-cache depends` that begins so.
fn depends<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with(prefix))
}

fn offered(package: &str) -> Option<String> {
    setup::offered_version(package)
}

/// The newest directory in the cache of a package that begins so.
pub(super) fn cached(cache: &Path, prefix: &str) -> Option<PathBuf> {
    newest(cache, prefix, |_| true)
}

/// The newest of those whose names are meant.
fn newest(cache: &Path, prefix: &str, is_meant: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let mut known: Vec<PathBuf> = files(cache).ok()?;
    known.retain(|path| name(path).starts_with(prefix) && is_meant(name(path)));
    known.into_iter().max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok())
}

/// Has apt download one package into a directory.
fn download(package: &str) -> impl FnOnce(&Path) -> Result<Command> {
    move |into| {
        let mut apt = process::command("apt-get");
        apt.args(["--quiet", "download", package]).current_dir(into);
        Ok(apt)
    }
}

/// Has apt download packages, and what they need that is not in `status`, a list of dpkg's, into a
/// directory.
pub(super) fn with_dependencies(
    into: &Path,
    status: &str,
    options: &[String],
    packages: &[&str],
) -> Result<Command> {
    let assumed = into.join("status");
    fs::write(&assumed, status)?;
    fs::create_dir(into.join("partial"))?;
    let mut apt = process::command("apt-get");
    apt.args(["--quiet", "--yes", "--download-only", "--no-install-recommends", "--no-remove"]);
    // Nothing outside of the directory is written, so that no lock is needed, nor root.
    apt.args(["-o", "Debug::NoLocking=1"]);
    for (option, path) in [("State::status", assumed), ("Cache::archives", into.to_owned())] {
        apt.arg("-o").arg(format!("Dir::{option}={}", path.display()));
    }
    for option in options {
        apt.args(["-o", option]);
    }
    apt.arg("install").args(packages);
    Ok(apt)
}

/// Downloads a package by the command that `download` makes, unpacks all that it brought, and lets
/// `keep` move what is wanted from the first directory to the second, which becomes `directory`
/// when all of it is there.
pub(super) fn unpack(
    cache: &Path,
    package: &str,
    directory: &Path,
    download: impl FnOnce(&Path) -> Result<Command>,
    keep: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<()> {
    eprintln!("xtask: downloading {package} with apt into {}", cache.display());
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let work = tempfile::tempdir_in(cache).context("no directory to unpack in could be made")?;
    let (from, to) = (work.path().join("from"), work.path().join("to"));
    fs::create_dir(&to)?;
    if !process::status(&mut download(work.path())?)?.success() {
        return Err(Refused::new(
            format!("apt-get could not download {package}"),
            "see its message above; old lists name files that are gone: `apt-get update` as root",
        )
        .into());
    }
    let mut archives = files(work.path())?;
    archives.retain(|path| path.extension().is_some_and(|end| end == "deb"));
    if archives.is_empty() {
        anyhow::bail!("apt-get download left no file of {package}");
    }
    for archive in &archives {
        process::run(process::command("dpkg-deb").arg("--extract").arg(archive).arg(&from))?;
    }
    keep(&from, &to).with_context(|| format!("what is wanted of {package}"))?;
    // Readers see all of it or nothing.
    match fs::rename(&to, directory) {
        Err(error) if !directory.exists() => {
            Err(error).with_context(|| format!("cannot make {}", directory.display()))
        }
        _ => Ok(()),
    }
}

pub(super) fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = || fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect();
    let files: std::io::Result<_> = read();
    files.with_context(|| format!("cannot read {}", directory.display()))
}

/// The last part of a path.
pub(super) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_package_is_found() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        let package = Some("linux-image-6.1.0-56-cloud-amd64");
        assert_eq!(depends(text, &prefix("6.1")), package);
        // Not 6.12, and not 6 either.
        assert_eq!(depends(text, &prefix("6.12")), None);
        assert_eq!(depends(text, &prefix("6")), package);
        assert_eq!(depends("", &prefix("6.1")), None);
    }

    #[test]
    fn a_kernel_without_one_of_the_modules_is_fetched_again() {
        let kept = tempfile::tempdir().unwrap();
        for (name, wanted) in Flavour::Cloud.kept() {
            let modules = kept.path().join(name);
            assert!(!is_complete(kept.path(), Flavour::Cloud));
            fs::create_dir(&modules).unwrap();
            for module in wanted {
                assert!(!is_complete(kept.path(), Flavour::Cloud), "without {module}");
                fs::write(modules.join(format!("00-{module}.ko")), "").unwrap();
            }
        }
        assert!(is_complete(kept.path(), Flavour::Cloud));
        assert!(!is_complete(kept.path(), Flavour::General));
    }

    #[test]
    fn the_newest_in_the_cache_is_taken() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(cached(cache.path(), "linux-image-6.1."), None);
        for name in ["linux-image-6.1.0-55_1", "linux-image-6.12.0-56_1", "busybox-static_2"] {
            fs::create_dir(cache.path().join(name)).unwrap();
        }
        let found = cached(cache.path(), "linux-image-6.1.");
        assert_eq!(found, Some(cache.path().join("linux-image-6.1.0-55_1")));
        let other = cache.path().join("linux-image-6.1.0-56-cloud-arm64-arm64_1");
        fs::create_dir(&other).unwrap();
        let found = |flavour: Flavour, arch| {
            newest(cache.path(), &prefix("6.1"), |name| flavour.is_of(arch, name))
        };
        assert_eq!(found(Flavour::Cloud, Arch::Amd64), None);
        assert_eq!(found(Flavour::Cloud, Arch::Arm64), Some(other));
        // A directory's name ends with the version.
        let general = cache.path().join("linux-image-6.1.0-56-amd64_1");
        fs::create_dir(&general).unwrap();
        assert_eq!(found(Flavour::General, Arch::Amd64), Some(general));
        assert_eq!(found(Flavour::General, Arch::Arm64), None);
    }
}
