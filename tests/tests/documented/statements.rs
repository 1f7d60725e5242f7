//! docs/tests.md: statements of pages, and the tests that hold them.

use std::collections::BTreeSet;

use super::names::{holds, quoted};
use super::page::{Row, heading};

/// How a line begins that names the page of the sections below it.
const OF_PAGE: &str = "Of [";
/// How a paragraph begins that names the tests of all rows of a section.
const OF_ALL: &str = "Each row: ";

/// A section of a page, and its statements.
#[derive(Debug, Default, PartialEq, Eq)]
struct Section {
    page: String,
    title: String,
    /// Tests of each row of the page's tables; empty where the rows have tests of their own.
    of_all: String,
    rows: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct Statements(Vec<Section>);

impl Statements {
    /// Reads the text of the page.
    pub(crate) fn read(text: &str) -> Self {
        let mut sections: Vec<Section> = Vec::new();
        let (mut page, mut in_each) = (String::new(), false);
        for line in text.lines().map(str::trim) {
            if let Some((2, _)) = heading(line) {
                page.clear();
            }
            if let Some(rest) = line.strip_prefix(OF_PAGE) {
                rest.split(']').next().unwrap_or_default().clone_into(&mut page);
            }
            if let Some((3, title)) = heading(line) {
                assert!(!page.is_empty(), "docs/tests.md: {title} is of no page");
                let (page, title) = (page.clone(), title.to_owned());
                sections.push(Section { page, title, ..Section::default() });
            }
            let Some(section) = sections.last_mut() else { continue };
            in_each = line.starts_with(OF_ALL) || (in_each && !line.is_empty());
            if in_each {
                section.of_all.push_str(line);
                section.of_all.push('\n');
            }
            let Some(row) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                continue;
            };
            let is_head = row.trim() == "statement | test" || row.starts_with("---");
            if !is_head {
                let (statement, tests) = row.rsplit_once('|').unwrap_or((row, ""));
                section.rows.push((statement.trim().to_owned(), tests.trim().to_owned()));
            }
        }
        Self(sections)
    }

    /// Names of the pages, once each.
    pub(crate) fn pages(&self) -> BTreeSet<&str> {
        self.0.iter().map(|section| section.page.as_str()).collect()
    }

    /// Headings of the sections of a page.
    pub(crate) fn sections(&self, page: &str) -> Vec<&str> {
        let of_page = self.0.iter().filter(|section| section.page == page);
        of_page.map(|section| section.title.as_str()).collect()
    }

    /// Statements that name no test, or one that there is not.
    pub(crate) fn wrong(&self, tests: &BTreeSet<String>) -> Vec<String> {
        let mut wrong = Vec::new();
        for section in &self.0 {
            let of_all = ("each row".to_owned(), section.of_all.clone());
            let of_all = (!section.of_all.is_empty()).then_some(of_all);
            if of_all.is_none() && section.rows.is_empty() {
                wrong.push(format!("{} has no statement", section.title));
            }
            for (statement, named) in of_all.iter().chain(&section.rows) {
                let named = quoted(named);
                if named.is_empty() {
                    wrong.push(format!("{}: {statement}: no test", section.title));
                }
                for name in named.into_iter().filter(|name| !holds(name, tests)) {
                    wrong.push(format!("{}: {statement}: no such test: {name}", section.title));
                }
            }
        }
        wrong
    }
}

/// Rows of a page's tables without a statement. Statements of a section begin with its rows, in
/// their order; more may follow.
pub(crate) fn unheld(page: &str, rows: &[Row], statements: &Statements) -> Vec<String> {
    let mut unheld = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for row in rows {
        let at = seen.iter().filter(|section| **section == row.section).count();
        seen.push(&row.section);
        let mut sections = statements.0.iter();
        let section = sections.find(|section| section.page == page && section.title == row.section);
        let held = section.is_some_and(|section| {
            let own = section.rows.get(at).is_some_and(|(statement, _)| *statement == row.cells[0]);
            own || !section.of_all.is_empty()
        });
        if !held {
            unheld.push(format!("{}: {:?} has no row in docs/tests.md", row.section, row.cells[0]));
        }
    }
    unheld
}

#[test]
fn what_is_missing_is_found() {
    let tests: BTreeSet<String> = ["one", "two"].map(str::to_owned).into();
    let read = |body: &str| {
        Statements::read(&format!("# T\n\n## P\n\nOf [p.md](p.md).\n\n### A\n\n{body}\n"))
    };
    let table = |rows: &str| read(&format!("| statement | test |\n|---|---|\n{rows}"));
    let right = table("| a | `one`, `two` |\n| b | `one` |");
    assert_eq!(right.wrong(&tests), [""; 0]);
    assert_eq!((right.pages(), right.sections("p.md")), (["p.md"].into(), vec!["A"]));
    for wrong in ["| a | one |", "| a |  |", "| a | `three` |", "| a | `one`, `three` |"] {
        assert_eq!(table(wrong).wrong(&tests).len(), 1, "{wrong}");
    }
    assert_eq!(read("Each row: `one` and\n`two`.").wrong(&tests), [""; 0]);
    assert_eq!(read("Each row: `one` and\n`three`.").wrong(&tests).len(), 1);
    assert_eq!(read("Nothing.").wrong(&tests).len(), 1);

    let row = |section: &str, cell: &str| Row { section: section.into(), cells: vec![cell.into()] };
    let rows = [row("A", "a"), row("A", "b")];
    assert_eq!(unheld("p.md", &rows, &right), [""; 0]);
    assert_eq!(unheld("p.md", &rows, &read("Each row: `one`.")), [""; 0]);
    assert_eq!(unheld("p.md", &rows, &table("| a | `one` |")).len(), 1);
    assert_eq!(unheld("p.md", &rows, &table("| b | `one` |\n| a | `one` |")).len(), 2);
    assert_eq!(unheld("p.md", &[row("B", "a")], &right).len(), 1);
    assert_eq!(unheld("q.md", &rows, &right).len(), 2);
}
