//! The tree of files as a tarball.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::tree::{Layout, Tree};
use super::{Programs, Source, VERSION};
use crate::process;

/// Makes the tarball, and gives its name.
pub(super) fn make(source: &Source, programs: &Programs, output: &Path) -> Result<String> {
    let top = format!("limiter-{VERSION}-{}-linux-gnu", source.arch.gnu());
    let work = tempfile::tempdir().context("no directory for the tarball could be made")?;
    let tree = Tree::fill(source, programs, work.path().join(&top), Layout::Fedora)?;
    let tar = work.path().join("packed");
    let mut pack = source.tool("tar");
    pack.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    pack.arg(format!("--mtime=@{}", source.epoch)).arg("--directory").arg(work.path());
    process::run(pack.arg("--create").arg("--file").arg(&tar).arg(&top))?;
    drop(tree);
    process::run(source.tool("gzip").args(["-9", "--no-name", "--"]).arg(&tar))?;
    let name = format!("{top}.tar.gz");
    fs::copy(tar.with_extension("gz"), output.join(&name))?;
    Ok(name)
}
