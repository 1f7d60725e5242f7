//! Folders of the product are rooms: one with many files has no order that a reader could see.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::fs;
use std::path::{Path, PathBuf};

/// Rust files that a folder has at most.
const BOUND: usize = 20;

/// The packages of the product, and the tools that make it.
const PRODUCT: [&str; 5] =
    ["ebpf-build", "limiter-common", "limiter-ebpf", "limiter-userspace", "xtask"];

/// The folders below this one with their numbers of Rust files, without tests and what cargo
/// builds.
fn folders(folder: &Path, found: &mut Vec<(PathBuf, usize)>) {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !["benches", "target", "tests"].contains(&name) {
                folders(&path, found);
            }
        } else if path.extension().is_some_and(|of| of == "rs") && name != "tests.rs" {
            files += 1;
        }
    }
    found.push((folder.to_owned(), files));
}

#[test]
fn no_folder_of_the_product_has_many_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for package in PRODUCT {
        folders(&root.join(package), &mut found);
    }
    assert!(found.iter().map(|(_, files)| files).sum::<usize>() > 500);
    found.retain(|(_, files)| *files > BOUND);
    assert!(
        found.is_empty(),
        "more than {BOUND} Rust files in {found:?}: put those that belong together into a folder \
         whose name says what they are"
    );
}

#[test]
fn tests_and_built_files_do_not_count() {
    let root = tempfile::tempdir().unwrap();
    for file in ["a.rs", "tests.rs", "tests/b.rs", "target/c.rs", "room/d.rs", "room/e.md"] {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let mut found = Vec::new();
    folders(root.path(), &mut found);
    assert_eq!(found, [(root.path().join("room"), 1), (root.path().to_owned(), 1)]);
}
