//! Builds BPF objects from a build script, or leaves stubs where there is no BPF toolchain, so that
//! `cargo check` and editors work on any machine. `cargo xtask` sets up the toolchain and names it
//! in `LIMITER_BPF_TOOLCHAIN`.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use aya_build::{Package, Toolchain};
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;

/// The name that `cargo xtask setup` links Debian's toolchain by.
const DEFAULT_TOOLCHAIN: &str = "limiter-bpf";

/// Some objects of a package for the BPF target.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// Package that has the programs, as cargo names it.
    pub package: &'a str,
    /// Directory of the package, from the root of the checkout.
    pub directory: &'a str,
    /// Features of the package, without the default ones: they decide which of its binaries are
    /// built.
    pub features: &'a [&'a str],
    /// Names of these binaries, and of the objects in `OUT_DIR`.
    pub binaries: &'a [&'a str],
}

/// Builds the objects into `OUT_DIR`. `root` is the way from the calling package's directory to the
/// root of the checkout. Without a toolchain the objects are empty, and cargo warns.
///
/// # Errors
///
/// Outside a build script, or when the programs cannot be built.
pub fn build(root: &str, objects: &[Objects<'_>]) -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    // Asked for when it runs: a target directory may have come from another checkout.
    let package = env::var_os("CARGO_MANIFEST_DIR").context("CARGO_MANIFEST_DIR is not set")?;
    let root = Path::new(&package).join(root);
    println!("cargo::rerun-if-env-changed=LIMITER_BPF_TOOLCHAIN");
    for path in ["limiter-common/src", "limiter-common/decision/src", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    for objects in objects {
        println!("cargo::rerun-if-changed={}", root.join(objects.directory).display());
    }
    let Some(toolchain) = toolchain() else {
        println!(
            "cargo::warning=no BPF toolchain: built without the XDP program; run `cargo xtask \
             setup`"
        );
        for name in objects.iter().flat_map(|objects| objects.binaries) {
            fs::write(out.join(name), [])?;
        }
        return Ok(());
    };
    allow_unstable();
    for Objects { package, directory, features, binaries } in objects {
        share_target(&out, package)?;
        let root_dir = root.join(directory);
        aya_build::build_ebpf(
            [Package {
                name: package,
                root_dir: root_dir.to_str().context("the checkout's path is not UTF-8")?,
                no_default_features: true,
                features,
            }],
            Toolchain::Custom(&toolchain),
        )?;
        for name in *binaries {
            let place = out.join(name);
            let object = fs::read(&place).with_context(|| format!("{package} built no {name}"))?;
            let object = without_debug(&object)
                .with_context(|| format!("cannot leave debugging information out of {name}"))?;
            fs::write(&place, object)?;
        }
    }
    Ok(())
}

/// The object without its DWARF, which LLVM writes beside the BTF. That is four fifths of the
/// object, and aya would read its relocations into memory with each load.
fn without_debug(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(object)?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        section.delete =
            [b".debug".as_slice(), b".rel.debug"].iter().any(|of| name.starts_with(of));
    }
    builder.delete_orphans();
    // LLVM has the names of sections and of symbols in one section, and the writer in two.
    if !builder.sections.iter().any(|of| matches!(of.data, SectionData::SectionString)) {
        let names = builder.sections.add();
        names.name = ".shstrtab".into();
        names.sh_type = SHT_STRTAB;
        names.data = SectionData::SectionString;
    }
    let mut kept = Vec::new();
    builder.write(&mut kept)?;
    Ok(kept)
}

/// Lets all of these builds share a target directory, so that `core` and the proc macros are built
/// once: aya-build has one for each package in each `OUT_DIR`.
fn share_target(out: &Path, package: &str) -> Result<()> {
    // TARGET/PROFILE/build/PACKAGE/out
    let target = out.ancestors().nth(4).context("OUT_DIR is in no target directory")?;
    let (shared, link) = (target.join("bpf"), out.join("aya-build/target").join(package));
    if fs::read_link(&link).is_ok_and(|to| to == shared) {
        return Ok(());
    }
    // A copied target directory has the link of another one, an old one a directory.
    if link.is_symlink() {
        fs::remove_file(&link)?;
    } else if link.exists() {
        fs::remove_dir_all(&link)?;
    }
    fs::create_dir_all(&shared)?;
    fs::create_dir_all(link.parent().context("it has none")?)?;
    symlink(&shared, &link).with_context(|| format!("cannot make {}", link.display()))
}

/// Has the toolchain build `core`, and keeps aya-build from repeating cargo's progress as warnings.
/// Objects name source files as they are in the checkout, so that they are the same wherever it is.
#[expect(unsafe_code, reason = "aya-build takes them from the environment")]
fn allow_unstable() {
    // SAFETY: build scripts have one thread at this point.
    unsafe {
        env::set_var("RUSTC_BOOTSTRAP", "1");
        env::set_var("CARGO_TERM_QUIET", "true");
        env::set_var("CARGO_UNSTABLE_TRIM_PATHS", "true");
        env::set_var("CARGO_PROFILE_RELEASE_TRIM_PATHS", "all");
        // The workspace's release profile is for a small binary.
        env::set_var("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
        env::set_var("CARGO_PROFILE_RELEASE_LTO", "thin");
        env::set_var("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        // An incremental build splits a program into units that are optimised alone, and the
        // verifier refuses what comes out.
        env::remove_var("CARGO_INCREMENTAL");
    }
}

/// The toolchain to build for BPF with, if there is one and a linker for it.
fn toolchain() -> Option<String> {
    println!("cargo::rerun-if-env-changed=PATH");
    let linker = Command::new("bpf-linker").arg("--version").output().ok()?;
    if !linker.status.success() {
        return None;
    }
    if let Ok(name) = env::var("LIMITER_BPF_TOOLCHAIN") {
        return Some(name);
    }
    let run =
        Command::new("rustup").args(["run", DEFAULT_TOOLCHAIN, "rustc", "--version"]).output();
    run.is_ok_and(|output| output.status.success()).then(|| DEFAULT_TOOLCHAIN.to_owned())
}
