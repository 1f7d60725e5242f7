//! The package for Debian and Ubuntu, by the tools of `dpkg-dev`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::tree::{Layout, PROGRAMS, Tree};
use super::{Programs, Source, VERSION};
use crate::{cross, process};

/// Directory of control file and scripts, in the checkout.
const DEBIAN: &str = "dist/debian";

/// Packages of the libraries that a program for another architecture is linked to.
const LIBRARIES: [&str; 2] = ["libc6", "libgcc-s1"];

const SCRIPTS: [&str; 3] = ["postinst", "postrm", "prerm"];

/// Makes the package, and gives its name.
pub(super) fn make(source: &Source, programs: &Programs, output: &Path) -> Result<String> {
    let work = tempfile::tempdir().context("no directory for the package could be made")?;
    let tree = Tree::fill(source, programs, work.path().join("tree"), Layout::Debian)?;
    let changes = changelog(source)?;
    tree.compressed("usr/share/doc/limiter/changelog.Debian", changes.as_bytes())?;

    // The tools look for a source package in the directory that they are started in.
    let debian = work.path().join("debian");
    fs::create_dir(&debian)?;
    fs::copy(source.root.join(DEBIAN).join("control"), debian.join("control"))?;
    fs::write(debian.join("changelog"), changes)?;
    let tool = |program| {
        let mut tool = source.tool(program);
        tool.current_dir(work.path());
        tool
    };
    let mut depends = tool("dpkg-shlibdeps");
    if !source.arch.is_host() {
        for package in LIBRARIES {
            let mut of = OsString::from("-S");
            of.push(cross::fetched(source.arch, package, None)?);
            depends.arg(of);
        }
    }
    depends.arg("-Tdebian/substvars").args(PROGRAMS.map(|(_, path)| tree.at(path)));
    process::run(&mut depends)?;

    let conffiles = format!("/{}\n", tree.files("etc")?.join("\n/"));
    let others = tree.files("usr")?;
    let mut md5sum = source.tool("md5sum");
    let sums = process::output(md5sum.arg("--").args(others).current_dir(&tree.root))?;
    tree.write("DEBIAN/conffiles", conffiles.as_bytes(), 0o644)?;
    tree.write("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        let path = source.root.join(DEBIAN).join(script);
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        tree.write(&format!("DEBIAN/{script}"), &text, 0o755)?;
    }
    process::run(tool("dpkg-gencontrol").args([
        "-plimiter",
        "-Ptree",
        "-Tdebian/substvars",
        "-Otree/DEBIAN/control",
    ]))?;

    let name = format!("limiter_{VERSION}-{}_{}.deb", source.revision, source.arch.debian());
    let mut build = tool("dpkg-deb");
    // One thread: how many there are may decide how xz cuts its blocks.
    build.args(["--root-owner-group", "-Zxz", "--threads-max=1", "--build"]);
    process::run(build.arg(&tree.root).arg(output.join(&name)))?;
    Ok(name)
}

/// The changelog of the packaging: what changed in limiter is in the other one.
fn changelog(source: &Source) -> Result<String> {
    let control = fs::read_to_string(source.root.join(DEBIAN).join("control"))?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let maintainer = maintainer.context("dist/debian/control names no maintainer")?;
    let mut date = source.tool("date");
    let date =
        process::output(date.args(["--rfc-email", "--date"]).arg(format!("@{}", source.epoch)))?;
    Ok(format!(
        "limiter ({VERSION}-{}) unstable; urgency=medium\n\n  * Version {VERSION}: see \
         changelog.gz.\n\n -- {maintainer}  {}\n",
        source.revision,
        date.trim()
    ))
}

/// Fails if lintian has errors or warnings to report.
pub(super) fn lint(package: &Path) -> Result<()> {
    let mut lintian = process::command("lintian");
    lintian.args(["--fail-on", "error,warning", "--allow-root"]).arg(package);
    process::run(&mut lintian)
}

/// Fails if shellcheck has something to report of the scripts.
pub(super) fn shellcheck(source: &Source) -> Result<()> {
    let mut shellcheck = process::command("shellcheck");
    shellcheck.current_dir(source.root.join(DEBIAN)).args(SCRIPTS);
    shellcheck.args(["try-package", "../oci/try-image", "../systemd/try-unit"]);
    shellcheck.arg("../../xtask/src/vm/system/steps.sh");
    process::run(&mut shellcheck)
}
