//! The names of the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 5] = ["fuzz-targets", "limiter-common", "limiter-userspace", "tests", "xtask"];

/// The root of the checkout.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names of functions that are tests: those behind an attribute that ends in `test`.
pub(crate) fn tests_in(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = line.strip_prefix("fn ") {
            if is_test {
                let end =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                names.insert(rest[..end].to_owned());
            }
            is_test = false;
        }
    }
    names
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().unwrap() != "target" {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names of all tests of the repository.
pub(crate) fn all_tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for name in CRATES {
        sources(&workspace().join(name), &mut files);
    }
    files.iter().flat_map(|file| tests_in(&fs::read_to_string(file).unwrap())).collect()
}

/// True if `name` is a test, or the path of a script or of a Rust file that tests something. A
/// directory's `main.rs` and `mod.rs` only name their modules, which is enough.
pub(crate) fn holds(name: &str, tests: &BTreeSet<String>) -> bool {
    if !name.contains('/') {
        return tests.contains(name);
    }
    let path = workspace().join(name);
    let Ok(text) = fs::read_to_string(&path) else { return false };
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    let names_modules = ["main.rs", "mod.rs"].iter().any(|end| path.ends_with(end));
    !is_rust || names_modules || text.contains("proptest!") || !tests_in(&text).is_empty()
}

pub(crate) fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn tests_are_distinguished_from_other_functions() {
    let tests =
        tests_in("#[test]\nfn one() {}\nfn helper() {}\n  #[tokio::test]\n  async fn two() {}\n");
    assert_eq!(tests, ["one", "two"].map(str::to_owned).into());
    assert!(holds("one", &tests) && !holds("helper", &tests));
    assert!(holds("tests/tests/documented/names.rs", &tests));
    assert!(!holds("tests/tests/no_such_file.rs", &tests));
    // A file without a test.
    assert!(!holds("tests/src/frames.rs", &tests));
}
