//! Clones of the checkout in temporary directories, at some revision, with nothing built.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use xtask::failure::Refused;
use xtask::{process, workspace};

/// The program that set-up builds, where it is not.
const LINKER: &str = "bpf-linker";

/// Variables of cargo and rustup about the build of this program, which are not for other
/// checkouts.
const OURS: [&str; 3] = ["CARGO", "CARGO_TARGET_DIR", "RUSTUP_TOOLCHAIN"];
const OURS_FROM: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Commands of a revision, and where its command line is.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The package of the command line.
    pub(super) package: &'static str,
    pub(super) source: &'static str,
    /// Arguments of the cargo commands by which `cargo xtask run` builds.
    pub(super) run: Vec<Vec<&'static str>>,
    /// Arguments of those by which `cargo xtask test` does.
    pub(super) tests: Vec<Vec<&'static str>>,
}

impl Layout {
    fn of(checkout: &Path) -> Self {
        if checkout.join("limiter-userspace/cli").exists() {
            Self::now()
        } else {
            Self::of_one_package()
        }
    }

    /// Commands of `workspace` and of `test`.
    fn now() -> Self {
        let build = |what: &[&'static str]| {
            let host = workspace::host();
            ["build"].into_iter().chain(host).chain(what.iter().copied()).collect()
        };
        Self {
            package: "limiter-cli",
            source: "limiter-userspace/cli/src/commands.rs",
            run: vec![build(&["--bin", "limiter", "--bin", "limiter-sandbox"])],
            tests: vec![build(&["--tests", "--bin", "limiter"])],
        }
    }

    /// Commands of the time when limiter-userspace was one package.
    fn of_one_package() -> Self {
        let words = |line: &'static str| -> Vec<&'static str> { line.split(' ').collect() };
        let limiter = words("build --release --package limiter-userspace --bin limiter");
        Self {
            package: "limiter-userspace",
            source: "limiter-userspace/src/cli/commands.rs",
            run: vec![
                limiter.clone(),
                words("build --release --package limiter-tests --bin limiter-sandbox"),
            ],
            tests: vec![
                words(
                    "test --no-run --package limiter-common --package limiter-userspace \
                     --package limiter-fuzz-targets --package xtask",
                ),
                limiter,
                words("test --no-run --package limiter-tests"),
            ],
        }
    }
}

/// A clone. The directory goes with it.
#[derive(Debug)]
pub(super) struct Clone {
    /// The root of the checkout.
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    toolchain: String,
    /// Variables of commands in it.
    variables: Vec<(&'static str, OsString)>,
    _directory: TempDir,
}

impl Clone {
    /// Clones, and sees that all crates are there; or with `fresh`, that there are none, and no
    /// bpf-linker.
    pub(super) fn make(revision: &str, fresh: bool, toolchain: &str) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("limiter-build-")
            .tempdir()
            .context("no directory for a clone could be made")?;
        let path = directory.path().join("limiter");
        let mut git = process::command("git");
        git.args(["clone", "--quiet", "--local", "--no-checkout"]);
        process::run(git.arg(workspace::root()?).arg(&path))?;
        let mut git = process::command("git");
        git.args(["checkout", "--quiet", "--detach", revision]);
        process::run(git.current_dir(&path))?;
        let mut variables = vec![("CARGO_TARGET_DIR", path.join("target").into_os_string())];
        if fresh {
            let links = directory.path().join("programs");
            variables.push(("PATH", without(LINKER, &process::search_path(), &links)?));
            variables.push(("CARGO_HOME", directory.path().join("cargo").into_os_string()));
        }
        let layout = Layout::of(&path);
        let toolchain = toolchain.to_owned();
        let clone = Self { path, layout, toolchain, variables, _directory: directory };
        if !fresh {
            let target = workspace::host_triple()?;
            process::run(&mut clone.cargo(&["fetch", "--locked", "--target", &target]))?;
        }
        Ok(clone)
    }

    /// A command in the clone, as in a new shell.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = process::command(program);
        command.current_dir(&self.path);
        for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// `cargo` in the clone, with the BPF toolchain named, as the commands of xtask have it.
    pub(super) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = self.command("cargo");
        cargo.args(arguments).env(workspace::TOOLCHAIN_VARIABLE, &self.toolchain);
        cargo
    }

    /// Files that builds in dev and release have made.
    pub(super) fn built(&self) -> Result<BTreeSet<PathBuf>> {
        let mut files = BTreeSet::new();
        for folder in ["debug", "debug/deps", "release", "release/deps"] {
            let folder = self.path.join("target").join(folder);
            if folder.exists() {
                let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<_, _>>);
                let entries: Vec<fs::DirEntry> =
                    entries.with_context(|| format!("reading {}", folder.display()))?;
                files.extend(entries.iter().map(fs::DirEntry::path));
            }
        }
        Ok(files)
    }
}

fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    OURS.contains(&name) || OURS_FROM.iter().any(|start| name.starts_with(start))
}

/// A search path without a program: of a folder that has it, `links` has links to all others.
fn without(program: &str, path: &OsStr, links: &Path) -> Result<OsString> {
    let mut folders = Vec::new();
    for (number, folder) in env::split_paths(path).enumerate() {
        if !folder.join(program).exists() {
            folders.push(folder);
            continue;
        }
        let place = links.join(number.to_string());
        fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
        let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for entry in entries.with_context(|| format!("reading {}", folder.display()))? {
            let link = place.join(entry.file_name());
            if entry.file_name() != program {
                symlink(entry.path(), &link)
                    .with_context(|| format!("making {}", link.display()))?;
            }
        }
        folders.push(place);
    }
    env::join_paths(folders).context("the temporary directory has a colon in its name")
}

/// The commit of a name, as short as git shows it.
pub(super) fn revision(root: &Path, name: &str) -> Result<String> {
    let mut git = process::command("git");
    git.args(["rev-parse", "--short", "--verify", "--end-of-options"]);
    git.arg(format!("{name}^{{commit}}"));
    let said = process::output(git.current_dir(root)).map_err(|error| {
        Refused::new(format!("{name} is no revision ({error:#})"), "name a commit of this clone")
    })?;
    Ok(said.trim().to_owned())
}

/// Says when the checkout has changes: a clone has none of them.
pub(super) fn say_changes(root: &Path) -> Result<()> {
    let mut git = process::command("git");
    let changes = process::output(git.args(["status", "--porcelain"]).current_dir(root))?;
    if let Some(first) = changes.lines().next() {
        eprintln!("xtask: not committed, so not measured: {} and the like", first.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_this_build_are_known() {
        for (name, ours) in [
            ("CARGO", true),
            ("CARGO_MANIFEST_DIR", true),
            ("CARGO_PKG_NAME", true),
            ("RUSTUP_TOOLCHAIN", true),
            ("CARGO_HOME", false),
            ("CARGO_NET_OFFLINE", false),
            ("PATH", false),
        ] {
            assert_eq!(is_ours(OsStr::new(name)), ours, "{name}");
        }
    }

    #[test]
    fn a_search_path_loses_one_program() {
        let directory = tempfile::tempdir().unwrap();
        let folder = |name: &str| directory.path().join(name);
        for (name, programs) in [("a", &["x", "y"][..]), ("b", &["y", "z"])] {
            fs::create_dir(folder(name)).unwrap();
            for program in programs {
                fs::write(folder(name).join(program), name).unwrap();
            }
        }
        let path = env::join_paths([folder("a"), folder("b")]).unwrap();
        let path = without("x", &path, &folder("links")).unwrap();
        let folders: Vec<PathBuf> = env::split_paths(&path).collect();
        assert_eq!(folders, [folder("links").join("0"), folder("b")]);
        assert!(!folders[0].join("x").exists());
        assert_eq!(fs::read_to_string(folders[0].join("y")).unwrap(), "a");
    }

    #[test]
    fn the_file_to_edit_is_there() {
        let root = workspace::root().unwrap();
        let layout = Layout::of(&root);
        assert_eq!(layout.package, "limiter-cli");
        assert!(root.join(layout.source).exists(), "{}", layout.source);
    }

    #[test]
    fn only_a_revision_is_one() {
        let root = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut git = process::command("git");
            git.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
            process::output(git.args(arguments).current_dir(root.path())).unwrap()
        };
        git(&["init", "--quiet"]);
        git(&["commit", "--quiet", "--allow-empty", "--message", "empty"]);
        let full = git(&["rev-parse", "HEAD"]);
        assert!(full.starts_with(&revision(root.path(), "HEAD").unwrap()), "{full}");
        for other in ["no-such-revision", "--help", ""] {
            assert!(revision(root.path(), other).unwrap_err().is::<Refused>(), "{other}");
        }
    }
}
