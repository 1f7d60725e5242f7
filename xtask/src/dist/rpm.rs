//! The package for Fedora, RHEL and the like, by rpmbuild.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::tree::{Layout, Tree};
use super::{Programs, Source, VERSION};
use crate::process;

/// Settings that make the package the same again, on any machine.
const SAME: [&str; 4] = [
    "_buildhost reproducible",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "_binary_payload w19.zstdio",
];

/// Makes the package, and gives its name.
pub(super) fn make(source: &Source, programs: &Programs, output: &Path) -> Result<String> {
    let work = tempfile::tempdir().context("no directory for the package could be made")?;
    let tree = Tree::fill(source, programs, work.path().join("tree"), Layout::Fedora)?;
    let list = work.path().join("files");
    fs::write(&list, files(&tree)?)?;
    let mut build = source.tool("rpmbuild");
    build.current_dir(work.path()).args(["-bb", "--quiet", "--target"]);
    build.arg(format!("{}-linux", source.arch.gnu()));
    for define in SAME {
        build.args(["--define", define]);
    }
    for (name, value) in [
        ("_topdir", work.path()),
        ("_rpmdir", output),
        ("tree", &tree.root),
        ("file_list", &list),
        ("_rpmfilename", Path::new("%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm")),
        ("of_version", Path::new(VERSION)),
        ("of_release", Path::new(&source.revision)),
    ] {
        build.args(["--define", &format!("{name} {}", value.display())]);
    }
    process::run(build.arg(source.root.join("dist/rpm/limiter.spec")))?;
    Ok(format!("limiter-{VERSION}-{}.{}.rpm", source.revision, source.arch.gnu()))
}

/// The files as a spec has them.
fn files(tree: &Tree<'_>) -> Result<String> {
    let mut list = "%defattr(-,root,root,-)\n".to_owned();
    for path in tree.own_directories()? {
        // Mode and group are those of tmpfiles.d.
        let verify = if path == "etc/limiter" { "%verify(not mode group) " } else { "" };
        writeln!(list, "{verify}%dir /{path}")?;
    }
    for path in tree.files("etc")? {
        writeln!(list, "%config(noreplace) /{path}")?;
    }
    for path in tree.files("usr")? {
        let kind = match path.as_str() {
            path if path.starts_with("usr/share/licenses/") => "%license ",
            path if path.starts_with("usr/share/doc/") => "%doc ",
            _ => "",
        };
        writeln!(list, "{kind}/{path}")?;
    }
    Ok(list)
}
