//! The crates as ARCHITECTURE.md draws them, held against the manifests: who needs whom, and who
//! must not.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// Names of crates, and of those that each needs.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The crates of the workspace and all their dependencies of one kind, as cargo knows them: no kind
/// is a normal dependency.
fn manifests(kinds: &[Option<&str>]) -> Graph {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let needs = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| kinds.contains(&dependency["kind"].as_str())).map(name).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (name(package), needs(package))).collect()
}

/// Only what is needed of the graph's own crates.
fn inside(graph: &Graph) -> Graph {
    let ours = |needs: &BTreeSet<String>| {
        needs.iter().filter(|need| graph.contains_key(*need)).cloned().collect()
    };
    graph.iter().map(|(name, needs)| (name.clone(), ours(needs))).collect()
}

/// The packages of a lock file, with the dependencies of those of other people: the lock file has
/// those of tests for our own.
fn locked(text: &str) -> Graph {
    let mut graph = Graph::new();
    for package in text.split("[[package]]\n").skip(1) {
        let quoted = |line: &str| line.split('"').nth(1).unwrap().to_owned();
        let name = package.lines().find(|line| line.starts_with("name = ")).map(quoted).unwrap();
        // A version behind a name distinguishes two of one name; here they are one.
        let needs = package.lines().filter(|line| line.starts_with(" \"")).map(quoted);
        let needs = needs.map(|need| need.split(' ').next().unwrap().to_owned());
        graph.entry(name).or_default().extend(needs);
    }
    graph
}

/// All that a crate needs, and what that needs in turn.
fn reached<'a>(graph: &'a Graph, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = graph.get(from).into_iter().flatten().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        if found.insert(name) {
            open.extend(graph.get(name).into_iter().flatten().map(String::as_str));
        }
    }
    found
}

/// The drawing of a page: lines `a -> b, c`, and a last one of crates without an arrow. Names stand
/// there without `limiter-`.
fn drawn(page: &str) -> Graph {
    let (_, section) = page.split_once("\n### The crates\n").unwrap();
    let drawing = section.split("```").nth(1).unwrap();
    let full = |name: &str| match name.trim() {
        "xtask" => "xtask".to_owned(),
        name => format!("limiter-{name}"),
    };
    let mut graph = Graph::new();
    for line in drawing.lines().filter(|line| !line.trim().is_empty()) {
        if let Some((name, needs)) = line.split_once("->") {
            let before = graph.insert(full(name), needs.split(',').map(full).collect());
            assert!(before.is_none(), "{name} has two lines");
        } else {
            graph.extend(line.split(',').map(|name| (full(name), BTreeSet::new())));
        }
    }
    graph
}

fn differences(drawn: &Graph, manifests: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for name in manifests.keys().filter(|name| !drawn.contains_key(*name)) {
        found.push(format!("{name} is not in the drawing"));
    }
    for (name, arrows) in drawn {
        let Some(needs) = manifests.get(name) else {
            found.push(format!("{name} is no crate of the workspace"));
            continue;
        };
        for arrow in arrows.difference(needs) {
            found.push(format!("the arrow {name} -> {arrow} has no dependency"));
        }
        let reached = reached(drawn, name);
        for need in needs.iter().filter(|need| !reached.contains(need.as_str())) {
            found.push(format!("no arrow leads from {name} to {need}"));
        }
        for arrow in arrows {
            let mut others = arrows.iter().filter(|other| *other != arrow);
            if others.any(|other| self::reached(drawn, other).contains(arrow.as_str())) {
                found.push(format!("the arrow {name} -> {arrow} follows from others"));
            }
        }
    }
    found
}

#[test]
fn the_drawing_is_of_the_manifests() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let differences = differences(&drawn(&page), &inside(&manifests(&[None])));
    assert!(differences.is_empty(), "ARCHITECTURE.md: {}", differences.join("\n"));
}

#[test]
fn what_judges_offline_takes_no_aya() {
    let ours = manifests(&[None]);
    let mut all = locked(&fs::read_to_string(root().join("Cargo.lock")).unwrap());
    all.extend(ours);
    assert!(reached(&all, "limiter-datapath").contains("aya-obj"), "the search finds nothing");
    for name in [
        "limiter-api",
        "limiter-rules",
        "limiter-import",
        "limiter-replay",
        "limiter-requests",
        "limiter-model",
    ] {
        let mut reached = reached(&all, name).into_iter();
        assert_eq!(reached.find(|need| need.split('-').next() == Some("aya")), None, "{name}");
    }
}

/// Crates that need another one by a dependency of one of these kinds.
fn takers(of: &str, kinds: &[Option<&str>]) -> Vec<String> {
    let takes = |(name, needs): (String, BTreeSet<String>)| needs.contains(of).then_some(name);
    manifests(kinds).into_iter().filter_map(takes).collect()
}

#[test]
fn few_crates_take_aya_the_objects_the_daemon_and_the_commands() {
    assert_eq!(takers("aya", &[None]), ["limiter-datapath", "limiter-tests"]);
    let every = [None, Some("dev"), Some("build")];
    assert_eq!(takers("limiter-objects", &every), ["limiter-tests", "limiter-userspace"]);
    assert_eq!(takers("limiter-daemon", &[None]), ["limiter-cli"]);
    assert_eq!(takers("limiter-cli", &[None]), ["limiter-userspace"]);
}

#[test]
fn rules_and_imports_do_not_know_the_decision() {
    let ours = manifests(&[None]);
    assert!(reached(&ours, "limiter-model").contains("limiter-decision"));
    for name in ["limiter-rules", "limiter-import"] {
        assert!(!reached(&ours, name).contains("limiter-decision"), "{name}");
    }
}

fn graph(lines: &[(&str, &[&str])]) -> Graph {
    let set = |needs: &[&str]| needs.iter().map(|&need| need.to_owned()).collect();
    lines.iter().map(|&(name, needs)| (name.to_owned(), set(needs))).collect()
}

#[test]
fn a_drawing_is_read() {
    let page = "# A\n\n### The crates\n\nArrows.\n\n```\ncli  ->  rules, text\nrules  ->  text\n\
                text, xtask\n```\n\n```\nno -> crate\n```\n";
    let expected = graph(&[
        ("limiter-cli", &["limiter-rules", "limiter-text"]),
        ("limiter-rules", &["limiter-text"]),
        ("limiter-text", &[]),
        ("xtask", &[]),
    ]);
    assert_eq!(drawn(page), expected);
}

#[test]
fn each_difference_is_found() {
    let manifests = graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[]), ("d", &["a"])]);
    let right = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[]), ("d", &["a"])]);
    assert_eq!(differences(&right, &manifests), [""; 0]);
    let wrong = graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["b"]), ("e", &[])]);
    let expected = [
        "d is not in the drawing",
        "the arrow a -> b follows from others",
        "the arrow a -> c follows from others",
        "the arrow c -> b has no dependency",
        "e is no crate of the workspace",
    ];
    assert_eq!(differences(&wrong, &manifests), expected);
    let fewer = graph(&[("a", &[]), ("b", &["c"]), ("c", &[]), ("d", &["a"])]);
    let expected = ["no arrow leads from a to b", "no arrow leads from a to c"];
    assert_eq!(differences(&fewer, &manifests), expected);
}

#[test]
fn a_lock_file_is_read() {
    let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1\"\ndependencies = [\n \"b\",\n \
                \"c 2.0\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"1\"\n";
    assert_eq!(locked(text), graph(&[("a", &["b", "c"]), ("b", &[])]));
}
