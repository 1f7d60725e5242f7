//! Building for another architecture: a linker, the standard library, and Debian's packages of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::arch::Arch;
use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::{process, setup, workspace};

/// Directory of what is kept, in the checkout.
const CACHE: &str = "target/cross";

/// Debian's package of the standard library, and the name of the toolchain that it fits.
const STD: (&str, &str) = ("libstd-rust-web-dev", "rustc-web");

/// Makes cargo build for an architecture.
pub(crate) fn prepare(cargo: &mut Command, arch: Arch, toolchain: &str) -> Result<()> {
    let target = arch.target();
    cargo.args(["--target", &target]);
    if arch.is_host() {
        return Ok(());
    }
    let gcc = format!("{}-linux-gnu-gcc", arch.gnu());
    let upper = target.to_uppercase().replace('-', "_");
    cargo.env(format!("CARGO_TARGET_{upper}_LINKER"), &gcc);
    cargo.env(format!("CC_{}", target.replace('-', "_")), gcc);
    // The toolchain that has the standard library: rustup's, if the target was added to it.
    if !has_target(&target)? {
        cargo.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    Ok(())
}

/// Flags for rustc, beside those of every build.
pub(crate) fn flags(arch: Arch) -> Result<Vec<String>> {
    if arch.is_host() || has_target(&arch.target())? {
        return Ok(Vec::new());
    }
    Ok(vec![format!("--sysroot={}", sysroot(arch)?.display())])
}

/// True if the toolchain of the checkout has the standard library of a target.
fn has_target(target: &str) -> Result<bool> {
    let mut rustc = process::command("rustc");
    rustc.current_dir(workspace::root()?).args(["--print", "target-libdir", "--target", target]);
    let directory = process::output(&mut rustc)?;
    Ok(Path::new(directory.trim()).is_dir())
}

/// A directory with the standard library of Debian's package, of the same version as its rustc.
fn sysroot(arch: Arch) -> Result<PathBuf> {
    let (package, of) = STD;
    let version = setup::installed_version(of).ok_or_else(|| {
        Refused::new(
            format!("no standard library of {}, and no package {of}", arch.target()),
            format!("run `rustup target add {}`, or set up Debian's toolchain", arch.target()),
        )
    })?;
    Ok(fetched(arch, package, Some(&version))?.join("usr"))
}

/// A package of Debian's, unpacked, with its control files in `DEBIAN`.
pub(crate) fn fetched(arch: Arch, package: &str, version: Option<&str>) -> Result<PathBuf> {
    let cache = workspace::root()?.join(CACHE);
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let named = format!("{package}:{}", arch.debian());
    let version = match version {
        Some(version) => version.to_owned(),
        None => offered(arch, &named)?,
    };
    let directory = cache.join(format!("{package}_{version}_{}", arch.debian()));
    if directory.exists() {
        return Ok(directory);
    }
    offered(arch, &named)?;
    eprintln!("xtask: downloading {named} {version} with apt into {}", cache.display());
    let work = tempfile::tempdir_in(&cache).context("no directory to unpack in")?;
    let mut apt = process::command("apt-get");
    apt.args(["--quiet", "download", &format!("{named}={version}")]).current_dir(work.path());
    // Standard output is for the packages that are made.
    process::output(&mut apt)?;
    let mut archives = fs::read_dir(work.path())?;
    let archive = archives.next().with_context(|| format!("apt brought no {named}"))??.path();
    let unpacked = work.path().join("unpacked");
    let mut unpack = process::command("dpkg-deb");
    process::run(unpack.arg("--raw-extract").arg(archive).arg(&unpacked))?;
    fs::rename(&unpacked, &directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

/// The version that apt has of a package, once it knows the architecture.
pub(crate) fn offered(arch: Arch, named: &str) -> Result<String> {
    if let Some(version) = setup::offered_version(named) {
        return Ok(version);
    }
    let privilege = Privilege::find();
    let known = process::output(process::command("dpkg").arg("--print-foreign-architectures"))?;
    if !arch.is_host() && !known.lines().any(|line| line == arch.debian()) {
        eprintln!("xtask: adding the architecture {} to dpkg", arch.debian());
        let mut add = process::as_root(privilege, "dpkg", &[]);
        process::run(add.args(["--add-architecture", arch.debian()]))?;
    }
    setup::update_package_lists()?;
    setup::offered_version(named).ok_or_else(|| {
        Refused::new(
            format!("apt has no package {named}"),
            "add a Debian that has it to apt's sources, and run `apt-get update` as root",
        )
        .into()
    })
}
