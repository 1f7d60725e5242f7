//! The guest's file system: the tests, the programs that they call, and all libraries of both.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::newc::Archive;
use super::package::{Kernel, name};
use super::userland::Userland;

/// The script that runs as process 1.
const INIT: &str = include_str!("init.sh");
/// Programs that the tests and their harness call.
pub(super) const TOOLS: &[&str] = &["ip", "ping", "tc"];
/// Those of the tests of devices and cards.
pub(super) const DEVICE_TOOLS: &[&str] = &["ip", "ping", "tc", "ethtool", "wg"];
const MOUNTS: [&str; 6] = ["proc", "sys", "dev", "tmp", "run", "var"];
/// Path of the binary under test in the guest.
pub(super) const LIMITER: &str = "/tests/limiter";
/// Path of the tests, as init.sh has it, without the slash.
const TESTS: &str = "tests/kernel";

/// Content of a guest, whatever its kernel.
#[derive(Debug)]
pub struct Content {
    pub(super) userland: Userland,
    pub(super) busybox: PathBuf,
    /// The binary under test.
    pub limiter: PathBuf,
    /// The plugin, which the tests find beside it.
    pub(super) cni: PathBuf,
    /// The program with all tests.
    pub tests: PathBuf,
    /// Names of the programs that the tests call.
    pub(super) tools: &'static [&'static str],
    /// Tests to run, in order, and the seconds that each may take.
    pub plan: Vec<(String, u32)>,
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
        let mut dynamic = vec![self.limiter.clone(), self.cni.clone(), self.tests.clone()];
        archive.file("tests/limiter", &read(&self.limiter)?)?;
        archive.file("tests/limiter-cni", &read(&self.cni)?)?;
        archive.file(TESTS, &read(&self.tests)?)?;
        for tool in self.tools {
            let path = self.userland.program(tool)?;
            archive.file(&format!("tools/{tool}"), &read(&path)?)?;
            dynamic.push(path);
        }
        for (to, library) in self.userland.libraries(&dynamic)? {
            archive.file(&to, &read(&library)?)?;
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
fn plan(tests: &[(String, u32)]) -> String {
    let line = |(test, seconds): &(String, u32)| format!("{test} {seconds}\n");
    tests.iter().map(line).collect()
}

fn environment(variables: &[(&str, String)]) -> String {
    let line = |(name, value): &(&str, String)| {
        format!("export {name}='{}'\n", value.replace('\'', r"'\''"))
    };
    variables.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_s_files_are_what_the_shell_reads() {
        assert_eq!(plan(&[("verdict::a".to_owned(), 60)]), "verdict::a 60\n");
        let variables = [("A", "x y".to_owned()), ("B", "it's".to_owned())];
        assert_eq!(environment(&variables), "export A='x y'\nexport B='it'\\''s'\n");
    }
}
