//! The pages that promise what is tested: each row of each table names a test that there is, and
//! the rows of docs/packets.md are those that are sent.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use limiter_common::verdict::Reason;
use limiter_tests::frames;

/// The pages.
const PAGES: [&str; 3] = ["packets.md", "threat-model.md", "floods.md"];

/// Where tests are.
const CRATES: [&str; 5] = ["fuzz-targets", "limiter-common", "limiter-userspace", "tests", "xtask"];

/// How a line begins that names the tests of all rows of the next table.
const OF_ALL: &str = "Each row: ";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A page, without what a command made: figures are of one machine, and no test's.
fn page(name: &str) -> String {
    let text = fs::read_to_string(workspace().join("docs").join(name)).unwrap();
    let mut made = false;
    let mut kept = String::new();
    for line in text.lines() {
        made |= line.starts_with("<!-- made by ") && line.ends_with(": begin -->");
        if !made {
            kept.push_str(line);
            kept.push('\n');
        }
        made &= !(line.starts_with("<!-- made by ") && line.ends_with(": end -->"));
    }
    assert!(!made, "docs/{name}: what a command made has no end");
    kept
}

/// Names of functions that are tests: those behind an attribute that ends in `test`.
fn tests_in(text: &str) -> BTreeSet<String> {
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

fn all_tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for name in CRATES {
        sources(&workspace().join(name), &mut files);
    }
    files.iter().flat_map(|file| tests_in(&fs::read_to_string(file).unwrap())).collect()
}

/// A row of a table, and the cell or paragraph that names its tests.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    section: String,
    cells: Vec<String>,
    tests: String,
}

/// The rows of all tables of a page.
fn rows(page: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut section, mut of_all, mut header) = (String::new(), String::new(), None);
    for line in page.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
            of_all.clear();
        }
        if !line.starts_with('|') {
            header = None;
            if line.starts_with(OF_ALL) || (!of_all.is_empty() && !of_all.ends_with("\n\n")) {
                of_all.push_str(line);
                of_all.push_str(if line.is_empty() { "\n\n" } else { "\n" });
            } else if !line.is_empty() {
                // Another paragraph: what stood before it is not about the next table.
                of_all.clear();
            }
            continue;
        }
        let cells: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        match &header {
            None => header = Some(cells),
            Some(_) if cells.iter().all(|cell| cell.trim_matches('-').is_empty()) => {}
            Some(header) => {
                let own = header.last().is_some_and(|last| last == "test");
                let tests = if own { cells.last().unwrap() } else { &of_all };
                rows.push(Row { section: section.clone(), tests: tests.clone(), cells });
            }
        }
    }
    rows
}

/// What stands in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// What is wrong with the rows of a page.
fn wrong(page: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows(page) {
        let names = quoted(&row.tests);
        if names.is_empty() {
            wrong.push(format!("{:?} names no test", row.cells));
        }
        for name in names.into_iter().filter(|name| !tests.contains(*name)) {
            wrong.push(format!("{:?}: there is no test {name}", row.cells));
        }
    }
    wrong
}

#[test]
fn every_row_names_a_test_that_there_is() {
    let tests = all_tests();
    for name in PAGES {
        let page = page(name);
        // A table that is not recognised would have no rows to fail.
        let lines = page.lines().filter(|line| line.trim().starts_with('|')).count();
        let tables = page.lines().filter(|line| line.starts_with("|---")).count();
        assert_eq!(rows(&page).len(), lines - 2 * tables, "{name}");
        assert!(tables > 0, "{name} has no tables");
        let wrong = wrong(&page, &tests);
        assert!(wrong.is_empty(), "docs/{name}:\n{}", wrong.join("\n"));
    }
}

/// Row by row, in the same order, and saying what the table says.
#[test]
fn the_page_has_the_rows_that_are_sent() {
    let page = rows(&page("packets.md"));
    let sections = ["IPv4", "IPv6"];
    let documented: Vec<(String, String, String)> = page
        .into_iter()
        .filter(|row| sections.contains(&row.section.as_str()))
        .map(|row| (row.section, row.cells[0].clone(), row.cells[1].clone()))
        .collect();
    let sent: Vec<(String, String, String)> = frames::table()
        .into_iter()
        .map(|row| {
            let happens = match row.expected {
                Ok(_) => "charged".to_owned(),
                Err(reason) => format!("exempt: `{}`", Reason::name(reason)),
            };
            (row.section.to_owned(), row.what.to_owned(), happens)
        })
        .collect();
    assert_eq!(documented, sent);
}

#[test]
fn what_is_missing_is_found() {
    let tests =
        tests_in("#[test]\nfn one() {}\nfn helper() {}\n  #[tokio::test]\n  async fn two() {}\n");
    assert_eq!(tests, ["one", "two"].map(str::to_owned).into());
    let table = |tests: &str| format!("## A\n\n| what | test |\n|---|---|\n| a | {tests} |\n");
    assert_eq!(wrong(&table("`one`, `two`"), &tests), [""; 0]);
    assert_eq!(wrong(&table("one"), &tests).len(), 1);
    assert_eq!(wrong(&table("`one`, `helper`"), &tests).len(), 1);
    let below =
        |before: &str| format!("## A\n\n{before}\n\n| what | so |\n|---|---|\n| a | `b` |\n");
    assert_eq!(wrong(&below("Each row: `one` and\n`two`."), &tests), [""; 0]);
    assert_eq!(wrong(&below("Each row: `one` and\n`three`."), &tests).len(), 1);
    assert_eq!(wrong(&below("Each row: `one`.\n\nSomething else."), &tests).len(), 1);
    assert_eq!(wrong(&below("Nothing."), &tests).len(), 1);
}
