//! Tables of a page: a row for each thing, and for each kernel that differs.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result};

/// Begins every line of a test's that is a cell: `limiter-cell: TABLE | ROW | COLUMN | CELL`.
const MARK: &str = "limiter-cell: ";

/// The version of a kernel, as far as the tables go: 6 and 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release(u32, u32);

impl Release {
    /// Of `uname -r`.
    pub(super) fn of(text: &str) -> Result<Self> {
        let mut parts = text.split(|c: char| !c.is_ascii_digit());
        let mut number = || parts.next()?.parse().ok();
        let release = number().and_then(|major| Some(Self(major, number()?)));
        release.with_context(|| format!("no release of a kernel: {text:?}"))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Place of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    table: String,
    row: String,
    column: String,
    release: Release,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, on Linux {}", self.row, self.column, self.release)
    }
}

/// A cell that is no finding: its test failed.
const FAILED: &str = "failed";

/// The cells in what tests said, which begin behind libtest's own words; not of what failed.
pub(super) fn cells(said: &str, release: Release) -> impl Iterator<Item = (Cell, String)> {
    said.lines().filter_map(move |line| {
        let line = line.get(line.find(MARK)? + MARK.len()..)?;
        let mut parts = line.splitn(4, " | ").map(|part| part.trim().to_owned());
        let (table, row, column) = (parts.next()?, parts.next()?, parts.next()?);
        let value = parts.next().filter(|value| value != FAILED)?;
        Some((Cell { table, row, column, release }, value))
    })
}

/// Rows of a table: for each thing and kernel the cells.
type Rows = BTreeMap<String, BTreeMap<Release, Vec<String>>>;

/// A table of the page.
#[derive(Clone, Debug)]
struct Table {
    /// Its two first lines.
    head: String,
    columns: Vec<String>,
    rows: Rows,
}

/// All tables of the page, by name: that of the comment in the line before.
#[derive(Clone, Debug)]
pub(super) struct Tables(BTreeMap<String, Table>);

/// A cell of what was not run.
const NOT_RUN: &str = "-";

/// A cell of what a kernel has not. A page has no row for it alone: kernels that other rows name
/// have not what is in the rows that do not name them.
const NOT_THERE: &str = "not there";

impl Tables {
    /// The tables of a page, each behind `<!-- table of xtask bench: NAME -->`.
    pub(super) fn read(page: &str) -> Result<Self> {
        let mut tables = BTreeMap::new();
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = name_of(line) {
                let rows = lines.by_ref().take_while(|line| line.starts_with('|'));
                let table = Table::read(&rows.collect::<Vec<_>>());
                tables.insert(name.to_owned(), table.with_context(|| format!("table {name}"))?);
            }
        }
        anyhow::ensure!(!tables.is_empty(), "the page has no table");
        Ok(Self(tables))
    }

    /// A cell's text.
    pub(super) fn get(&self, cell: &Cell) -> Option<&str> {
        let table = self.0.get(&cell.table)?;
        let at = table.columns.iter().position(|column| *column == cell.column)?;
        let kernels = table.rows.get(&cell.row)?;
        match kernels.get(&cell.release) {
            Some(row) => Some(row.get(at)?),
            None if table.has(cell.release) => Some(NOT_THERE),
            None => None,
        }
    }

    /// Takes cells over. The others of a new row are as the page has them before.
    pub(super) fn take(&mut self, cells: &BTreeMap<Cell, String>) -> Result<()> {
        let before = self.clone();
        for (cell, value) in cells {
            let table = self.0.get_mut(&cell.table);
            let table = table.with_context(|| format!("no table {}", cell.table))?;
            let at = table.columns.iter().position(|column| *column == cell.column);
            let at = at.with_context(|| format!("no column {:?}", cell.column))?;
            let width = table.columns.len();
            let other = before.get(cell).map_or(NOT_RUN, |_| NOT_THERE);
            let kernels = table.rows.entry(cell.row.clone()).or_default();
            let row = kernels.entry(cell.release).or_insert_with(|| vec![other.to_owned(); width]);
            if let Some(place) = row.get_mut(at) {
                place.clone_from(value);
            }
            // Of a kernel that is new to the table, a row that was not run says so.
            if !before.0.get(&cell.table).is_some_and(|table| table.has(cell.release)) {
                for kernels in table.rows.values_mut() {
                    let not_run = || vec![NOT_RUN.to_owned(); width];
                    kernels.entry(cell.release).or_insert_with(not_run);
                }
            }
        }
        Ok(())
    }

    /// The page with these tables.
    pub(super) fn written(&self, page: &str) -> String {
        let mut text = String::new();
        let mut in_table = false;
        for line in page.lines() {
            in_table &= line.starts_with('|');
            if in_table {
                continue;
            }
            text.push_str(line);
            text.push('\n');
            if let Some(table) = name_of(line).and_then(|name| self.0.get(name)) {
                text.push_str(&table.to_string());
                in_table = true;
            }
        }
        text
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.values().try_for_each(|table| writeln!(f, "{table}"))
    }
}

fn name_of(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- table of xtask bench: ")?.strip_suffix(" -->")
}

fn parts(line: &str) -> Option<Vec<String>> {
    let line = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(line.split('|').map(|part| part.trim().to_owned()).collect())
}

impl Table {
    /// True if a row names the kernel.
    fn has(&self, release: Release) -> bool {
        self.rows.values().any(|kernels| kernels.contains_key(&release))
    }

    fn read(lines: &[&str]) -> Result<Self> {
        let (head, rest) = lines.split_at_checked(2).context("no head")?;
        let columns = head.first().and_then(|line| parts(line)).context("no head")?;
        let columns = columns.get(2..).context("no columns")?.to_vec();
        let mut rows = Rows::new();
        for line in rest {
            let parts = parts(line).with_context(|| (*line).to_owned())?;
            let [row, releases, cells @ ..] = &*parts else { anyhow::bail!("{line}") };
            anyhow::ensure!(cells.len() == columns.len(), "not {} cells: {line}", columns.len());
            for release in releases.split(", ") {
                let kernels = rows.entry(row.clone()).or_default();
                kernels.insert(Release::of(release)?, cells.to_vec());
            }
        }
        Ok(Self { head: head.join("\n"), columns, rows })
    }
}

/// Kernels with the same cells share a row.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(row, _)| row.to_lowercase());
        for (row, kernels) in rows {
            let mut alike: Vec<(Vec<String>, &Vec<String>)> = Vec::new();
            for (release, cells) in kernels {
                match alike.iter_mut().find(|(_, others)| *others == cells) {
                    Some((releases, _)) => releases.push(release.to_string()),
                    None => alike.push((vec![release.to_string()], cells)),
                }
            }
            let is_nothing = |cells: &[String]| cells.iter().all(|cell| cell == NOT_THERE);
            let is_somewhere = alike.iter().any(|(_, cells)| !is_nothing(cells));
            alike.retain(|(_, cells)| !(is_somewhere && is_nothing(cells)));
            for (releases, cells) in alike {
                writeln!(f, "| {row} | {} | {} |", releases.join(", "), cells.join(" | "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "a\n\n<!-- table of xtask bench: t -->\n\
        | what | Linux | x | y |\n|---|---|---|---|\n\
                        | b | 6.1, 6.12 | yes | no |\n\nend\n";

    fn measured(said: &str, release: &str) -> BTreeMap<Cell, String> {
        cells(said, Release::of(release).unwrap()).collect()
    }

    #[test]
    fn cells_are_found_behind_libtest_s_words() {
        let said = "test a ... limiter-cell: t | b | x | yes\nlimiter-cell: t | b | y | a (b | c)\n\
                    limiter-cell: t | c | x | failed\nlimiter-cell failed: c: why\n";
        let found = measured(said, "6.12.1-cloud");
        let texts: Vec<&str> = found.values().map(String::as_str).collect();
        assert_eq!(texts, ["yes", "a (b | c)"]);
        assert_eq!(found.keys().next().unwrap().to_string(), "b, x, on Linux 6.12");
    }

    #[test]
    fn kernels_that_differ_have_rows_of_their_own() {
        let mut tables = Tables::read(PAGE).unwrap();
        assert_eq!(tables.written(PAGE), PAGE);
        let new = measured("limiter-cell: t | b | y | yes\nlimiter-cell: t | A | x | no\n", "6.12");
        assert_eq!(new.keys().map(|cell| tables.get(cell)).collect::<Vec<_>>(), [None, Some("no")]);
        tables.take(&new).unwrap();
        let rows = "| A | 6.12 | no | - |\n| b | 6.1 | yes | no |\n| b | 6.12 | yes | yes |\n";
        assert!(tables.written(PAGE).contains(rows), "{}", tables.written(PAGE));
        let back = measured("limiter-cell: t | b | y | no\n", "6.12.3");
        tables.take(&back).unwrap();
        assert!(tables.written(PAGE).contains("| b | 6.1, 6.12 | yes | no |\n"));
        tables.take(&measured("limiter-cell: t | b | z | no\n", "6.12")).unwrap_err();
    }

    #[test]
    fn what_a_kernel_has_not_needs_no_row() {
        let mut tables = Tables::read(PAGE).unwrap();
        let cells = "limiter-cell: t | b | x | not there\nlimiter-cell: t | b | y | not there\n\
                     limiter-cell: t | c | x | yes\nlimiter-cell: t | d | x | not there\n\
                     limiter-cell: t | d | y | not there\n";
        let new = measured(cells, "6.18");
        tables.take(&new).unwrap();
        let page = tables.written(PAGE);
        // Nor does a row that was not run pass for one of a kernel that has it not.
        let mut part = Tables::read(&page).unwrap();
        part.take(&measured("limiter-cell: t | c | x | yes\n", "6.6")).unwrap();
        assert!(part.written(PAGE).contains("| b | 6.6 | - | - |\n"), "{}", part.written(PAGE));
        let rows = "| b | 6.1, 6.12 | yes | no |\n| c | 6.18 | yes | - |\n\
                    | d | 6.18 | not there | not there |\n\n";
        assert!(page.contains(rows), "{page}");
        let again = Tables::read(&page).unwrap();
        for (cell, value) in &new {
            assert_eq!(again.get(cell), Some(value.as_str()), "{cell}");
        }
        let other = measured("limiter-cell: t | b | x | yes\n", "6.6");
        assert_eq!(other.keys().map(|cell| again.get(cell)).collect::<Vec<_>>(), [None]);
        // A column that is run again says nothing of the others.
        tables = again;
        tables.take(&measured("limiter-cell: t | b | x | not there\n", "6.18")).unwrap();
        assert_eq!(tables.written(PAGE), page);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error() {
        Tables::read("no table\n").unwrap_err();
        Tables::read("<!-- table of xtask bench: t -->\n\n").unwrap_err();
        Tables::read(&PAGE.replace("| no |", "|")).unwrap_err();
        Tables::read(&PAGE.replace("6.12", "six")).unwrap_err();
    }
}
