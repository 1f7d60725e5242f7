//! Facts about this machine. Looking is all that happens here; `choice` draws the conclusions.

use std::env;
use std::path::{Path, PathBuf};

use super::choice::{DEBIAN_TOOLCHAIN, Version};
use super::os_release::OsRelease;
use super::{apt, linker};
use crate::privilege::Privilege;
use crate::process;
use crate::workspace::TOOLCHAIN_VARIABLE;

/// Why a toolchain cannot build the XDP program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// rustup does not have it, or its rustc does not start: rustup's words.
    DoesNotRun(String),
    /// `core` has to be built for BPF, and its source is not there.
    NoSource,
    NoCargo,
    /// Older than the workspace's `rust-version`.
    TooOld(Version),
    /// There is no bpf-linker in the search path.
    NoLinker,
    /// bpf-linker does not link what this rustc emits: its words.
    DoesNotLink(String),
}

/// A toolchain that rustup knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Name of the toolchain in rustup.
    pub(super) name: String,
    /// `None` when it works, proven by linking.
    pub(super) fault: Option<Fault>,
}

/// Everything the choice is made from.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, one by one, not a state")]
pub(super) struct Facts {
    /// rustup is in the search path.
    pub(super) rustup: bool,
    /// A rustc that is not rustup's, for the message when rustup is missing.
    pub(super) other_rustc: Option<PathBuf>,
    /// `LIMITER_BPF_TOOLCHAIN`.
    pub(super) named: Option<Candidate>,
    /// All nightlies, in rustup's order.
    pub(super) nightlies: Vec<Candidate>,
    /// Debian's toolchain as set-up links it.
    pub(super) debian: Candidate,
    /// Packages of Debian's toolchain that are not installed or too old; empty where there is no
    /// dpkg.
    pub(super) packages: Vec<String>,
    /// bpf-linker is in the search path.
    pub(super) linker: bool,
    pub(super) release: OsRelease,
    /// apt-get is in the search path.
    pub(super) apt: bool,
    /// Debian's own package of rustup, which excludes rustc-web.
    pub(super) rustup_package: bool,
    pub(super) privilege: Privilege,
    /// Notes for the user on toolchains that were passed over.
    pub(super) notes: Vec<String>,
}

impl Facts {
    /// Looks at the machine; a few hundred milliseconds, nearly all of it linking.
    pub(super) fn gather() -> Self {
        let rustup = process::find("rustup").is_some();
        let toolchains = if rustup { toolchains() } else { Vec::new() };
        let candidate = |name: &str| {
            let folder = toolchains.iter().find(|(known, _)| known == name).map(|(_, path)| path);
            Candidate { name: name.to_owned(), fault: fault(name, folder.map(PathBuf::as_path)) }
        };
        let named = env::var(TOOLCHAIN_VARIABLE).ok().filter(|name| !name.is_empty());
        let named = named.filter(|_| rustup).map(|name| candidate(&name));
        let mut nightlies = Vec::new();
        for (name, _) in toolchains.iter().filter(|(name, _)| name.starts_with("nightly")) {
            // The first that is wanted and works is taken: the rest need not be proven.
            if named.is_some() || nightlies.iter().any(|known: &Candidate| known.fault.is_none()) {
                break;
            }
            nightlies.push(candidate(name));
        }
        let found = named.iter().chain(&nightlies).any(|known| known.fault.is_none());
        let debian = if found || !rustup {
            let fault = Some(Fault::DoesNotRun("not looked at".to_owned()));
            Candidate { name: DEBIAN_TOOLCHAIN.to_owned(), fault }
        } else {
            candidate(DEBIAN_TOOLCHAIN)
        };
        let notes = nightlies
            .iter()
            .filter_map(|known| Some((known, known.fault.as_ref()?)))
            .map(|(known, fault)| format!("{} is passed over: {fault}", known.name))
            .collect();
        // dpkg is only asked when something has to be installed: it costs time.
        let complete = found || debian.fault.is_none();
        Self {
            rustup,
            other_rustc: process::find("rustc"),
            named,
            nightlies,
            debian,
            packages: if complete { Vec::new() } else { apt::missing() },
            linker: process::find("bpf-linker").is_some(),
            release: OsRelease::read(),
            apt: process::find("apt-get").is_some(),
            rustup_package: !complete && apt::installed("rustup").is_some(),
            privilege: Privilege::find(),
            notes,
        }
    }
}

/// The toolchains that rustup knows, with their folders.
fn toolchains() -> Vec<(String, PathBuf)> {
    let mut rustup = process::command("rustup");
    let list = process::output(rustup.args(["toolchain", "list", "--verbose"]));
    parse_toolchains(&list.unwrap_or_default())
}

fn parse_toolchains(list: &str) -> Vec<(String, PathBuf)> {
    let parse = |line: &str| {
        let (name, rest) = line.split_once(char::is_whitespace)?;
        // "(active, default)" may stand between; a path may have spaces in it.
        let path = rest.get(rest.find('/')?..)?;
        Some((name.to_owned(), PathBuf::from(path.trim_end())))
    };
    list.lines().filter_map(parse).collect()
}

/// Fault of a toolchain, cheapest question first.
fn fault(name: &str, folder: Option<&Path>) -> Option<Fault> {
    if let Some(folder) = folder {
        if !folder.join("bin/rustc").is_file() {
            let why = format!("{} has no bin/rustc", folder.display());
            return Some(Fault::DoesNotRun(why));
        }
        if !has_source(folder) {
            return Some(Fault::NoSource);
        }
        if !folder.join("bin/cargo").is_file() {
            return Some(Fault::NoCargo);
        }
    }
    let mut rustc = process::command("rustup");
    let version = match process::output(rustc.args(["run", name, "rustc", "--version"])) {
        Ok(version) => version,
        Err(error) => return Some(Fault::DoesNotRun(format!("{error:#}"))),
    };
    // Named by a short form, as `nightly`: rustc knows where it is.
    if folder.is_none() {
        let mut rustc = process::command("rustup");
        let sysroot = process::output(rustc.args(["run", name, "rustc", "--print", "sysroot"]));
        if !sysroot.is_ok_and(|sysroot| has_source(Path::new(sysroot.trim()))) {
            return Some(Fault::NoSource);
        }
    }
    match Version::of_rustc(&version) {
        Some(version) if version < Version::NEEDED => return Some(Fault::TooOld(version)),
        None => return Some(Fault::DoesNotRun(format!("rustc says `{}`", version.trim()))),
        Some(_) => {}
    }
    if process::find("bpf-linker").is_none() {
        return Some(Fault::NoLinker);
    }
    linker::probe(name).err().map(|error| Fault::DoesNotLink(format!("{error:#}")))
}

fn has_source(folder: &Path) -> bool {
    folder.join("lib/rustlib/src/rust/library/core/Cargo.toml").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_rustup_is_read() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default) /r/toolchains/stable\n\
                    nightly-2026-05-20 /home/a b/nightly\nlimiter-bpf\t/usr\nno installed \
                    toolchains\n";
        let expected = [
            ("stable-x86_64-unknown-linux-gnu", "/r/toolchains/stable"),
            ("nightly-2026-05-20", "/home/a b/nightly"),
            ("limiter-bpf", "/usr"),
        ];
        let expected = expected.map(|(name, path)| (name.to_owned(), PathBuf::from(path)));
        assert_eq!(parse_toolchains(list), expected);
    }

    #[test]
    fn a_folder_without_the_source_of_core_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        assert!(matches!(fault("none", Some(folder.path())), Some(Fault::DoesNotRun(_))));
        std::fs::write(bin.join("rustc"), "").unwrap();
        assert_eq!(fault("none", Some(folder.path())), Some(Fault::NoSource));
    }
}
