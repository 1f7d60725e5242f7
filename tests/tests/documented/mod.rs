//! The pages against the repository: promises name existing tests, the rows of docs/packets.md
//! match the frames that the tests send, and links lead to files and headings.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

mod names;
mod page;

use std::collections::BTreeSet;
use std::fs;

use limiter_common::verdict::Reason;
use limiter_tests::frames;

use self::names::{all_tests, holds, quoted, stated, workspace};
use self::page::{anchor, heading, links, prose, rows, written};

/// The list of all pages. Its sections say who reads them.
const INDEX: &str = "docs/README.md";

/// Its section of pages for users.
const FOR_USERS: &str = "For users";

/// Its section of pages that users look up.
const REFERENCE: &str = "Reference";

/// A page with more lines than these has a table of contents.
const LONG: usize = 150;

/// Pages about the design, one for each subject.
const DESIGN: &str = "docs/design/";

/// Pages that newcomers read in full, and the lines that they may have.
const SHORT: [(&str, usize); 2] = [("ARCHITECTURE.md", 300), ("README.md", 130)];

/// All pages, by their paths in the repository.
fn pages() -> Vec<String> {
    let mut pages = Vec::new();
    for directory in ["", "docs/", DESIGN] {
        for entry in fs::read_dir(workspace().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.file_name().unwrap().to_str().unwrap();
                pages.push(format!("{directory}{name}"));
            }
        }
    }
    assert!(pages.len() > 40, "{pages:?}");
    pages
}

/// ARCHITECTURE.md, and the pages about the design.
fn for_developers() -> Vec<String> {
    let mut pages = pages();
    pages.retain(|path| path == "ARCHITECTURE.md" || path.starts_with(DESIGN));
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// Pages that a section of the list has, by their paths in the repository.
fn listed(section: &str) -> Vec<String> {
    let text = written(INDEX);
    let mut parts = text.split("\n## ");
    let part = parts.find_map(|part| part.strip_prefix(section)?.strip_prefix('\n'));
    assert!(part.is_some(), "{INDEX} has no section {section}");
    let path = |link: String| match link.strip_prefix("../") {
        Some(path) => path.to_owned(),
        None => format!("docs/{link}"),
    };
    links(part.unwrap()).into_iter().map(path).collect()
}

#[test]
fn every_page_is_in_the_list_of_pages() {
    let listed: BTreeSet<String> =
        [FOR_USERS, REFERENCE, "For developers"].into_iter().flat_map(listed).collect();
    let mut missing = pages();
    missing.retain(|path| path.starts_with("docs/") && !path.starts_with(DESIGN));
    missing.retain(|path| path != INDEX && !listed.contains(path));
    assert!(missing.is_empty(), "{INDEX} does not list {missing:?}");
}

/// By a comment above it, or by a name of three words or more. Prints all of them.
#[test]
fn every_test_states_what_it_holds() {
    let stated = stated("tests/tests");
    assert!(stated.len() > 500, "{}", stated.len());
    let mut silent = Vec::new();
    for test in &stated {
        println!("{}: {}: {}", test.file, test.name, test.says);
        if test.says.is_empty() && test.name.matches('_').count() < 2 {
            silent.push(format!("{}: {}", test.file, test.name));
        }
    }
    assert!(silent.is_empty(), "write above them what they hold:\n{}", silent.join("\n"));
}

#[test]
fn pages_for_users_name_no_tests() {
    // Words that could be anything's name are nobody's.
    let tests: BTreeSet<String> =
        all_tests().into_iter().filter(|name| name.matches('_').count() >= 2).collect();
    for path in listed(FOR_USERS).into_iter().chain(listed(REFERENCE)) {
        let text = written(&path);
        let named: Vec<&str> =
            quoted(&text).into_iter().filter(|name| tests.contains(*name)).collect();
        assert!(named.is_empty(), "{path} names tests: {named:?}");
    }
}

/// The frames that pass uncharged, in the same order, and saying what the table says.
#[test]
fn the_page_has_the_rows_that_are_sent() {
    let page = rows(&written("docs/packets.md"));
    let sections = ["IPv4", "IPv6"];
    let documented: Vec<(String, String, String)> = page
        .into_iter()
        .filter(|row| sections.contains(&row.section.as_str()))
        .map(|row| (row.section, row.cells[0].clone(), row.cells[1].clone()))
        .collect();
    let sent: Vec<(String, String, String)> = frames::table()
        .into_iter()
        .filter_map(|row| {
            let happens = format!("exempt: `{}`", Reason::name(row.expected.err()?));
            Some((row.section.to_owned(), row.what.to_owned(), happens))
        })
        .collect();
    assert_eq!(documented, sent);
}

/// P1 to P12, each held by tests that there are.
#[test]
fn every_promise_is_held_by_tests() {
    let tests = all_tests();
    let rows = rows(&written("docs/promises.md"));
    let numbers: Vec<&str> = rows.iter().map(|row| row.cells[0].as_str()).collect();
    let wanted: Vec<String> = (1..=12).map(|number| format!("P{number}")).collect();
    assert_eq!(numbers, wanted);
    for row in &rows {
        let (number, held_by) = (row.cells[0].as_str(), row.cells[2].as_str());
        assert!(!quoted(held_by).is_empty(), "{number} names no test");
        for name in quoted(held_by) {
            assert!(holds(name, &tests), "{number}: there is no test {name}");
        }
    }
}

/// The lists of files on the page for those who add something.
#[test]
fn every_file_to_change_is_there() {
    let text = written("docs/how-to-add.md");
    let of_repository = |name: &&str| {
        let (first, rest) = name.split_once('/').unwrap_or_default();
        !name.contains(' ') && !rest.is_empty() && workspace().join(first).is_dir()
    };
    let named: Vec<&str> = quoted(&text).into_iter().filter(of_repository).collect();
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        assert!(workspace().join(name).is_file(), "docs/how-to-add.md: there is no {name}");
    }
}

/// Names of at least five words, such as no function but a test has.
#[test]
fn pages_about_the_design_name_tests_that_there_are() {
    let (tests, mut named) = (all_tests(), 0);
    for path in for_developers() {
        for name in quoted(&written(&path)) {
            let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if is_name && name.matches('_').count() >= 4 {
                assert!(tests.contains(name), "{path}: there is no test {name}");
                named += 1;
            }
        }
    }
    assert!(named > 3, "{named}");
}

#[test]
fn every_page_about_the_design_is_listed() {
    let listed: BTreeSet<String> = links(&written("ARCHITECTURE.md")).into_iter().collect();
    for path in for_developers().iter().filter(|path| path.starts_with(DESIGN)) {
        assert!(listed.contains(path), "ARCHITECTURE.md does not link {path}");
    }
}

/// Numbers 1, 2, 3 and so on, so that a review can cite an invariant.
#[test]
fn invariants_are_numbered_in_their_order() {
    let text = written("ARCHITECTURE.md");
    let (_, section) = text.split_once("\n## Invariants\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let items = section.lines().filter_map(|line| line.strip_prefix("- "));
    let numbers: Vec<Option<usize>> =
        items.map(|item| item.strip_prefix("**")?.split_once(".**")?.0.parse().ok()).collect();
    assert!(numbers.len() > 10, "{numbers:?}");
    let wanted: Vec<Option<usize>> = (1..=numbers.len()).map(Some).collect();
    assert_eq!(numbers, wanted);
}

#[test]
fn pages_for_newcomers_are_short() {
    for (path, most) in SHORT {
        let lines = fs::read_to_string(workspace().join(path)).unwrap().lines().count();
        assert!(lines <= most, "{path} has {lines} lines, and may have {most}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for path in pages() {
        let text = fs::read_to_string(workspace().join(&path)).unwrap();
        for link in links(&text) {
            if link.starts_with("http") {
                continue;
            }
            let (file, at) = link.split_once('#').unwrap_or((&link, ""));
            let directory = workspace().join(&path).parent().unwrap().to_owned();
            let file = if file.is_empty() { workspace().join(&path) } else { directory.join(file) };
            if !file.exists() {
                wrong.push(format!("{path}: {link}: there is no such file"));
            } else if !at.is_empty() {
                let text = fs::read_to_string(&file).unwrap();
                let there = prose(&text).filter_map(heading).any(|(_, text)| anchor(text) == at);
                if !there {
                    wrong.push(format!("{path}: {link}: there is no such heading"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn long_pages_have_a_table_of_contents() {
    for path in pages() {
        let text = written(&path);
        if text.lines().count() <= LONG {
            continue;
        }
        let links: BTreeSet<String> = links(&text).into_iter().collect();
        for (_, section) in prose(&text).filter_map(heading).filter(|(level, _)| *level == 2) {
            let link = format!("#{}", anchor(section));
            assert!(links.contains(&link), "{path} does not list its section {section}");
        }
    }
}
