//! Circles of imports among the files of the product: a file in one cannot be read, moved or
//! tested without the others.
//!
//! `cargo test -p xtask circles -- --nocapture` lists every circle, also those within bounds.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its machinery does")]

mod graph;
mod names;
mod read;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use self::graph::{Circle, Graph};

/// Files that a circle has at most.
const BOUND: usize = 3;

/// Folders of packages that are no product.
const ASIDE: [&str; 4] = ["bench", "fuzz-targets", "tests", "xtask"];

const REMEDY: &str = "To untie a circle, cut the edges that climb: move the named types and \
    functions to the file that they belong to, or to a new one below both; pass what a child needs \
    as an argument, instead of its reading its parent; let mod.rs only declare and re-export.";

/// A package of the product, and the roots of its crates.
struct Package {
    name: String,
    roots: Vec<PathBuf>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The packages of the product, as cargo knows them.
fn packages() -> Vec<Package> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().iter().filter_map(package).collect()
}

fn package(package: &Value) -> Option<Package> {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    let folder = manifest.strip_prefix(root()).unwrap();
    if ASIDE.iter().any(|aside| folder.starts_with(aside)) {
        return None;
    }
    let product = |target: &&Value| {
        let kinds = target["kind"].as_array().unwrap();
        kinds.iter().any(|kind| ["lib", "bin", "proc-macro"].contains(&kind.as_str().unwrap()))
    };
    let targets = package["targets"].as_array().unwrap().iter().filter(product);
    let roots = targets.map(|target| PathBuf::from(target["src_path"].as_str().unwrap()));
    Some(Package { name: package["name"].as_str().unwrap().to_owned(), roots: roots.collect() })
}

/// Circles as text: the files of each, and the names that tie them.
fn list(circles: &[Circle<'_>], root: &Path) -> String {
    let shown = |file: &Path| file.strip_prefix(root).unwrap_or(file).display().to_string();
    let mut text = String::new();
    for circle in circles {
        writeln!(text, "\na circle of {} files:", circle.files.len()).unwrap();
        for file in &circle.files {
            writeln!(text, "  {}", shown(file)).unwrap();
        }
        for edge in &circle.edges {
            let names = edge.names.join(", ");
            writeln!(text, "    {} -> {}: {names}", shown(edge.from), shown(edge.to)).unwrap();
        }
    }
    text
}

#[test]
fn circles_of_files_are_small() {
    let mut too_large = String::new();
    for package in packages() {
        let graph = Graph::read(&package.roots);
        let circles = graph.circles();
        let name = &package.name;
        let largest = circles.iter().map(|circle| circle.files.len()).max().unwrap_or(0);
        println!("\n{name}: {} circles, the largest of {largest} files", circles.len());
        let within = |circle: &Circle<'_>| circle.files.len() <= BOUND;
        let (small, large): (Vec<_>, Vec<_>) = circles.into_iter().partition(within);
        println!("{}", list(&small, root()));
        if !large.is_empty() {
            writeln!(too_large, "\n{name}: {BOUND} files may import each other").unwrap();
            too_large += &list(&large, root());
        }
    }
    assert!(too_large.is_empty(), "{too_large}\n{REMEDY}");
}

/// The circles of a crate of these files, the first of them its root.
fn circles_of(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let graph = Graph::read(&[folder.path().join(files[0].0)]);
    list(&graph.circles(), folder.path())
}

#[test]
fn a_circle_is_found_through_a_re_export() {
    let circles = circles_of(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::Deep as Other;"),
        ("b/mod.rs", "mod deep; pub use deep::*;"),
        ("b/deep.rs", "pub struct Deep(super::super::c::C);"),
        ("c.rs", "pub type C = u8; fn f() { assert!(crate::a::g()); }"),
    ]);
    let expected = "\na circle of 3 files:\n  a.rs\n  b/deep.rs\n  c.rs\n    a.rs -> b/deep.rs: Deep\n    \
                    b/deep.rs -> c.rs: C\n    c.rs -> a.rs: g\n";
    assert_eq!(circles, expected);
}

#[test]
fn a_parent_and_its_child_are_a_circle_if_each_takes_of_the_other() {
    let child = ("a.rs", "use super::*; fn f(_: Root) {}");
    let used = circles_of(&[("lib.rs", "mod a; struct Root; fn g() { a::f(Root) }"), child]);
    assert_eq!(
        used,
        "\na circle of 2 files:\n  a.rs\n  lib.rs\n    a.rs -> lib.rs: Root\n    \
         lib.rs -> a.rs: f\n"
    );
    assert_eq!(circles_of(&[("lib.rs", "mod a; pub use a::f; struct Root;"), child]), "");
}

#[test]
fn an_exported_macro_and_a_path_in_an_attribute_are_imports() {
    let circles = circles_of(&[
        ("main.rs", "mod a { pub mod deep; } mod b;"),
        (
            "a/deep.rs",
            "#[serde(with = \"crate::b::text\")] #[macro_export] macro_rules! m { () => {} }",
        ),
        ("b.rs", "pub mod text {} pub fn text() {} m!();"),
    ]);
    assert!(circles.contains("a/deep.rs -> b.rs: text"), "{circles}");
    assert!(circles.contains("b.rs -> a/deep.rs: m"), "{circles}");
}

#[test]
fn an_import_of_a_test_ties_nothing() {
    let circles = circles_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A; #[cfg(all(test, unix))] use crate::b::B; #[cfg(test)] mod tests;"),
        ("b.rs", "pub struct B(crate::a::A);"),
    ]);
    assert_eq!(circles, "");
}
