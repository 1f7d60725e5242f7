//! Programs of a guest, and the libraries of all of them: this machine's own, or where the guest is
//! of another architecture those of Debian's packages, unpacked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::package;
use crate::arch::Arch;
use crate::failure::Refused;
use crate::{cross, process};

/// Debian's packages of the programs that the tests and their harness call.
const PACKAGES: [&str; 2] = ["iproute2", "iputils-ping"];

/// Directories of programs in Debian.
const PROGRAMS: [&str; 4] = ["bin", "sbin", "usr/bin", "usr/sbin"];

/// Places from which programs and libraries are taken.
#[derive(Debug)]
pub(super) enum Userland {
    Host,
    /// The packages of an architecture, unpacked into a directory.
    Unpacked {
        /// Architecture of the guest.
        arch: Arch,
        /// The directory.
        root: PathBuf,
    },
}

impl Userland {
    /// That of a guest; packages are unpacked into the cache.
    pub(super) fn find(cache: &Path, arch: Arch) -> Result<Self> {
        if arch.is_host() {
            return Ok(Self::Host);
        }
        // Of the first program: it names what is kept.
        let [first, _] = PACKAGES;
        let version = cross::offered(arch, &arch.package(first))?;
        let directory = cache.join(format!("userland-{}_{version}", arch.debian()));
        if !directory.exists() {
            let download = |into: &Path| {
                let options = [format!("APT::Architecture={}", arch.debian())];
                // Nothing is installed there.
                package::with_dependencies(into, "", &options, &PACKAGES)
            };
            package::unpack(cache, &PACKAGES.join(" "), &directory, download, |from, to| {
                fs::rename(from, to.join("root")).context("moving what was unpacked")
            })?;
        }
        Ok(Self::Unpacked { arch, root: directory.join("root") })
    }

    /// The path of a program.
    pub(super) fn program(&self, name: &str) -> Result<PathBuf> {
        let found = match self {
            Self::Host => process::find(name),
            Self::Unpacked { root, .. } => PROGRAMS
                .iter()
                .map(|directory| root.join(directory).join(name))
                // Not through links: they lead out of the directory.
                .find(|path| path.is_file()),
        };
        found.ok_or_else(|| {
            Refused::new(format!("{name} is not there"), "run `cargo xtask setup`").into()
        })
    }

    /// The libraries that programs are started with: their paths in the guest, and here.
    pub(super) fn libraries(&self, programs: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>> {
        match self {
            Self::Host => {
                let mut found = BTreeMap::new();
                for program in programs {
                    for library in of_host(program)? {
                        // The path that the program names, which may be a link or below one.
                        let path = PathBuf::from(&library);
                        found.insert(library.trim_start_matches('/').to_owned(), path);
                    }
                }
                Ok(found)
            }
            Self::Unpacked { arch, root } => of_root(*arch, root, programs),
        }
    }
}

/// The libraries of programs and of these libraries, in an unpacked system.
fn of_root(arch: Arch, root: &Path, programs: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>> {
    let directory = arch.libraries();
    let loader = arch.loader().to_owned();
    let mut found = BTreeMap::from([(loader.clone(), root.join(loader))]);
    let mut left = programs.to_vec();
    while let Some(program) = left.pop() {
        let mut readelf = process::command("readelf");
        let text = process::output(readelf.env("LC_ALL", "C").args(["--dynamic"]).arg(&program))?;
        for library in needed(&text) {
            let to = format!("{directory}/{library}");
            if found.contains_key(&to) || arch.loader().ends_with(library) {
                continue;
            }
            let paths = [root.join(&directory), root.join("usr").join(&directory)];
            let path = paths.iter().map(|path| path.join(library)).find(|path| path.is_file());
            let path = path.with_context(|| {
                format!("{} needs {library}, which no package has", program.display())
            })?;
            left.push(path.clone());
            found.insert(to, path);
        }
    }
    Ok(found)
}

/// The libraries that a program names, in readelf's output: ` 0x1 (NEEDED) Shared library:
/// [libc.so.6]`.
fn needed(readelf: &str) -> impl Iterator<Item = &str> {
    readelf.lines().filter_map(|line| {
        let (_, name) = line.split_once("(NEEDED)")?.1.split_once('[')?;
        name.strip_suffix(']')
    })
}

/// The libraries that a program of this machine is started with; none when it is linked statically.
fn of_host(program: &Path) -> Result<Vec<String>> {
    let mut ldd = process::command("ldd");
    let output = ldd.arg(program).env("LC_ALL", "C").output();
    let output =
        output.with_context(|| format!("{} could not be started", process::shown(&ldd)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success()
        && !String::from_utf8_lossy(&output.stderr).contains("not a dynamic")
    {
        anyhow::bail!("{} failed ({})", process::shown(&ldd), output.status);
    }
    Ok(paths(&text))
}

/// The paths in ldd's output: `libc.so.6 => /lib/libc.so.6 (0x7f)` and `/lib64/ld-linux.so.2
/// (0x7f)`.
fn paths(ldd: &str) -> Vec<String> {
    let path = |line: &str| {
        let line = line.rsplit_once(" (0x")?.0.trim();
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        path.starts_with('/').then(|| path.to_owned())
    };
    ldd.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f4d)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f4e)\n\tstatically linked\n";
        let expected = ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn libraries_of_another_architecture_are_found_by_their_names() {
        let text = "\nDynamic section at offset 0x1 contains 3 entries:\n  Tag  Type  Name/Value\n \
                    0x01 (NEEDED)  Shared library: [libc.so.6]\n \
                    0x0e (SONAME)  Library soname: [libm.so.6]\n \
                    0x01 (NEEDED)  Shared library: [ld-linux-aarch64.so.1]\n";
        assert_eq!(needed(text).collect::<Vec<_>>(), ["libc.so.6", "ld-linux-aarch64.so.1"]);
    }
}
