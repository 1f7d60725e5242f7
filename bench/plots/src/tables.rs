//! The tables of pages, out of `bench/results`: each between the marks of its name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::results::Results;

/// Which rows of a table a page has.
enum Rows {
    All,
    /// Those whose first cells are these, with tabs between them, in this order.
    Of(&'static [&'static str]),
    /// Those with the largest number in a column, whatever its sign: so many.
    Worst(usize, usize),
}

use Rows::{All, Of, Worst};

struct Shown {
    page: &'static str,
    name: &'static str,
    /// File, heading, and which of the tables there.
    from: (&'static str, &'static str, usize),
    rows: Rows,
    columns: &'static [usize],
}

const fn shown(
    name: &'static str,
    from: (&'static str, &'static str, usize),
    rows: Rows,
    columns: &'static [usize],
) -> Shown {
    Shown { page: "performance.md", name, from, rows, columns }
}

const SOURCES: &[&str] = &[
    "in lines: 1 known, over its limit",
    "in lines: 1 known, within it",
    "in lines: 10000 known, within it",
    "in lines: 1000000 known, within it",
    "1000000 known, over its limit",
];

const KEYED: &[&str] = &[
    "in lines: one rule, 1 known, over its limit",
    "in lines: one rule, 1 known, within it",
    "in lines: four rules, within them",
    "in lines: eight rules, within them",
];

const TOOLS: &[&str] = &[
    "bare XDP drop",
    "hand-written XDP",
    "limiter, native, lines",
    "limiter, native",
    "limiter, generic",
    "hashlimit, raw",
    "nft, netdev ingress",
];

const FLOODED: &[&str] = &[
    "3,000,000\thand-written XDP",
    "3,000,000\tlimiter, native, lines",
    "3,000,000\thashlimit, raw",
    "3,000,000\tnft, netdev ingress",
];

const SERVED: &[&str] = &[
    "`limiter serve`",
    "small server, passes everything",
    "small server, limiter's crate",
    "small server, limitador",
    "small server, a call of Redis for each request",
];

const PASSED: &[&str] =
    &["100,000", "1,000,000", "100,000, each source 16 times", "as fast as possible"];

const COST: &[usize] = &[0, 3, 4, 5];

const SHOWN: &[Shown] = &[
    shown("sources", ("packets", "Sources", 0), Of(SOURCES), COST),
    shown("keyed rules", ("packets", "Keyed rules", 0), Of(KEYED), COST),
    shown("a million sources", ("path", "1,000,000 sources", 0), Of(TOOLS), &[0, 1, 3, 4]),
    shown(
        "beside a flood",
        ("path", "A conforming source beside a flood", 0),
        Of(FLOODED),
        &[0, 1, 3, 4, 5, 6],
    ),
    shown("two CPUs", ("contention", "Measured", 0), All, &[0, 3, 4, 5]),
    shown("over gRPC", ("requests", "Over gRPC", 0), Of(SERVED), &[0, 1, 2, 3]),
    shown("over RESP", ("requests", "Over RESP", 0), All, &[0, 1, 2, 6, 7]),
    Shown {
        page: "accuracy.md",
        name: "virtual time",
        from: ("accuracy", "limiter, the whole range, in virtual time", 0),
        rows: Worst(10, 3),
        columns: &[0, 1, 3, 5, 9, 10, 11, 12],
    },
    Shown {
        page: "accuracy.md",
        name: "real packets",
        from: ("accuracy", "Real packets, limiter and its peers", 0),
        rows: Worst(11, 6),
        columns: &[0, 1, 2, 4, 7, 8, 11],
    },
    Shown {
        page: "floods.md",
        name: "passed",
        from: ("floods", "Of the flood passed", 0),
        rows: Of(PASSED),
        columns: &[0, 2, 3, 4, 5],
    },
];

impl Shown {
    fn markdown(&self, results: &Results) -> Result<String> {
        let (file, heading, number) = self.from;
        let mut table = results.table(heading, number)?.into_iter();
        let head = table.next().context("no head")?;
        let mut rows: Vec<Vec<&str>> = table.collect();
        match self.rows {
            All => {}
            Of(names) => {
                let row = |name: &&str| {
                    let begin = format!("{name}\t");
                    let row = rows.iter().find(|row| row.join("\t").starts_with(&begin));
                    row.cloned().with_context(|| format!("{file}, {heading}: no row {name}"))
                };
                rows = names.iter().map(row).collect::<Result<_>>()?;
            }
            Worst(column, most) => {
                rows.sort_by(|a, b| size(b, column).total_cmp(&size(a, column)));
                rows.truncate(most);
            }
        }
        let line = |row: &[&str]| {
            let cells = self.columns.iter().map(|&at| row.get(at).map_or_else(String::new, median));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&head);
        text.push_str("|---|");
        text.push_str(&"--:|".repeat(self.columns.len() - 1));
        text.push('\n');
        text.extend(rows.iter().map(|row| line(row)));
        let date = results.fact("date")?;
        Ok(format!("{text}\n[{file}.tsv](../bench/results/{file}.tsv), {date}\n"))
    }
}

/// A cell without the lowest and highest value, which are in brackets.
fn median(cell: &&str) -> String {
    let Some((before, rest)) = cell.split_once(" (") else { return (*cell).to_owned() };
    match rest.split_once(')') {
        Some((range, after)) if range.contains(" to ") => format!("{before}{after}"),
        _ => (*cell).to_owned(),
    }
}

/// The number of a cell without its sign, or none.
fn size(row: &[&str], column: usize) -> f64 {
    let number = row.get(column).and_then(|cell| cell.split(' ').next()?.parse::<f64>().ok());
    number.unwrap_or_default().abs()
}

/// The page with `part` between the marks of `name`.
fn splice(page: &str, name: &str, part: &str) -> Option<String> {
    let mark = |end: &str| format!("<!-- made by cargo xtask plots, {name}: {end} -->\n");
    let (begin, end) = (mark("begin"), mark("end"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{part}{end}{after}"))
}

/// The pages with their tables.
pub(crate) fn pages(docs: &Path, results: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut pages: BTreeMap<PathBuf, String> = BTreeMap::new();
    for shown in SHOWN {
        let table = shown.markdown(&Results::read(results, shown.from.0)?)?;
        let path = docs.join(shown.page);
        let page = match pages.remove(&path) {
            Some(page) => page,
            None => {
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?
            }
        };
        let page = splice(&page, shown.name, &table)
            .with_context(|| format!("{} has no marks of {}", shown.page, shown.name))?;
        pages.insert(path, page);
    }
    Ok(pages.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str =
        "date\ttoday\n\n### T\n\n\ta\tb\nx, y\t1\t-5 (2 %)\nx\t2\t3 (1 to 4), 5\nz\t3\n";

    fn of(rows: Rows, columns: &'static [usize]) -> Result<String> {
        shown("n", ("t", "T", 0), rows, columns).markdown(&Results::of(RESULTS))
    }

    #[test]
    fn a_table_has_its_rows_and_columns() {
        let end = "\n[t.tsv](../bench/results/t.tsv), today\n";
        let named = of(Of(&["x"]), &[0, 2]).unwrap();
        assert_eq!(named, format!("|  | b |\n|---|--:|\n| x | 3, 5 |\n{end}"));
        let worst = of(Worst(2, 1), &[0, 2]).unwrap();
        assert_eq!(worst, format!("|  | b |\n|---|--:|\n| x, y | -5 (2 %) |\n{end}"));
        assert!(of(All, &[0]).unwrap().contains("| z |\n"));
        assert!(of(Of(&["y"]), &[0]).is_err());
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = |part: &str| {
            format!(
                "a\n<!-- made by cargo xtask plots, n: begin -->\n{part}\
                 <!-- made by cargo xtask plots, n: end -->\nb\n"
            )
        };
        assert_eq!(splice(&page("old\n"), "n", "new\n"), Some(page("new\n")));
        assert_eq!(splice("a\n", "n", "new\n"), None);
    }
}
