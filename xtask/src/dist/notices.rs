//! The notices of the crates in the binary, which their licences ask for: names, licences, and each
//! text once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Source;
use crate::process;

/// Packages of the workspace whose dependencies are in the programs: limiter itself, the XDP
/// programs, the sandbox, and the plugin of CNI.
const ROOTS: [&str; 4] = ["limiter-userspace", "limiter-ebpf", "limiter-sandbox", "limiter-cni"];

/// Beginnings of the names of files that hold a licence or a notice, in capitals.
const TEXTS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// The notices, as a text.
pub(super) fn of(source: &Source) -> Result<String> {
    let target = &source.arch.target();
    let mut tree = source.tool("cargo");
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--target", target]);
    let tree = process::output(tree.args(ROOTS.map(|root| format!("--package={root}"))))?;
    let linked = linked(&tree);
    let mut metadata = source.tool("cargo");
    metadata.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&process::output(&mut metadata)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let word = |package: &Value, field: &str| {
        let word = package[field].as_str();
        word.map(str::to_owned).with_context(|| format!("a package has no {field}"))
    };
    let mut crates = Vec::new();
    // Those of the workspace have no source.
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let (name, version) = (word(package, "name")?, word(package, "version")?);
        if linked.contains(&(&name, &version)) {
            crates.push((name, version, package));
        }
    }
    crates.sort_unstable_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    let mut text =
        "Crates in limiter and in its sandbox that others wrote, and their notices.\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version, package) in crates {
        let license = package["license"].as_str().unwrap_or("see its text below");
        let authors = package["authors"].as_array().context("a package has no authors")?;
        let authors: Vec<&str> = authors.iter().filter_map(Value::as_str).collect();
        writeln!(text, "{name} {version}: {license}; {}", authors.join(", "))?;
        let manifest = word(package, "manifest_path")?;
        for found in texts_in(Path::new(&manifest).parent().context("no directory")?)? {
            texts.entry(found).or_default().push(format!("{name} {version}"));
        }
    }
    for (notice, of) in texts {
        write!(text, "\n{}\n{}:\n\n{}\n", "-".repeat(72), of.join(", "), notice.trim_end())?;
    }
    Ok(text)
}

/// Names and versions of the crates in the output of `cargo tree --prefix none`, whose lines are as
/// `serde v1.0.228 (proc-macro) (*)`.
fn linked(tree: &str) -> BTreeSet<(&str, &str)> {
    let halves = tree.lines().filter_map(|line| line.split_once(" v"));
    halves.map(|(name, rest)| (name, rest.split(' ').next().unwrap_or(rest))).collect()
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
    fn the_crates_of_a_tree_are_found() {
        let tree = "limiter-userspace v0.1.0 (/a b/limiter)\nserde_derive v1.0.2 (proc-macro)\n\
                    aya v0.14.0 (*)\n\nlimiter-ebpf v0.1.0 (/c)\naya v0.14.0\n";
        let crates = [
            ("aya", "0.14.0"),
            ("limiter-ebpf", "0.1.0"),
            ("limiter-userspace", "0.1.0"),
            ("serde_derive", "1.0.2"),
        ];
        assert_eq!(linked(tree), crates.into());
    }
}
