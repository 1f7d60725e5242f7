//! The emulator: this machine's own, or Debian's, unpacked with the libraries that are missing
//! here.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::package::{self, SOURCES};
use crate::arch::Arch;
use crate::failure::Refused;
use crate::process;

/// Other parts of the emulator. One of another release, as an image tool, would have to be removed
/// for ours to be installed; it is nothing to what is only unpacked.
const SIBLINGS: &str = "Package: qemu-";
/// List of what dpkg has installed.
const STATUS: &str = "/var/lib/dpkg/status";
/// Directories of the unpacked emulator's libraries, and of what it loads into the machine.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
const DATA: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// The program that emulates a machine.
#[derive(Debug)]
pub enum Emulator {
    /// That in the search path.
    Own(String),
    /// The packages unpacked into a directory.
    Unpacked {
        /// The directory.
        root: PathBuf,
        /// Name of the program.
        program: String,
    },
}

impl Emulator {
    /// The machine's own, or one that is unpacked into the cache.
    pub(super) fn find(cache: &Path, arch: Arch) -> Result<Self> {
        let program = program(arch);
        if process::find(&program).is_some() {
            return Ok(Self::Own(program));
        }
        let package = package_of(arch);
        let directory = match package::offered_or_updated(package) {
            // No colon, which parts the paths of libraries.
            Some(version) => cache.join(format!("{package}_{}", version.replace(':', "_"))),
            None => package::cached(cache, package).ok_or_else(|| {
                Refused::new(format!("no {program}, and apt has no package {package}"), SOURCES)
            })?,
        };
        if !directory.exists() {
            let download = |into: &Path| download(into, package);
            package::unpack(cache, package, &directory, download, |from, to| {
                fs::rename(from, to.join("root")).context("moving what was unpacked")
            })?;
        }
        Ok(Self::Unpacked { root: directory.join("root"), program })
    }

    /// The command without arguments.
    pub fn command(&self) -> Command {
        let (root, program) = match self {
            Self::Own(program) => return process::command(program),
            Self::Unpacked { root, program } => (root, program),
        };
        let mut command = process::command(root.join("usr/bin").join(program));
        command.env("LD_LIBRARY_PATH", libraries(root, env::var_os("LD_LIBRARY_PATH")));
        for data in DATA {
            command.arg("-L").arg(root.join(data));
        }
        command
    }
}

/// The program that emulates machines of an architecture.
fn program(arch: Arch) -> String {
    format!("qemu-system-{}", arch.gnu())
}

const fn package_of(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "qemu-system-x86",
        Arch::Arm64 => "qemu-system-arm",
    }
}

fn libraries(root: &Path, others: Option<OsString>) -> OsString {
    let mut paths = OsString::new();
    for path in LIBRARIES.map(|path| root.join(path).into_os_string()).into_iter().chain(others) {
        if !paths.is_empty() {
            paths.push(":");
        }
        paths.push(path);
    }
    paths
}

/// Has apt download the package, and what it needs that is not installed, into a directory.
fn download(into: &Path, package: &str) -> Result<Command> {
    let status = fs::read_to_string(STATUS).with_context(|| format!("cannot read {STATUS}"))?;
    package::with_dependencies(into, &without_siblings(&status), &[], &[package])
}

/// dpkg's list without the parts of the emulator.
fn without_siblings(status: &str) -> String {
    let others: Vec<&str> =
        status.split("\n\n").filter(|package| !package.starts_with(SIBLINGS)).collect();
    others.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_the_emulator_are_left_out() {
        let status = "Package: adduser\nStatus: a\n\nPackage: qemu-utils\nStatus: b\n\nPackage: \
                      zlib1g\nDepends: qemu-x\n";
        assert_eq!(
            without_siblings(status),
            "Package: adduser\nStatus: a\n\nPackage: zlib1g\nDepends: qemu-x\n"
        );
    }

    #[test]
    fn its_libraries_come_first() {
        let root = Path::new("/r");
        let own = "/r/usr/lib/x86_64-linux-gnu:/r/lib/x86_64-linux-gnu";
        assert_eq!(libraries(root, None), own);
        assert_eq!(libraries(root, Some("/x".into())), format!("{own}:/x").as_str());
    }
}
