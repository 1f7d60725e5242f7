//! The guest's file system: the tests, the programs that they call, and all libraries of both.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::console::Case;
use super::newc::Archive;
use super::package::{Kernel, name};
use crate::failure::Refused;
use crate::process;

/// The script that runs as process 1.
const INIT: &str = include_str!("init.sh");
/// Programs that the tests and their harness call.
const TOOLS: [&str; 2] = ["ip", "ping"];
/// Mounted over.
const MOUNTS: [&str; 6] = ["proc", "sys", "dev", "tmp", "run", "var"];
/// Path of the binary under test in the guest.
pub(super) const LIMITER: &str = "/tests/limiter";

/// Content of a guest, whatever its kernel.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) busybox: PathBuf,
    /// The binary under test.
    pub(super) limiter: PathBuf,
    /// Test binaries, by the names of their sources.
    pub(super) tests: Vec<(String, PathBuf)>,
    /// Tests to run, in order, and the seconds that each may take.
    pub(super) plan: Vec<(Case, u32)>,
    /// Variables for the tests and for the guest itself.
    pub(super) environment: Vec<(&'static str, String)>,
}

impl Content {
    /// Writes the archive for a kernel.
    pub(super) fn write(&self, kernel: &Kernel, to: &Path) -> Result<()> {
        let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
        let mut archive = Archive::new(BufWriter::new(file));
        archive.file("init", INIT.as_bytes())?;
        for directory in MOUNTS {
            archive.directory(directory)?;
        }
        let mut dynamic = vec![self.limiter.clone()];
        archive.file("tests/limiter", &read(&self.limiter)?)?;
        for (name, path) in &self.tests {
            archive.file(&format!("tests/{name}"), &read(path)?)?;
            dynamic.push(path.clone());
        }
        for tool in TOOLS {
            let path = process::find(tool).ok_or_else(|| {
                Refused::new(format!("{tool} is not in PATH"), "run `cargo xtask setup`")
            })?;
            archive.file(&format!("tools/{tool}"), &read(&path)?)?;
            dynamic.push(path);
        }
        let mut libraries = BTreeSet::new();
        for program in dynamic {
            libraries.extend(libraries_of(&program)?);
        }
        for library in libraries {
            // The path that the program names, which may be a link or below one.
            archive.file(library.trim_start_matches('/'), &read(Path::new(&library))?)?;
        }
        archive.file("busybox/busybox", &read(&self.busybox)?)?;
        for module in &kernel.modules {
            archive.file(&format!("modules/{}", name(module)), &read(module)?)?;
        }
        archive.file("plan", plan(&self.plan).as_bytes())?;
        archive.file("environment", environment(&self.environment).as_bytes())?;
        archive.finish().with_context(|| format!("cannot write {}", to.display()))?;
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A line for every test, as init.sh reads it.
fn plan(cases: &[(Case, u32)]) -> String {
    let line = |(case, seconds): &(Case, u32)| format!("{} {} {seconds}\n", case.binary, case.test);
    cases.iter().map(line).collect()
}

/// For the shell.
fn environment(variables: &[(&str, String)]) -> String {
    let line = |(name, value): &(&str, String)| {
        format!("export {name}='{}'\n", value.replace('\'', r"'\''"))
    };
    variables.iter().map(line).collect()
}

/// The libraries that a program is started with; none when it is linked statically.
fn libraries_of(program: &Path) -> Result<Vec<String>> {
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
    fn the_guest_s_files_are_what_the_shell_reads() {
        let case = Case { binary: "verdict".to_owned(), test: "a::b".to_owned() };
        assert_eq!(plan(&[(case, 60)]), "verdict a::b 60\n");
        let variables = [("A", "x y".to_owned()), ("B", "it's".to_owned())];
        assert_eq!(environment(&variables), "export A='x y'\nexport B='it'\\''s'\n");
    }
}
