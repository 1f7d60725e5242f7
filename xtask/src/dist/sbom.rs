//! The software bill of materials: every crate in the programs of a release.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{Source, VERSION};
use crate::process;

/// The tool, which is installed with cargo.
const TOOL: &str = "cargo-cyclonedx";

/// Packages of the checkout whose crates a release has, by their directories too.
const PACKAGES: [(&str, &str); 4] = [
    ("limiter-userspace", "limiter"),
    ("limiter-ebpf", "limiter-ebpf"),
    ("limiter-userspace/sandbox", "limiter-sandbox"),
    ("limiter-userspace/cni", "limiter-cni"),
];

/// Name that the tool gives its file in the directory of each package.
const MADE: &str = "limiter-xtask-sbom";

/// Installs the tool where it is not there.
pub(super) fn ensure_tool() -> Result<()> {
    if process::find(TOOL).is_none() {
        eprintln!("xtask: installing {TOOL} with cargo");
        process::run(process::command("cargo").args(["install", "--locked", TOOL]))?;
    }
    Ok(())
}

/// Makes a file for each of [`PACKAGES`], and gives their names.
pub(super) fn make(source: &Source, output: &Path) -> Result<Vec<String>> {
    let mut tool = source.tool(TOOL);
    tool.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"]);
    tool.args(["--no-build-deps", "--override-filename", MADE, "--manifest-path"]);
    let written = process::run(tool.arg(source.root.join("limiter-userspace/Cargo.toml")));
    let made = written.and_then(|()| collect(source, output));
    // The tool writes one for each package of the workspace.
    let mut git = process::command("git");
    git.args(["ls-files", "*Cargo.toml"]).current_dir(&source.root);
    for manifest in process::output(&mut git)?.lines() {
        let path = source.root.join(manifest).with_file_name(format!("{MADE}.json"));
        if path.exists() {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    made
}

fn collect(source: &Source, output: &Path) -> Result<Vec<String>> {
    let here = format!("file://{}", source.root.display());
    let mut names = Vec::new();
    for (package, of) in PACKAGES {
        let path = source.root.join(package).join(format!("{MADE}.json"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = format!("{of}-{VERSION}.cdx.json");
        // No path of a checkout, so that all checkouts make one file.
        fs::write(output.join(&name), text.replace(&here, "file://"))?;
        names.push(name);
    }
    Ok(names)
}
