//! The results of measurements, in `bench/results`: lines of cells between tabs, under headings.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

pub(crate) struct Results {
    /// Name without its end.
    pub(crate) name: String,
    text: String,
}

impl Results {
    pub(crate) fn read(directory: &Path, name: &str) -> Result<Self> {
        let path = directory.join(format!("{name}.tsv"));
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { name: name.to_owned(), text })
    }

    /// The rows of a table under a heading, with its head: the first table there, or a later one.
    pub(crate) fn table(&self, heading: &str, number: usize) -> Result<Vec<Vec<&str>>> {
        let missing = || format!("{} has no table {number} under {heading}", self.name);
        let (_, rest) = self.text.split_once(&format!("### {heading}\n")).with_context(missing)?;
        let section = rest.split("\n###").next().unwrap_or_default();
        let is_row = |line: &&str| !line.is_empty() && !line.starts_with("# ");
        let mut tables = section.split("\n\n").map(|part| {
            let rows = part.lines().filter(is_row);
            rows.map(|row| row.split('\t').collect()).collect::<Vec<Vec<&str>>>()
        });
        tables.by_ref().filter(|rows| !rows.is_empty()).nth(number).with_context(missing)
    }

    /// A row of a table without a head.
    pub(crate) fn fact(&self, name: &str) -> Result<&str> {
        let mut lines = self.text.lines();
        let row = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        row.with_context(|| format!("{} has no {name}", self.name))
    }
}

#[cfg(test)]
impl Results {
    pub(crate) fn of(text: &str) -> Self {
        Self { name: "test".to_owned(), text: text.to_owned() }
    }
}

#[test]
fn a_table_is_of_its_heading_and_its_place() {
    let results = Results::of(
        "date\ttoday\n\n### A\n\n# text\n\n\ta\tb\nx\t1\t2\n\n# more\n\n\tc\ny\t3\n\n### B\n\n\td\n",
    );
    assert_eq!(results.table("A", 0).unwrap(), [vec!["", "a", "b"], vec!["x", "1", "2"]]);
    assert_eq!(results.table("A", 1).unwrap(), [vec!["", "c"], vec!["y", "3"]]);
    assert!(results.table("A", 2).is_err() && results.table("C", 0).is_err());
    assert_eq!(results.fact("date").unwrap(), "today");
}
