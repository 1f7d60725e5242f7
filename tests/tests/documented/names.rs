//! The names of the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 5] = ["fuzz-targets", "limiter-common", "limiter-userspace", "tests", "xtask"];

/// The root of the checkout.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A test, and the comment above it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stated {
    /// Path in the repository.
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) says: String,
}

/// Names of functions that are tests, and what the comments above them say: those behind an
/// attribute that ends in `test`.
fn named_in(text: &str) -> Vec<(String, String)> {
    let mut named = Vec::new();
    let (mut is_test, mut says) = (false, String::new());
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        if let Some(comment) = line.strip_prefix("///") {
            says.push_str(comment);
        } else if !is_test && !line.starts_with("#[") {
            says.clear();
        }
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = line.strip_prefix("fn ") {
            if is_test {
                let end =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                named.push((rest[..end].to_owned(), says.trim().to_owned()));
            }
            (is_test, says) = (false, String::new());
        }
    }
    named
}

pub(crate) fn tests_in(text: &str) -> BTreeSet<String> {
    named_in(text).into_iter().map(|(name, _)| name).collect()
}

/// All tests in a folder, file by file.
pub(crate) fn stated(folder: &str) -> Vec<Stated> {
    let mut files = Vec::new();
    sources(&workspace().join(folder), &mut files);
    files.sort();
    let mut stated = Vec::new();
    for path in files {
        let file = path.strip_prefix(workspace()).unwrap().display().to_string();
        let named = named_in(&fs::read_to_string(&path).unwrap());
        let of_file =
            named.into_iter().map(|(name, says)| Stated { file: file.clone(), name, says });
        stated.extend(of_file);
    }
    stated
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
    let text = "/// Of another.\nfn b() {}\n/// It\n/// holds.\n#[test]\n#[ignore]\nfn a() {}\n";
    assert_eq!(named_in(text), [("a".to_owned(), "It holds.".to_owned())]);
    assert!(holds("one", &tests) && !holds("helper", &tests));
    assert!(holds("tests/tests/documented/names.rs", &tests));
    assert!(!holds("tests/tests/no_such_file.rs", &tests));
    // A file without a test.
    assert!(!holds("tests/src/frames.rs", &tests));
}
