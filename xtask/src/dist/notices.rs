//! The notices of the crates in the binary, which their licences ask for: names, licences, and each
//! text once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::Source;
use crate::process;

/// Packages of the workspace whose dependencies are in the programs: limiter itself, the XDP
/// programs, and the sandbox.
const ROOTS: [&str; 3] = ["limiter-userspace", "limiter-ebpf", "limiter-sandbox"];

/// Beginnings of the names of files that hold a licence or a notice, in capitals.
const TEXTS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Parts of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    authors: Vec<String>,
    manifest_path: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None for what is linked; others are for tests and builds.
    kind: Option<String>,
}

/// The notices, as a text.
pub(super) fn of(source: &Source) -> Result<String> {
    let mut cargo = source.tool("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform"]);
    cargo.arg(source.arch.target());
    let metadata: Metadata = serde_json::from_str(&process::output(&mut cargo)?)
        .context("cargo metadata said something else than before")?;
    let linked = linked(&metadata);
    let mut crates: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|package| {
            linked.contains(package.id.as_str())
                && !metadata.workspace_members.contains(&package.id)
        })
        .collect();
    crates.sort_unstable_by_key(|package| (&package.name, &package.version));
    let mut text =
        "Crates in limiter and in its sandbox that others wrote, and their notices.\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in crates {
        let Package { name, version, license, authors, .. } = package;
        let license = license.as_deref().unwrap_or("see its text below");
        writeln!(text, "{name} {version}: {license}; {}", authors.join(", "))?;
        let directory = Path::new(&package.manifest_path).parent().context("no directory")?;
        for found in texts_in(directory)? {
            texts.entry(found).or_default().push(format!("{name} {version}"));
        }
    }
    for (notice, of) in texts {
        write!(text, "\n{}\n{}:\n\n{}\n", "-".repeat(72), of.join(", "), notice.trim_end())?;
    }
    Ok(text)
}

/// Ids of the packages that are linked into one of [`ROOTS`].
fn linked(metadata: &Metadata) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let roots = metadata.packages.iter().filter(|package| ROOTS.contains(&package.name.as_str()));
    let mut left: Vec<&str> = roots.map(|package| package.id.as_str()).collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !linked.insert(id) {
            continue;
        }
        let deps = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
        let is_linked = |dep: &&Dependency| dep.dep_kinds.iter().any(|kind| kind.kind.is_none());
        left.extend(deps.iter().filter(is_linked).map(|dep| dep.pkg.as_str()));
    }
    linked
}

/// Texts of licences and notices in a crate's directory, by their files' names.
fn texts_in(directory: &Path) -> Result<Vec<String>> {
    let mut found = BTreeMap::new();
    let files = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for file in files {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && TEXTS.iter().any(|begin| name.starts_with(begin)) {
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            found.insert(name, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_found_and_what_builds_or_tests_is_not() -> Result<()> {
        let package = |id: &str, name: &str| {
            format!(
                r#"{{"id":"{id}","name":"{name}","version":"1","license":null,"authors":[],"manifest_path":"/x"}}"#
            )
        };
        let packages =
            [package("a", ROOTS[0]), package("b", "linked"), package("c", "beneath")].join(",");
        let text = format!(
            r#"{{"packages":[{packages}],"workspace_members":["a"],"resolve":{{"nodes":[
            {{"id":"a","deps":[{{"pkg":"b","dep_kinds":[{{"kind":"dev"}},{{"kind":null}}]}},
                               {{"pkg":"d","dep_kinds":[{{"kind":"build"}}]}}]}},
            {{"id":"b","deps":[{{"pkg":"c","dep_kinds":[{{"kind":null}}]}}]}},
            {{"id":"c","deps":[]}},{{"id":"d","deps":[]}}]}}}}"#
        );
        let metadata: Metadata = serde_json::from_str(&text)?;
        assert_eq!(linked(&metadata), ["a", "b", "c"].into());
        Ok(())
    }
}
